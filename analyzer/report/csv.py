"""The estimate's course as one table, a row an event of the allocator. Sizes in bytes, after the event.

`kind` is "malloc", "free", or "mark" for the end of a named event ("0.forward"), which changes nothing, or
"wait" where the host waited for the device; a mark alone has `peak_bytes`, the peak of its iteration so far.
`phase` is the named event under way, `rule` the one that decided the size (`analyze explain`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean
from analyzer.results.estimate import Estimate

_BYTES = ("delta_bytes", "allocated_bytes", "reserved_bytes", "peak_bytes")
HEADER = ("index", "kind", "name", *_BYTES, "category", "phase", "rule")


def csv_text(header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table with its header line; texts as `clean` has them."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in ((*header,), *rows):
        writer.writerow([clean(value) if isinstance(value, str) else value for value in row])
    return stream.getvalue()


def csv_records(header: Sequence[str], records: Iterable[Mapping[str, Any]]) -> str:
    """Return a table with its header line; what a record lacks is empty."""
    return csv_text(header, ([record.get(name, "") for name in header] for record in records))


def render(estimate: Estimate, _: View = PLAIN) -> str:
    """Return the table, with its header line."""
    return csv_text(HEADER, _rows(estimate))


def _rows(estimate: Estimate) -> Iterator[tuple[Any, ...]]:
    line, marks = estimate.timeline, iter(estimate.marks)
    rules = line.rule or ("",) * len(line.label)
    rows = zip(
        line.label, line.delta, line.allocated, line.reserved, line.category, line.phase, rules, strict=True
    )
    for index, (label, delta, allocated, reserved, category, phase, rule) in enumerate(rows):
        kind = "free" if delta < 0 else "malloc" if category else "mark" if label else "wait"
        mark = next(marks, None) if kind == "mark" else None
        peak = "" if mark is None else mark.peak
        yield (index, kind, label, delta, allocated, reserved, peak, category, phase, rule)
