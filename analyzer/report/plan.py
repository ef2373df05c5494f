"""Curves and largest batches for a terminal, as JSON, CSV and a picture (SVG); `pages.py` has the pages.

Names come out of models and pass through `words.clean`; sizes are written by `words`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analyzer.report import speed
from analyzer.report.attribution import name_and_origin
from analyzer.report.columns import Column, table, within
from analyzer.report.csv import csv_text
from analyzer.report.formats import PLAIN, View
from analyzer.report.sentences import subject
from analyzer.report.verdicts import DISPLAY, displays, refusals, uncounted
from analyzer.report.words import clean, folded, mib, operator_name, percent, pieces, size

if TYPE_CHECKING:
    from analyzer.results.curve import Curve, Kink
    from analyzer.results.estimate import Estimate, OutOfMemory
    from analyzer.results.fit import Fit

LINES = ("peak_allocated", "peak_reserved", "device_used", "naive")
WORDS = {
    "peak_allocated": "allocated",
    "peak_reserved": "reserved",
    "device_used": "device",
    "naive": "naive sum",
}
# Ticks of the picture's axis.
_TICKS = 4
# Wording of a verdict on a device that was not measured.
_ASSUMING = {
    "fits": "fits, even with worst-case assumptions about {}",
    "may not fit": "may not fit: that depends on figures of {} that were not measured",
    "does not fit": "does not fit, even with best-case assumptions about {}",
}
# So many devices have their limits and notes behind the table; of more, --verbose shows them.
_MOST_DEVICES = 8
_MOST_ROWS = 24
_MOST_REASONS = 8


def curve_text(curve: Curve, view: View = PLAIN) -> str:
    """Return a picture, a table (long curves: evenly spaced rows), and where the curve bends."""
    lines = [about(curve.estimate), ""]
    if len(curve.rows) > 2:
        lines += [_picture(curve, view), ""]
    wide = view.width >= 8 + 17 * len(LINES)
    shown = [curve.rows[place] for place in _places(len(curve.rows))]
    lines += table(
        [
            Column("batch", 8 if wide else 7),
            *(
                Column(WORDS[name] + (" MiB" if wide else ""), 17 if wide else 11, int(name == "naive"))
                for name in LINES
            ),
        ],
        [[str(row.batch), *(mib(getattr(row, name)) for name in LINES)] for row in shown],
        view.width,
    )
    if not wide:
        lines.append("in MiB")
    if len(curve.rows) > _MOST_ROWS:
        lines.append(f"{_MOST_ROWS} of {len(curve.rows)} rows; --format csv has all")
    for slope in curve.slopes:
        lines.append(
            f"batch {slope.first} to {slope.last}: {slope.bytes_per_sample:,.0f} bytes of peak allocated a"
            " sample"
        )
    lines += kink_lines(curve.kinks)
    lines += _running(curve)
    lines += [f"batch {batch} failed: {clean(message)}" for batch, message in curve.failures.items()]
    captures = ", ".join(map(str, curve.captures[:8])) + (" ..." if len(curve.captures) > 8 else "")
    if all(row.batch in curve.captures for row in curve.rows):
        lines.append("each batch was captured by itself")
    else:
        lines.append(f"captured at batch {captures}; the other rows are evaluated, to the byte")
    picture = lines[2:3] if len(curve.rows) > 2 else []
    return (
        "\n".join([*within(lines[:2], view.width), *picture, *within(lines[2 + len(picture) :], view.width)])
        + "\n"
    )


def _running(curve: Curve) -> list[str]:
    """Return sentences on which rows run on the device, or within the budget, if given."""
    if any(row.fits is None for row in curve.rows):
        return []
    where = _where(curve.estimate)
    named, perhaps = (
        _spans([row.verdict == word for row in curve.rows], curve) for word in ("fits", "may not fit")
    )
    if curve.estimate.at_least:
        named, perhaps = _spans([bool(row.fits) for row in curve.rows], curve), ""
    if not named:
        return [f"batch {perhaps} of these may run {where}" if perhaps else f"none of them runs {where}"]
    if curve.estimate.at_least:
        return [
            f"batch {named} of these may run {where}: figures are at least what they take,"
            f" {uncounted(curve.estimate)}"
        ]
    if perhaps:
        return [
            f"batch {named} of these runs {where}, {perhaps} may (analyze fit says why); figures are those"
            " with room"
        ]
    if all(row.fits for row in curve.rows):
        return [f"all of them run {where}"]
    return [f"batch {named} of these runs {where}, the others do not; figures are those with room"]


def _spans(holds: Sequence[bool], curve: Curve) -> str:
    """Return the batches of the rows for which something holds, as spans; "" of none."""
    ranges: list[list[int]] = []
    for place, row in enumerate(curve.rows):
        if holds[place] and place and holds[place - 1]:
            ranges[-1][1] = row.batch
        elif holds[place]:
            ranges.append([row.batch, row.batch])
    return ", ".join(f"{low:,} to {high:,}" if low < high else f"{low:,}" for low, high in ranges)


def _where(estimate: Estimate) -> str:
    within = f" within {size(estimate.budget_bytes)}" if estimate.budget_bytes else ""
    return f"on {clean(estimate.device)}{within}"


def about(estimate: Estimate, device: bool = True) -> str:
    words = [word for word in subject(estimate) if not word.startswith(("batch ", "micro-batch "))]
    return " · ".join([*words, *([clean(estimate.device)] if device else [])])


def _places(count: int) -> list[int]:
    if count <= _MOST_ROWS:
        return list(range(count))
    return sorted({round(number * (count - 1) / (_MOST_ROWS - 1)) for number in range(_MOST_ROWS)})


def kink_lines(kinks: Sequence[Kink]) -> list[str]:
    """Return sentences on where the program changes, where the curve bends most and what the peak is there,
    and where else it bends."""
    others = [kink for kink in kinks if kink.reason]
    lines = [
        f"from batch {kink.after} on the program is another one: {clean(kink.reason)}"
        for kink in others[:_MOST_REASONS]
    ]
    if len(others) > _MOST_REASONS:
        lines.append(f"and {len(others) - _MOST_REASONS} times more; --format json has all")
    bends = [kink for kink in kinks if not kink.reason]
    explained = [kink for kink in bends if kink.peak_before[1] or kink.peak_after[1]]
    for kink in explained:
        lines.append(f"the curve bends between batch {kink.before} and {kink.after}")
        for side, (event, tensors) in (("before", kink.peak_before), ("after", kink.peak_after)):
            shown = ", ".join(f"{size(row.nbytes)} {name_and_origin(row)[0]}" for row in tensors)
            lines.append(f"  peak {side}, in {clean(event)}: {shown}")
    if less := [f"{kink.before} and {kink.after}" for kink in bends if kink not in explained]:
        lines.append(f"{'it bends less' if explained else 'the curve bends'} between batch {', '.join(less)}")
    return lines


def _picture(curve: Curve, view: View) -> str:
    """Return the four lines over the batch, drawn with characters."""
    import plotext

    plotext.clear_figure()
    plotext.plotsize(view.width, 16)
    batches = [row.batch for row in curve.rows]
    for name in LINES:
        gib = [getattr(row, name) / 2**30 for row in curve.rows]
        # Without colors the lines are told apart by what they are drawn with: their first letter.
        plotext.plot(batches, gib, label=WORDS[name], marker=None if view.color else WORDS[name][0])
    span = batches[-1] - batches[0]
    plotext.xticks(sorted({batches[0] + span * part // _TICKS for part in range(_TICKS + 1)}))
    plotext.xlabel("batch")
    plotext.ylabel("GiB")
    if not view.color:
        plotext.clear_color()
    drawn = plotext.build()
    text = drawn if view.color else plotext.uncolorize(drawn)
    return "\n".join(line.rstrip() for line in text.splitlines())


def curve_json(curve: Curve, _: View = PLAIN) -> str:
    """Return the curve as JSON, without the estimate behind the last row."""
    document = {
        "schema": 1,
        "target": curve.estimate.target,
        "device": curve.estimate.device,
        "mode": curve.estimate.mode,
        "options": dict(curve.estimate.options),
        "rows": [dataclasses.asdict(row) for row in curve.rows],
        "failures": [{"batch": batch, "error": message} for batch, message in curve.failures.items()],
        "slopes": [dataclasses.asdict(slope) for slope in curve.slopes],
        "kinks": [dataclasses.asdict(kink) for kink in curve.kinks],
        "captures": list(curve.captures),
    }
    return json.dumps(document, indent=1) + "\n"


def curve_csv(curve: Curve, _: View = PLAIN) -> str:
    """Return a CSV with one row for each batch, in bytes."""
    rows = ((row.batch, *(getattr(row, name) for name in LINES)) for row in curve.rows)
    return csv_text(("batch", *LINES), rows)


def fits_text(fits: Sequence[Fit], view: View = PLAIN) -> str:
    """Return the verdict, what fails beyond it and why; for several devices a table first."""
    lines: list[str] = []
    if len(fits) > 1:
        what = fits[0].what
        longest = max(
            (len(clean(known_of(fit).device)) for fit in fits if known_of(fit) is not None), default=0
        )
        columns = [Column("device", max(longest + 1, 14), least=13), Column(what, max(len(what) + 2, 8))]
        columns += [Column("limit MiB", 14, rank=1), Column("headroom MiB", 15)]
        columns += [Column("step", 9, rank=2), Column("samples/s", 11, rank=3)]
        in_doubt = any(fit.perhaps for fit in fits)
        if in_doubt:
            columns[2:2] = [Column("at best", 9)]
        rows = []
        for fit in fits:
            name = clean(known_of(fit).device) if known_of(fit) is not None else "-"
            room = mib(fit.headroom) if fit.batch else "-"
            times = ["-", "-"] if fit.brief is None else [speed.step(fit.brief), speed.rate(fit.brief)]
            most = [str(max(fit.batch, fit.perhaps))] if in_doubt else []
            rows.append([name, str(fit.batch), *most, mib(fit.limit), room, *times])
        lines += [*table(columns, rows, view.width), *_without_tf32(fits), ""]
    if len(fits) > _MOST_DEVICES and not view.verbose:
        lines += ["limits and notes of one: --device NAME; of all: --verbose", ""]
        fits = ()
    for fit in fits:
        lines += [*fit_lines(fit, view.verbose), ""]
    return "\n".join(within(lines[:-1], view.width)) + "\n"


def _without_tf32(fits: Sequence[Fit]) -> list[str]:
    """Return a line on GPUs' speeds where products in float32 take a fifth of a step or more: data
    sheets order GPUs otherwise with tensor cores."""
    shown = [fit.brief for fit in fits if fit.brief is not None]
    slow = [
        one
        for one in shown
        if (time := one.step_seconds) is not None and 5 * time.float32_seconds > time.device_seconds
    ]
    if slow and any(one.options.get("amp") or one.options.get("dtype") for one in slow):
        named = ", ".join(clean(one.device) for one in slow[:_MOST_DEVICES])
        more = f" and {len(slow) - _MOST_DEVICES} more" if len(slow) > _MOST_DEVICES else ""
        return [f"samples/s: much of a step is products that stay in float32, without TF32 ({named}{more})"]
    if slow:
        return ["samples/s: in float32 without TF32, as it runs; with TF32 or bf16 the order differs"]
    return []


def known_of(fit: Fit) -> Any:
    """Return figures of the answer without what lies where, or those of the batch that fails."""
    return fit.brief if fit.brief is not None else fit.beyond


def fit_lines(fit: Fit, verbose: bool = False) -> list[str]:
    estimate = known_of(fit)
    where = _where(estimate) if fit.device_bound else f"with {size(fit.limit)} for the allocator"
    what = fit.what
    if fit.brief is None:
        sure = not fit.perhaps and (fit.beyond is None or not fit.beyond.doubt)
        none = f"no {what} surely runs {where}" if not sure else f"not even one sample runs {where}"
        lines = [f"{what} 1 does not fit {where}" if sure and fit.option else none]
        if fit.perhaps:
            lines[0] += f"; up to {fit.perhaps:,} may"
    else:
        best = f"{'greatest' if what == 'length' else 'largest'} {what} {fit.batch:,}"
        best = f"if it ran: {best}" if estimate.refused else best
        lines = [
            f"{best} {where}{f' surely, {fit.perhaps:,} at best' if fit.perhaps else ''}:"
            f" {size(fit.brief.peak_reserved)} of {size(fit.limit)} held, "
            f"headroom {size(fit.headroom)} ({percent(fit.headroom, fit.limit)})"
        ]
    if fit.brief is not None and fit.device_bound and displays(fit.brief, fit.headroom):
        lines.append(DISPLAY)
    if fit.samples is not None:
        lines[0] += f", {fit.samples:,} {'sample' if fit.samples == 1 else 'samples'}"
    lines[:0] = refusals(estimate)
    lines.append(about(estimate))
    if estimate.certainty.assumed and not estimate.doubt:
        least, most = fit.reserved_range
        held = (
            f"{size(least)} held"
            if size(least) == size(most)
            else f"between {size(least)} and {size(most)} held"
        )
        lines.append(f"{_ASSUMING[fit.verdict].format(clean(estimate.device))}; {held}")
    if fit.brief is not None and (sentence := speed.line(fit.brief)):
        lines.append(f"at that {what} {sentence}")
    if fit.brief is not None and fit.brief.at_least:
        lines.append(f"may not fit: figures are at least what it takes, {uncounted(fit.brief)}")
    if fit.refused:
        lines.append(f"at {what} {fit.fails:,} the program itself fails: {clean(fit.refused)}")
    elif fit.failure is not None:
        word = fit.beyond_verdict or "does not fit"
        lines += _failure(f"{what} {fit.fails or fit.batch + 1:,} {word}", fit.failure)
    elif fit.beyond is not None and fit.beyond.doubt:
        lines.append(f"{what} {fit.fails or fit.batch + 1:,} may not fit: {clean(fit.beyond.doubt)}")
    elif fit.beyond is not None and not fit.beyond.fits():
        lines.append(
            f"{what} {fit.fails or fit.batch + 1:,} needs {size(fit.beyond.device_used)} of"
            f" {size(fit.beyond.allowed_bytes)} device memory{': ' if fit.growth else ''}{clean(fit.growth)}"
        )
    else:
        lines.append(f"it runs; no {what} above that was tried")
    if fit.gaps:
        lines.append(f"fragmentation: {_counted(fit.gaps)} below it would not run")
    # Those right above the answer, up to the one that fails, have a note that says why they are not it.
    islands = [size for size in fit.also if size >= fit.fails]
    if islands and estimate.runtime != "pytorch":
        ends = " to ".join(f"{end:,}" for end in dict.fromkeys((islands[0], islands[-1])))
        lines.append(f"larger ones run too, though not all above it: {ends}")
    elif islands:
        lines.append(f"fragmentation: {_counted(islands)} above it would run too, those in between not")
    notes = [note for note in fit.notes if note not in estimate.refused]
    lines += [f"- {clean(note)}" for note in folded(notes, verbose)]
    return lines


def _counted(batches: Sequence[int]) -> str:
    """Return one batch by its number, several by how many they are and the ends of their range."""
    if len(batches) == 1:
        return f"batch {batches[0]:,}"
    return f"{len(batches):,} batches between {batches[0]:,} and {batches[-1]:,}"


def _failure(verdict: str, failed: OutOfMemory) -> list[str]:
    """Return two lines on the request that found no room: what, where, and what was free. verdict: of which
    size."""
    what = operator_name(failed.operator) or clean(failed.label)
    where = ", ".join(filter(None, (clean(failed.module), clean(failed.source))))
    parts = f"{pieces(failed.free_count)}, the largest {size(failed.largest_free_bytes)}"
    return [
        f"{verdict}: no memory for {size(failed.requested_bytes)} of {what}"
        + (f" ({where})" if where else "")
        + f", in {clean(failed.phase) or 'the end'}",
        f"  {size(failed.allocated_bytes)} in use, {size(failed.reserved_bytes)} of"
        f" {size(failed.limit_bytes)} held; {size(failed.free_bytes)} free in {parts}",
    ]


def fits_json(fits: Sequence[Fit], _: View = PLAIN) -> str:
    """Return the answers with the estimates' figures."""
    entries = []
    for fit in fits:
        estimate = known_of(fit)
        failed = fit.failure
        entries.append(
            {
                "target": estimate.target,
                "device": estimate.device,
                "batch": fit.batch,
                "perhaps": max(fit.batch, fit.perhaps),
                "samples": fit.samples,
                "option": fit.option,
                "limit_bytes": fit.limit,
                "device_bound": fit.device_bound,
                "headroom_bytes": fit.headroom,
                "verdict": fit.verdict,
                "reserved_range": list(fit.reserved_range),
                "peak_allocated": fit.brief.peak_allocated if fit.brief else None,
                "peak_reserved": fit.brief.peak_reserved if fit.brief else None,
                **speed.fields(fit.brief),
                "also": list(fit.also),
                "gaps": list(fit.gaps),
                "beyond": dataclasses.asdict(failed) if failed else None,
                "notes": list(fit.notes),
            }
        )
    return json.dumps({"schema": 1, "fits": entries}, indent=1) + "\n"
