"""Watches a real step as the recorder watches a captured one: `capture/pytorch/module/step.py` runs under
either.

1. At each named event: bytes allocated, the peak of the iteration so far, bytes reserved.
2. `step` is set where an iteration begins: the last iteration's peaks are kept and the counters start anew,
   as in `runtimes/timeline.py`.
3. Nothing is deleted, synchronised or allocated: watching changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from analyzer.graph import Phase


@dataclass(frozen=True, slots=True)
class Counters:
    """The allocator's counters, in bytes."""

    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int
    peak_requested: int


class Meter(Protocol):
    """Reads an allocator's counters and starts their peaks anew."""

    def read(self) -> Counters: ...

    def reset_peaks(self) -> None: ...


class CudaMeter:
    """The caching allocator of the current CUDA device."""

    def read(self) -> Counters:
        import torch

        stats = torch.cuda.memory_stats()
        return Counters(
            allocated=stats["allocated_bytes.all.current"],
            reserved=stats["reserved_bytes.all.current"],
            peak_allocated=stats["allocated_bytes.all.peak"],
            peak_reserved=stats["reserved_bytes.all.peak"],
            peak_requested=stats["requested_bytes.all.peak"],
        )

    def reset_peaks(self) -> None:
        import torch

        torch.cuda.reset_peak_memory_stats()


@dataclass(slots=True)
class Observer:
    """Replaces the recorder in `capture.step.run`. marks: (event, counters); peaks: by iteration."""

    meter: Meter
    phase: Phase = Phase.SETUP
    marks: list[tuple[str, Counters]] = field(default_factory=list)
    peaks: list[Counters] = field(default_factory=list)
    _step: int | None = None

    @property
    def step(self) -> int:
        """The iteration under way."""
        return self._step or 0

    @step.setter
    def step(self, iteration: int) -> None:
        self._close()
        self._step = iteration
        self.meter.reset_peaks()

    def mark(self, name: str) -> None:
        """End the named event and read the meter."""
        self.marks.append((name, self.meter.read()))

    def label(self, tensor: Any, name: str, category: Any) -> None:
        """Names mean nothing to a measurement."""

    def finish(self) -> None:
        """End the last iteration, or the only one if none was marked."""
        self._close()
        if not self.peaks:
            self.peaks.append(self.meter.read())

    def _close(self) -> None:
        if self._step is not None:
            self.peaks.append(self.meter.read())
            self._step = None
