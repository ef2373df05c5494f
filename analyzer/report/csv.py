"""The estimate's course as one table: a row an allocation event, then a row a mark. Sizes in bytes.

`kind` is "event" or "mark"; a mark is the state when a named event ("0.forward") is over and has no delta.
"""

from __future__ import annotations

import csv
import io

from analyzer.estimate import Estimate
from analyzer.report.words import clean

HEADER = (
    "kind",
    "index",
    "name",
    "delta_bytes",
    "allocated_bytes",
    "reserved_bytes",
    "peak_bytes",
    "category",
    "phase",
)


def render(estimate: Estimate) -> str:
    """The table, with its header line."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(HEADER)
    line, peak = estimate.timeline, 0
    rows = zip(line.label, line.delta, line.allocated, line.reserved, line.category, line.phase, strict=True)
    for index, (label, delta, allocated, reserved, category, phase) in enumerate(rows):
        peak = max(peak, allocated)
        writer.writerow(
            ("event", index, clean(label), delta, allocated, reserved, peak, clean(category), clean(phase))
        )
    for index, mark in enumerate(estimate.marks):
        writer.writerow(
            ("mark", index, clean(mark.event), "", mark.allocated, mark.reserved, mark.peak, "", "")
        )
    return stream.getvalue()
