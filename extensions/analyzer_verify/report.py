"""A `Verification` as text (the figures side by side, the events that differ, where the histories part) and
as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from analyzer import releases
from analyzer.report.columns import Column, table, within
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean, size, tail, unit
from analyzer_verify.results import Verification

_EVENTS_SHOWN = 12
NAIVE = "naive sum"  # which predicts no runtime's figure
_ENVIRONMENT = ("emulated", "gpu", "driver", "torch", "cuda", "cudnn", "onnxruntime", "python")


def render(verification: Verification, view: View = PLAIN) -> str:
    """Return the report, ending with a newline; plain text within the view's columns."""
    words = [
        clean(verification.target),
        verification.runtime,
        {"infer": "inference", "train": "training"}[verification.mode],
    ]
    if verification.batch is not None:
        words.append(f"batch {verification.batch:,}")
    if verification.optimizer:
        words.append(clean(verification.optimizer))
    parts = [" · ".join(words), ""]
    parts += _figures(verification, view.width)
    if verification.out_of_memory is not None:
        parts += ["", *_out_of_memory(verification)]
    parts += ["", *_events(verification, view.width)]
    if verification.history is not None:
        parts += ["", *_history(verification)]
    environment = verification.environment
    parts += [
        "",
        "Environment: "
        + ", ".join(f"{name} {clean(environment[name])}" for name in _ENVIRONMENT if name in environment),
    ]
    if verification.modelled:
        parts.append(f"Predicted for: {clean(releases.line(verification.modelled, {}))}")
    parts += [f"Note: {clean(note)}" for note in verification.notes]
    return "\n".join(within(parts, view.width)) + "\n"


def render_json(verification: Verification, _: View = PLAIN) -> str:
    """Return the same as JSON, every event and both sequences of requests included, errors in percent."""
    return json.dumps(verification.to_dict(), indent=1) + "\n"


def known(verification: Verification) -> str:
    """Return how the figures beside the predicted ones are known."""
    return "emulated" if "emulated" in verification.environment else "measured"


def _narrowed(columns: list[Column], rows: list[list[str]], width: int) -> list[str]:
    """Return the table with its usual columns, or with those as narrow as their contents."""
    if sum(column.width for column in columns) > width:
        cells = [[column.title for column in columns], *rows]
        longest = [max(len(row[place]) for row in cells) for place in range(len(columns))]
        columns = [replace(column, width=most + 1) for column, most in zip(columns, longest, strict=True)]
    return table(columns, rows, width)


def _figures(verification: Verification, width: int) -> list[str]:
    """Return the table of predicted beside measured (or emulated) figures."""
    every = [value for figure in verification.figures for value in (figure.predicted, figure.measured)]
    shown_as, write = unit(value for value in every if value is not None)
    columns = [
        Column(shown_as, 15, least=9),
        Column("predicted", 14),
        Column(known(verification), 15),
        Column("error", 11),
    ]
    rows = []
    for figure in verification.figures:
        predicted = "-" if figure.predicted is None else write(figure.predicted)
        measured = "-" if figure.measured is None else write(figure.measured)
        error = figure.error_percent
        shown = (
            "-" if error is None else "exact" if figure.predicted == figure.measured else f"{error:+.2f} %"
        )
        rows.append([figure.name, predicted, measured, shown])
    return _narrowed(columns, rows, width)


def _out_of_memory(verification: Verification) -> list[str]:
    """Return where the real run ran out of memory, beside what was predicted there."""
    failed = verification.out_of_memory
    assert failed is not None
    lines = [
        f"Out of memory after {clean(failed.after)}: {size(failed.allocated)} allocated,"
        f" {size(failed.reserved)} reserved.",
        f"  {clean(failed.message)}",
    ]
    if failed.predicted_allocated is not None and failed.predicted_reserved is not None:
        lines.append(
            f"  predicted there: {size(failed.predicted_allocated)} allocated at the peak, "
            f"{size(failed.predicted_reserved)} reserved"
        )
    return lines


def _events(verification: Verification, width: int) -> list[str]:
    """Return how many events' figures are exact, and a table of the others."""
    wrong = [mark for mark in verification.marks if not mark.same]
    count = len(verification.marks)
    if not count:
        return ["Events: none to compare."]
    if not wrong:
        return [f"Events: all {count} exact, allocated and reserved."]
    columns = [
        Column("  event", 19, least=11),
        Column("allocated", 18, rank=2),
        Column("difference", 15),
        Column("reserved", 19, rank=3),
        Column("difference", 15, rank=1),
    ]
    rows = [
        [
            f"  {clean(mark.event)}",
            f"{mark.measured_allocated:,}",
            f"{mark.predicted_allocated - mark.measured_allocated:+,}",
            f"{mark.measured_reserved:,}",
            f"{mark.predicted_reserved - mark.measured_reserved:+,}",
        ]
        for mark in wrong[:_EVENTS_SHOWN]
    ]
    lines = [
        f"Events: {count - len(wrong)} of {count} exact; the others, in bytes (predicted - measured):",
        *_narrowed(columns, rows, width),
    ]
    if len(wrong) > _EVENTS_SHOWN:
        lines.append(f"  and {len(wrong) - _EVENTS_SHOWN} more (--format json lists all)")
    return lines


def _history(verification: Verification) -> list[str]:
    """Return how many requests agree in order, and the first that differs."""
    history = verification.history
    assert history is not None
    if history.first is None:
        return [
            f"History: all {history.recorded_count:,} requests and every return were predicted, in order."
        ]
    first = history.first
    where = ", ".join(
        filter(None, (clean(first.operator), clean(tail(first.module, 40)), clean(first.source)))
    )
    lines = [
        f"History: {first.request:,} of {history.recorded_count:,} requests agree; then, during"
        f" {clean(first.event) or 'the end'}" + (f" ({where})" if where else "") + ":",
        f"  {clean(first.what)}",
    ]
    for words, sizes in (
        ("recorded, not predicted", history.missing),
        ("predicted, not recorded", history.extra),
    ):
        if sizes:
            lines.append(
                f"  {words}: "
                + ", ".join(f"{count:,} x {nbytes:,} B" for nbytes, count in list(sizes.items())[:4])
            )
    return lines
