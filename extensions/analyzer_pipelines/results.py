"""Results of `analyze pipeline`, frozen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """The work of one component. Bytes are the most while it ran; calls: how often it ran."""

    name: str
    calls: int
    peak_allocated: int
    peak_reserved: int


@dataclass(frozen=True, slots=True)
class Run:
    """A pipeline's run with one choice of options.

    title: its size, frames and way to offload. Figures in bytes, as in `Estimate`; verdict: "fits", "may not
    fit", "does not fit" or "not known"; stages in the order they began; ended: why it ended before its end,
    "" if it did not.
    """

    title: str
    peak_allocated: int
    peak_reserved: int
    device_used: int
    reserved_range: tuple[int, int] | None
    verdict: str
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]
    ended: str = ""

    @property
    def largest(self) -> Stage | None:
        """The stage in which most is allocated, None where the peak lies in none."""
        return next((stage for stage in self.stages if stage.peak_allocated == self.peak_allocated), None)


@dataclass(frozen=True, slots=True)
class PipelineMemory:
    """Runs of one pipeline. device: its name; capacity: its bytes, or the budget's if that is less."""

    name: str
    pipeline: str
    device: str
    capacity: int
    runs: tuple[Run, ...]
