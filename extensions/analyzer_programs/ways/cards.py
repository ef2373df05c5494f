"""The smallest known GPU that holds a program as it is, followed there.

A GPU's architecture decides kernels, and with them what a program takes: attention that falls back on one
runs as flash on another. Known GPUs are tried from the smallest that is larger, one with the same kernels of
attention as one where more is needed is passed by, and `_TRIES` are followed. Where none of these fits, the
smallest GPU with as much as the program takes on this one is named, and that it was not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from analyzer.devices import DeviceProfile, load, names
from analyzer.planning.smallest import attention_of
from analyzer.results.diagnosis import Remedy
from analyzer_programs.ways.trial import Program

_TRIES = 5


def larger(program: Program, tell: Callable[[str], None]) -> Iterator[Remedy]:
    """Yield the smallest known GPU that holds the program as it is; none where a budget is the limit."""
    estimate = program.analysis.estimate
    if estimate.allowed_bytes < estimate.usable_bytes:
        return
    needed = estimate.needed
    needs = [(attention_of(program.analysis.profile), needed.device_used)]
    known = sorted(map(load, names()), key=lambda profile: (profile.usable_bytes, profile.name))
    for _ in range(_TRIES):
        card = next(
            (one for one in known if one.usable_bytes > estimate.usable_bytes and _may(one, needs)), None
        )
        if card is None:
            return
        tell(f"advice: as it is on {card.name}")
        there = program.elsewhere(card.name)
        if there.interrupted:
            return
        if there.estimate is not None and there.verdict == "fits":
            held = there.estimate
            figures = (held.peak_allocated, held.peak_reserved, held.device_used)
            time = None if held.step_seconds is None else held.step_seconds.seconds
            typed = f"--device {card.name}"
            yield Remedy(_article(card), "device", typed, *figures, step_seconds=time, state=there.state)
            return
        known.remove(card)
        if there.estimate is not None:
            needs.append((attention_of(card), there.estimate.device_range[1]))
    card = next((one for one in known if one.usable_bytes >= needed.device_used), None)
    if card is not None:
        figures = (needed.peak_allocated, needed.peak_reserved, needed.device_used)
        state = f"as on {program.analysis.profile.name}, not followed there"
        yield Remedy(_article(card), "device", f"--device {card.name}", *figures, state=state)


def _may(card: DeviceProfile, needs: list[tuple[object, int]]) -> bool:
    """Return whether nothing is known that says that a program does not fit a GPU: each architecture's need,
    and its kernels of attention."""
    return all(card.usable_bytes >= nbytes for kernels, nbytes in needs if kernels == attention_of(card))


def _article(card: DeviceProfile) -> str:
    return f"{'an' if card.name[0] in 'arhl' else 'a'} {card.name}"
