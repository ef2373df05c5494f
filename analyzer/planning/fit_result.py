"""The answer to "which is the largest batch?" (`fit.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analyzer.analysis import Analysis
from analyzer.estimate import Estimate

# Searched up to here; nobody trains with more samples at once.
MOST = 1 << 20


def bisected(low: int, high: int, runs: Callable[[int], bool]) -> int:
    """A batch from `low` on that runs, below `high`, with one right above it that does not; `low` runs and `high` does not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return low


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer. All sizes in bytes.

    batch: the largest, 0 when not even one sample runs. at: its estimate under the limit, None when batch is 0.
    beyond: the estimate of the next batch that fails, whose `out_of_memory` says what; None when nothing larger was tried. fails:
        that batch, 0 for the one after the answer.
    limit: what the allocator may hold. device_bound: whether the device says so, rather than a limit of its own.
    notes: what a reader of the answer should know. samples: None; with it `batch` is the length that so many samples may
        have at most (`longest`).
    also: larger batches that would run nevertheless, since memory in pieces is not monotonic. gaps: smaller ones that
        would not. captures: batches that were captured. refused: what the program itself said at `fails`, "" where it is
        memory that lacks.
    """

    batch: int
    at: Estimate | None
    beyond: Estimate | None
    limit: int
    device_bound: bool
    also: tuple[int, ...] = ()
    captures: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    samples: int | None = None
    gaps: tuple[int, ...] = ()
    fails: int = 0
    refused: str = ""

    @property
    def headroom(self) -> int:
        """Bytes the allocator might still hold at that batch."""
        return self.limit - (self.at.peak_reserved if self.at is not None else 0)


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
