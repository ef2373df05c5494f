"""A `Verification` as text (the figures side by side, the events that differ, where the histories part) and as JSON."""

from __future__ import annotations

import json

from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean, size, tail, unit
from analyzer.verification import Verification

_EVENTS_SHOWN = 12
_ENVIRONMENT = ("gpu", "driver", "torch", "cuda", "cudnn", "onnxruntime", "python")


def render(verification: Verification, _: View = PLAIN) -> str:
    """The report, ending with a newline; plain text in at most 80 columns but for names and notes."""
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
    parts += _figures(verification)
    if verification.out_of_memory is not None:
        parts += ["", *_out_of_memory(verification)]
    parts += ["", *_events(verification)]
    if verification.history is not None:
        parts += ["", *_history(verification)]
    known = verification.environment
    parts += [
        "",
        "Environment: " + ", ".join(f"{name} {clean(known[name])}" for name in _ENVIRONMENT if name in known),
    ]
    parts += [f"Note: {clean(note)}" for note in verification.notes]
    return "\n".join(parts) + "\n"


def render_json(verification: Verification, _: View = PLAIN) -> str:
    """The same as JSON, every event and both sequences of requests included, errors in percent."""
    return json.dumps(verification.to_dict(), indent=1) + "\n"


def _figures(verification: Verification) -> list[str]:
    every = [value for figure in verification.figures for value in (figure.predicted, figure.measured)]
    shown_as, write = unit(value for value in every if value is not None)
    lines = [f"{shown_as:<14} {'predicted':>14} {'measured':>14} {'error':>10}"]
    for figure in verification.figures:
        predicted = "-" if figure.predicted is None else write(figure.predicted)
        measured = "-" if figure.measured is None else write(figure.measured)
        error = figure.error_percent
        shown = (
            "-" if error is None else "exact" if figure.predicted == figure.measured else f"{error:+.2f} %"
        )
        lines.append(f"{figure.name:<14} {predicted:>14} {measured:>14} {shown:>10}")
    return lines


def _out_of_memory(verification: Verification) -> list[str]:
    failed = verification.out_of_memory
    assert failed is not None
    lines = [
        f"Out of memory after {clean(failed.after)}: {size(failed.allocated)} allocated, {size(failed.reserved)} reserved.",
        f"  {clean(failed.message)}",
    ]
    if failed.predicted_allocated is not None and failed.predicted_reserved is not None:
        lines.append(
            f"  predicted there: {size(failed.predicted_allocated)} allocated at the peak, "
            f"{size(failed.predicted_reserved)} reserved"
        )
    return lines


def _events(verification: Verification) -> list[str]:
    wrong = [mark for mark in verification.marks if not mark.same]
    count = len(verification.marks)
    if not count:
        return ["Events: none to compare."]
    if not wrong:
        return [f"Events: all {count} exact, allocated and reserved."]
    lines = [
        f"Events: {count - len(wrong)} of {count} exact; the others, in bytes (predicted - measured):",
        f"  {'event':<16} {'allocated':>18} {'difference':>14} {'reserved':>18} {'difference':>14}",
    ]
    lines += [
        f"  {clean(mark.event):<16} {mark.measured_allocated:>18,} {mark.predicted_allocated - mark.measured_allocated:>+14,} "
        f"{mark.measured_reserved:>18,} {mark.predicted_reserved - mark.measured_reserved:>+14,}"
        for mark in wrong[:_EVENTS_SHOWN]
    ]
    if len(wrong) > _EVENTS_SHOWN:
        lines.append(f"  and {len(wrong) - _EVENTS_SHOWN} more (--format json lists all)")
    return lines


def _history(verification: Verification) -> list[str]:
    found = verification.history
    assert found is not None
    if found.first is None:
        return [f"History: all {found.recorded_count:,} requests and every return were predicted, in order."]
    first = found.first
    where = ", ".join(
        filter(None, (clean(first.operator), clean(tail(first.module, 40)), clean(first.source)))
    )
    lines = [
        f"History: {first.request:,} of {found.recorded_count:,} requests agree; then, during {clean(first.event) or 'the end'}"
        + (f" ({where})" if where else "")
        + ":",
        f"  {clean(first.what)}",
    ]
    for words, sizes in (
        ("recorded, not predicted", found.missing),
        ("predicted, not recorded", found.extra),
    ):
        if sizes:
            lines.append(
                f"  {words}: "
                + ", ".join(f"{count:,} x {nbytes:,} B" for nbytes, count in list(sizes.items())[:4])
            )
    return lines
