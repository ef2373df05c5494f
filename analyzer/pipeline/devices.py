"""The GPUs of one process, side by side: which of them decides, and a row of each.

1. The GPU on which memory runs out decides; else the one that is fullest (they are alike).
2. Its figures are the estimate's; every GPU has a row (`Estimate.devices`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analyzer.analysis import Analysis
from analyzer.results.estimate import DeviceRow, Estimate


def fullest_of(estimates: Sequence[Estimate]) -> Estimate:
    """Return the estimate of the GPU that decides, with a row of each. estimates: of all, by number; the only
    one as it is."""
    if len(estimates) == 1:
        return estimates[0]
    rows = tuple(
        DeviceRow(
            number,
            estimate.device,
            estimate.peak_allocated,
            estimate.peak_reserved,
            estimate.device_used,
            estimate.out_of_memory is not None,
        )
        for number, estimate in enumerate(estimates)
    )
    fullest = replace(estimates[0], devices=rows).fullest
    assert fullest is not None
    return replace(estimates[fullest.number], devices=rows)


def with_devices(analyses: Sequence[Analysis]) -> Analysis:
    """Return the analysis of the GPU that decides, with a row of each."""
    estimate = fullest_of([analysis.estimate for analysis in analyses])
    assert estimate.fullest is not None
    return replace(analyses[estimate.fullest.number], estimate=estimate)
