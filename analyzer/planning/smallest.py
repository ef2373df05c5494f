"""The smallest GPU on which a script, followed as it is, or a target at a batch surely fits.

GPUs are taken in the order of their memory. One is passed by where a program with the same kernels of
attention holds more tensors at its peak than it has memory, or did not fit in as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analyzer.devices import DeviceProfile, resolve
from analyzer.devices.architectures import architecture_of
from analyzer.engines.choice import EngineChoice
from analyzer.options import Options
from analyzer.results.estimate import Estimate


def attention_of(card: DeviceProfile) -> object:
    """Return what decides between kernels of attention (`sdp_utils.cpp`)."""
    known = architecture_of(card.compute_capability)
    return known.ampere, known.volta, known.narrow_backward, known.prefers_cudnn


def from_the_smallest(
    devices: Sequence[Options], analyse: Callable[[Options], Estimate], tell: Callable[[str], None]
) -> list[Estimate]:
    """Return the estimates on the GPUs that were analysed, by memory; only the last one may fit surely, and
    does so unless none does. Raises what `analyse` raises."""
    known: list[tuple[object, Estimate]] = []
    profiles = [(resolve(options.device)[0], options) for options in devices]
    for profile, options in sorted(profiles, key=lambda pair: (pair[0].usable_bytes, pair[0].name)):
        kernels, usable = attention_of(profile), profile.usable_bytes
        alike = [one for other, one in known if other == kernels]
        if any(one.needed.peak_allocated > usable for one in alike):
            continue
        if any(one.usable_bytes >= usable and one.verdict() == "does not fit" for one in alike):
            continue
        tell(f"on {profile.name}")
        estimate = analyse(options)
        known.append((kernels, estimate))
        if estimate.verdict() == "fits" or estimate.incomplete or estimate.unreached or estimate.refused:
            break
    return [estimate for _, estimate in known]


def followed_from_the_smallest(
    script: str,
    arguments: Sequence[str],
    devices: Sequence[Options],
    choice: EngineChoice,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Estimate]:
    """Return `from_the_smallest` of a script. Raises AnalyzerError where the script fails by itself."""

    def followed(options: Options) -> Estimate:
        answer = choice.analyze_program(script, tuple(arguments), options, {}, "steady")
        if isinstance(answer.error, KeyboardInterrupt) or answer.estimate.incomplete == "interrupted":
            raise KeyboardInterrupt
        return answer.estimate

    return from_the_smallest(devices, followed, tell)
