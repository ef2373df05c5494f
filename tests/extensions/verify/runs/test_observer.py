"""Counters at named events, and peaks that start anew with each iteration."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

from analyzer.graph import Phase  # noqa: E402
from analyzer_verify.runs.observer import Counters, Observer  # noqa: E402


@dataclass
class FakeMeter:
    """An allocator that only counts."""

    allocated: int = 0
    peak: int = 0

    def use(self, nbytes: int) -> None:
        self.allocated += nbytes
        self.peak = max(self.peak, self.allocated)

    def read(self) -> Counters:
        return Counters(self.allocated, self.allocated, self.peak, self.peak, self.peak)

    def reset_peaks(self) -> None:
        self.peak = self.allocated


def test_peaks_start_anew_with_each_iteration() -> None:
    meter = FakeMeter()
    observer = Observer(meter)
    meter.use(500)
    meter.use(-400)
    observer.mark("model")
    for iteration, transient in enumerate((50, 20)):
        observer.step = iteration
        observer.phase = Phase.FORWARD
        meter.use(transient)
        meter.use(-transient)
        observer.mark(f"{iteration}.forward")
    observer.finish()
    assert [(event, c.peak_allocated) for event, c in observer.marks] == [
        ("model", 500),
        ("0.forward", 150),
        ("1.forward", 120),
    ]
    assert [peak.peak_allocated for peak in observer.peaks] == [150, 120]


def test_a_program_without_iterations_has_one_peak() -> None:
    meter = FakeMeter()
    observer = Observer(meter)
    meter.use(7)
    observer.finish()
    assert [peak.peak_allocated for peak in observer.peaks] == [7]
