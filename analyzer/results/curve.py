"""A target's memory at many batches (`planning/curve.py` makes it)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from analyzer.results.estimate import Estimate, TensorRow


@dataclass(frozen=True, slots=True)
class Row:
    """One batch. All sizes in bytes, as they are on a device with room; `naive` is the textbook sum. fits:
    whether it runs on the device, or within the budget, by its figures; None where nobody said one. verdict:
    "fits", "may not fit" or "does not fit", as `analyze` says at that batch; "" where nobody said one."""

    batch: int
    peak_allocated: int
    peak_reserved: int
    device_used: int
    naive: int
    fits: bool | None = field(default=None, compare=False)
    verdict: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Slope:
    """Rows from batch `first` to `last` on one straight line: `bytes_per_sample` of peak allocated."""

    first: int
    last: int
    bytes_per_sample: float


@dataclass(frozen=True, slots=True)
class Kink:
    """Where the curve bends: between batches `before` and `after`. reason: why the program is another one, if
    it is.

    peak_before, peak_after: the event and the largest tensors at the peak on either side; empty where not
    looked at.
    """

    before: int
    after: int
    reason: str = ""
    peak_before: tuple[str, tuple[TensorRow, ...]] = ("", ())
    peak_after: tuple[str, tuple[TensorRow, ...]] = ("", ())


@dataclass(frozen=True)
class Curve:
    """The rows in ascending order of batch, with what failed: batch → what was said.

    captures: batches at which the target was captured; the other rows were evaluated.
    """

    rows: tuple[Row, ...]
    failures: dict[int, str]
    slopes: tuple[Slope, ...]
    kinks: tuple[Kink, ...]
    captures: tuple[int, ...]
    _last: Callable[[], Estimate] = field(repr=False, compare=False)

    @cached_property
    def estimate(self) -> Estimate:
        """The last row's, with target, device and certainty: analysed when it is first asked for, which takes
        longer than many rows."""
        return self._last()
