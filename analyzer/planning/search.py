"""What every search for the largest batch needs: how far it goes, bisection, and what its answer assumes."""

from __future__ import annotations

from collections.abc import Callable

from analyzer.analysis import Analysis
from analyzer.runtimes.base import Limit
from analyzer.runtimes.ranges import held_under
from analyzer.runtimes.variants import Variants

# Searched up to here; nobody trains with more samples at once.
MOST = 1 << 20


def bisected(low: int, high: int, runs: Callable[[int], bool]) -> int:
    """Return a batch that runs and whose successor does not, given `low` runs and `high` does not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return low


def galloped(near: int, low: int, high: int, runs: Callable[[int], bool]) -> int:
    """Return what `bisected` does, looked for from `near` on, between both, in steps that double."""
    way, step = (1 if runs(near) else -1), 1
    while low < near + way * step < high and runs(near + way * step) == (way > 0):
        near, step = near + way * step, 2 * step
    low, high = sorted((near, min(max(near + way * step, low), high)))
    return bisected(low, high, runs)


def fit_verdict(
    analysis: Analysis, limit: int, device_bound: bool, runs: bool
) -> tuple[str, tuple[int, int]]:
    """Return `Fit.verdict` and `Fit.reserved_range` of a batch under a limit, by its figures."""
    estimate, known = analysis.estimate, analysis.estimate.certainty
    word, held = ("fits", estimate.peak_reserved) if runs else ("does not fit", limit)
    if runs and estimate.at_least:
        word = "may not fit"
    sure = known.beside_range is None and not (known.kept_bytes or known.spare_bytes)
    if sure or analysis.prediction.limited is None:
        return word, (held, held)
    less, more = limit, limit
    if device_bound:
        beside = estimate.needed.device_used - estimate.needed.peak_reserved
        fewest, most = known.beside_range or (beside, beside)
        less = max(limit - (most - beside) - known.kept_bytes, 0)
        more = limit + beside - fewest + known.spare_bytes
    variants = Variants(analysis.prediction)
    ends = held_under(variants, Limit(more, device_bound), Limit(less, device_bound))
    if (ends[1] is None) if runs else (ends[0] is not None):
        word = "may not fit"
    least, largest = (limit if end is None else end for end in ends)
    return word, (min(least, held), max(largest, held))


def assumptions(analysis: Analysis) -> tuple[str, ...]:
    """Return sentences on profile figures that were not measured on this GPU, with their bytes."""
    profile = analysis.profile
    if profile.measured:
        return ()
    kinds: dict[str, list[str]] = {"assumed": [], "published": [], "recorded": [], "specified": []}
    for figure, source in sorted(profile.sources.items()):
        kind = source.split()[0].strip(":,;")
        if kind in kinds:
            kinds[kind].append(figure.removesuffix("_bytes").replace("_", " "))
    parts = [f"{kind}: {', '.join(figures)}" for kind, figures in kinds.items() if figures]
    taken = "; ".join(
        f"{name} {nbytes / 2**20:,.1f} MiB" for name, nbytes in analysis.estimate.certainty.assumed.items()
    )
    return (
        f"nobody has measured {profile.name}: {'; '.join(parts)}",
        f"taken to be as on a GPU that was measured: {taken}",
    )
