"""The differences between two estimates (`planning/compare.py` finds them)."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.results.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Change:
    """A figure or a share of the peak, before and after, in bytes."""

    name: str
    before: int
    after: int

    @property
    def grown(self) -> int:
        """Growth: after minus before."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes. figures: peak allocated, peak reserved, device memory. categories, modules, lines:
    changes at the peak, largest first.

    tolerance: growth that is allowed, as a share; allowed_bytes: in bytes, the greater of both counts.
    shares: by category and the module that encloses it, largest first. unlike: settings that differ, as
        (name, before, after) in words. moved: the events of the two peaks, if they differ.
    """

    before: Estimate
    after: Estimate
    tolerance: float
    figures: tuple[Change, ...]
    categories: tuple[Change, ...]
    modules: tuple[Change, ...]
    lines: tuple[Change, ...]
    shares: tuple[Change, ...]
    unlike: tuple[tuple[str, str, str], ...]
    moved: tuple[str, str] | None
    allowed_bytes: int = 0

    @property
    def exceeds(self) -> bool:
        """Whether a figure grew by more than the tolerance."""
        return any(
            change.grown > max(self.tolerance * change.before, self.allowed_bytes) for change in self.figures
        )
