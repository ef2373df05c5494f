"""What every search for the largest batch needs: how far it goes, bisection, and what its answer assumes."""

from __future__ import annotations

from collections.abc import Callable

from analyzer.analysis import Analysis

# Searched up to here; nobody trains with more samples at once.
MOST = 1 << 20


def bisected(low: int, high: int, runs: Callable[[int], bool]) -> int:
    """A batch from `low` on that runs, below `high`, with one right above it that does not; `low` runs and `high` does not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return low


def assumptions(analysis: Analysis) -> tuple[str, ...]:
    """What of the device's profile nobody has measured on it, in words: with its bytes, where it has any."""
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
