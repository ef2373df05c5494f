"""The GPUs of one process, side by side: which of them decides, and a row of each.

1. The GPU on which memory runs out decides; else the one that is fullest (they are alike).
2. Its figures are the estimate's; every GPU has a row (`Estimate.devices`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analyzer.analysis import Analysis
from analyzer.results.estimate import DeviceRow, Estimate


def with_devices(analyses: Sequence[Analysis]) -> Analysis:
    """Return the analysis of the GPU that decides, with a row of each. analyses: of all, by number."""
    rows = tuple(_row(number, analysis.estimate) for number, analysis in enumerate(analyses))
    fullest = max(analyses, key=lambda one: _weight(one.estimate))
    return replace(fullest, estimate=replace(fullest.estimate, devices=rows))


def _weight(estimate: Estimate) -> tuple[bool, int, int]:
    return estimate.out_of_memory is not None, estimate.device_used, estimate.peak_allocated


def _row(number: int, estimate: Estimate) -> DeviceRow:
    return DeviceRow(
        number,
        estimate.device,
        estimate.peak_allocated,
        estimate.peak_reserved,
        estimate.device_used,
        estimate.out_of_memory is not None,
    )
