"""The estimate as one self-contained page: verdict, timeline, derivation of the figures, live set.

1. Verdict, figures, largest tensors, notes are markup; the timeline and the live set of any moment, with its
   holders and addresses, are drawn from the data block by `assets/timeline.js` and `assets/live.js`.
2. The data is the estimate's own (`view_data`), column by column: the page shows nothing that `--format
   json` lacks.
3. Nothing is shown twice: the table of the largest tensors is for browsers without scripts, and for print.
4. The steps from the naive sum to the device's memory are differences of the estimate's figures; none is
   computed anew.
"""

from __future__ import annotations

from typing import Any

from analyzer.report import attribution, moments, page, palette, sentences
from analyzer.report.formats import PLAIN, View
from analyzer.report.speed import number
from analyzer.report.verdicts import verdicts
from analyzer.report.words import clean, duration, folded, operator_name, percent, size, span
from analyzer.results.estimate import Estimate

_LONGEST_NAME = 10_000
# Lines `charts.js` can tell apart: its colours, whole and dashed.
_COLORS = len(palette.LINES)
_TIMELINE_BUTTONS = {
    "peak": "peak",
    "in": "zoom in",
    "out": "zoom out",
    "all": "all",
    "limit": "device's limit",
}  # data-act, which `timeline.js` reads: words
_RANKS_DRAWN = 2 * _COLORS
# Names of each kind that the step's time is shown of.
_TIMED = 8


def render(estimate: Estimate, view: View = PLAIN, besides: str = "") -> str:
    """Return the estimate as one self-contained HTML page. besides: HTML above its course."""
    body = [
        *(page.verdict(holds, sentence) for holds, sentence in verdicts(estimate, view.budget_bytes)),
        *(page.verdict(False, message) for message in estimate.caveats),
        page.paragraph(f"device: {estimate.device_note}" if estimate.device_note else "", "dim"),
        besides,
        course(estimate, 0, between="\n".join(_figures(estimate, view))),
        *ranks(estimate),
        *_time(estimate),
        *_tables(estimate, view),
        *([page.heading("How sure"), *_certainty(estimate)] if estimate.engine != "recording" else []),
        page.heading("Notes") if sentences.other_notes(estimate) else "",
        page.items(folded(sentences.other_notes(estimate), view.verbose)),
    ]
    data: dict[str, Any] = {"views": [view_data(estimate)]}
    scripts: tuple[str, ...] = page.TIMELINE
    if estimate.ranks:
        data["charts"] = [_rank_lines(estimate)]
        scripts = (*scripts, "charts.js")
    return page.render(" · ".join(sentences.subject(estimate)), "\n".join(filter(None, body)), data, scripts)


def _figures(estimate: Estimate, view: View) -> list[str]:
    """Return HTML for the estimates, how they follow from one another, and the peak's categories."""
    return [
        page.heading("How the figures come about"),
        steps(estimate),
        page.paragraph(sentences.naive_terms(estimate), "dim"),
        page.heading(f"At the peak{f' ({place})' if (place := sentences.peak_place(estimate)) else ''}"),
        _breakdown(estimate),
        *(page.paragraph(line, "dim") for line in sentences.own_memory(estimate)),
        page.paragraph(attribution.unread(estimate), "dim"),
        page.paragraph(sentences.growing(estimate) if estimate.out_of_memory is not None else "", "dim"),
        page.paragraph(sentences.fragmented(estimate), "dim"),
        page.heading("It fits with any of these, each followed") if estimate.remedies else "",
        *(page.paragraph(sentence) + page.code(typed) for sentence, typed in sentences.remedies(estimate)),
        page.heading("Of other changes") if estimate.attempts else "",
        *(page.paragraph(sentence) + page.code(typed) for sentence, typed in sentences.attempts(estimate)),
        *_holders(estimate, view),
    ]


def _time(estimate: Estimate) -> list[str]:
    """Return HTML for a step's time, and its largest phases, modules and lines."""
    time = estimate.step_seconds
    if time is None:
        return []
    speed = estimate.samples_per_second
    rows: list[tuple[str, ...]] = []
    for kind, sums in (("phase", time.by_phase), ("module", time.by_module), ("line", time.by_line)):
        for name, seconds in list(sums.items())[:_TIMED]:
            share = f"{100 * seconds / time.device_seconds:.1f} %"
            rows.append((kind, page.name(name or "(top level)"), duration(seconds), share))
    rate = ""
    if speed is not None:
        about, least, most = map(number, speed)
        rate = f"samples a second: about {about} ({span(least, most)})"
    return [
        page.heading("Time of a step"),
        page.paragraph(sentences.step_line(estimate)),
        page.paragraph(rate),
        page.folded(
            "Where the device's time goes",
            page.table(("by", "name", "device time", "of it"), rows, (2, 3), "cards"),
            False,
        ),
    ]


def _holders(estimate: Estimate, view: View) -> list[str]:
    """Return HTML for the largest tensors at the peak with who holds each, nearest first."""
    rows = [row for row in estimate.top(view.top) if row.path]
    if not rows:
        return []
    sentence = (
        (
            size(row.nbytes),
            page.name(attribution.name_and_origin(row)[0]),
            *(page.name(", ".join(part)) for part in parts),
        )
        for row in rows
        for parts in ((row.path[:1], row.path[1:]),)
    )
    return [
        page.heading("Holders at the peak"),
        page.table(("size", "tensor or module", "held by", "for, or until"), sentence, (0,), "cards"),
    ]


def ranks(estimate: Estimate) -> list[str]:
    """Return HTML for every rank of a job: the timelines together, and each rank's figures."""
    if not estimate.ranks:
        return []
    rows = (
        (
            str(rank.rank),
            size(rank.peak_allocated),
            size(rank.peak_reserved),
            size(rank.device_used),
            "out of memory" if rank.out_of_memory else "",
        )
        for rank in estimate.ranks
    )
    return [
        page.heading("Ranks"),
        page.paragraph("Bytes in use, each rank from its first event to its last.", "dim"),
        page.chart(0, "bytes in use on every rank, over one another"),
        page.table(("rank", "peak allocated", "reserved", "device", ""), rows, (0, 1, 2, 3)),
    ]


def _rank_lines(estimate: Estimate) -> dict[str, Any]:
    """Return the first ranks' courses, as `charts.js` draws lines."""
    shown = [rank for rank in estimate.ranks[:_RANKS_DRAWN] if rank.course]
    parts = max((len(rank.course) for rank in shown), default=0)
    return {
        "x": "% of its events",
        "values": [round(100 * (part + 1) / parts, 1) for part in range(parts)],
        "limit": max(estimate.usable_bytes - (estimate.device_used - estimate.peak_reserved), 0),
        "lines": [
            {"name": f"rank {rank.rank}", "values": rank.course, "dashed": place >= _COLORS}
            for place, rank in enumerate(shown)
        ],
    }


def steps(estimate: Estimate) -> str:
    """Return HTML for the steps from the naive sum to device memory, one row each."""
    rounding = estimate.peak_allocated - estimate.peak_requested
    own = sum(estimate.breakdown.get(name, 0) for name in ("scratch", "workspace"))
    levels = sentences.estimate_rows(estimate)
    whys: tuple[str, ...] = (
        f"{levels[0][2]}: every layer's output once, weights, in training gradients and moments",
        "what is alive together: outputs that are never alive at once do not add up; what autograd keeps"
        f" besides outputs does ({size(estimate.saved_for_backward)} kept for backward)",
        f"the runtime frees when it does, and takes for itself: {size(own)} scratch and workspace at the"
        f" peak, {size(rounding)} rounding",
        "the allocator takes memory in segments and keeps them: what is cached, and holes nothing fits into",
        "the CUDA context and the code of libraries, loaded when first used",
    )
    if estimate.engine == "recording":  # which says nothing of what lies beside the allocator
        whys = whys[:-1]
    most = max(*(nbytes for _, nbytes, _ in levels), 1)
    rows = []
    before = 0
    # The first two are not known of every program.
    for place, ((name, nbytes, _), why) in enumerate(zip(levels, whys[-len(levels) :], strict=True)):
        change = "" if place == 0 else f"{'+' if nbytes >= before else ''}{size(nbytes - before)}"
        low, high = (0, nbytes) if place == 0 else sorted((before, nbytes))
        rows.append(
            (
                page.text(name),
                f"{nbytes:,}",
                page.text(size(nbytes)),
                page.text(change),
                page.bar(nbytes, most, low, high),
                page.text(why),
            )
        )
        before = nbytes
    heads = ("estimate", "bytes", "", "step", "", "")
    return page.table(heads, rows, (1, 2, 3), "cards")


def course(estimate: Estimate, number: int, title: str = "", between: str = "") -> str:
    """Return HTML for the timeline and live set of view `number`, with controls. between: HTML in between."""
    if not estimate.timeline.delta:
        return between
    whose = f"{title}: " if title else ""
    first = _first_kind(estimate)
    kinds = "".join(
        f'<option value="{kind}"{" selected" if kind == first else ""}>{kind}</option>'
        for kind in attribution.KINDS[:4]
    )
    kept = (
        ""
        if estimate.allocations.born
        else page.paragraph(
            "This estimate was saved before it kept every block: no live sets. Make it again to see them.",
            "dim",
        )
    )
    course = page.paragraph(
        "Bytes in use after each event of the allocator, by category; the lines are allocated and reserved.",
        "dim",
    )
    keys = page.paragraph(
        "Drag to zoom, double-click for all; click a moment to see what is alive then. By keyboard: arrows "
        "(shift: further), Enter, + and -, 0 for all, p for the peak.",
        "dim hint",
    )
    buttons = "".join(
        f'<button type="button" data-act="{act}">{words}</button>'
        for act, words in _TIMELINE_BUTTONS.items()
        if act != "limit" or _limit(estimate) is not None
    )
    return f"""<section class="view" data-view="{number}">
{page.heading(f"{whose}Course")}
{course}
{kept}<div class="legend"></div>
<div class="plot timeline" tabindex="0" role="group"
 aria-label="course of allocated and reserved bytes; arrow keys move, Enter chooses a moment"></div>
<div class="controls">{buttons}</div>
<p class="readout" aria-live="polite"></p>
{keys}
{between}
{page.heading(f"{whose}In use")}
<p class="moment"></p>
<div class="controls"><label>by <select class="by">{kinds}</select></label><span
 class="trail controls"></span></div>
<div class="icicle" role="group" aria-label="bytes in use, from the outside in"></div>
{page.heading(f"{whose}Segments and blocks")}
<p class="held"></p>
<div class="segments"></div>
{page.heading(f"{whose}Tensors in use")}
<div class="controls"><input class="search" type="search" placeholder="search names, shapes, lines"
 aria-label="search tensors"><span class="count dim" aria-live="polite"></span></div>
<div class="tensors"></div>
</section>"""


def _first_kind(estimate: Estimate) -> str:
    """Return by what the bytes in use are divided at first: a recording knows lines and no modules."""
    origins = estimate.allocations.origins
    has_modules = any(attribution.path(origin, "module", estimate.framework) for origin in origins)
    return "line" if not has_modules and any(origin.source for origin in origins) else "module"


def _limit(estimate: Estimate) -> int | None:
    """Return the bytes the allocator has room for; None where a recording says nothing of that."""
    if estimate.engine == "recording" and estimate.device_assumed:
        return None
    return max(estimate.usable_bytes - (estimate.device_used - estimate.peak_reserved), 0)


def view_data(estimate: Estimate) -> dict[str, Any]:
    """Return what the scripts draw of an estimate: columns of numbers, with each name stored once."""
    line, blocks = estimate.timeline, estimate.allocations
    used = {origin.category for origin in blocks.origins}
    categories = [name for name in palette.CATEGORIES if name in used]
    categories += sorted(used - {*palette.CATEGORIES})
    phases = list(dict.fromkeys(line.phase))
    places = {name: place for place, name in enumerate(phases)}
    return {
        "device": clean(estimate.device),
        "limit": _limit(estimate),
        "allocated": line.allocated,
        "reserved": line.reserved,
        "phases": [_name(name) for name in phases],
        "phase": [places[name] for name in line.phase],
        "numbers": moments.numbers(estimate),
        "marks": [(event, _name(name)) for event, name in moments.named(estimate)],
        "iterations": moments.iterations(estimate),
        "peakEvent": estimate.peak_event,
        "categories": [_name(name) for name in categories],
        # The same category has the same colour in every page.
        "colors": [palette.category(name) for name in categories],
        "blocks": {
            "born": blocks.born,
            "died": blocks.died,
            "nbytes": blocks.nbytes,
            "requested": blocks.requested,
            "address": blocks.address,
            "origin": blocks.origin,
        },
        "origins": [
            {
                "name": _name(operator_name(origin.name)),
                "category": categories.index(origin.category),
                "shape": "x".join(map(str, origin.shape)),
                "dtype": _name(origin.dtype),
                "operator": _name(operator_name(origin.operator)),
                "path": [_name(part) for part in attribution.path(origin, "module", estimate.framework)],
                "source": _name(origin.source),
                "phase": _name(origin.phase),
                "rule": _name(origin.rule),
            }
            for origin in blocks.origins
        ],
        "segments": [(s.address, s.nbytes, s.born, s.died) for s in estimate.segments],
    }


def _name(untrusted: str) -> str:
    return clean(untrusted)[:_LONGEST_NAME]


def _breakdown(estimate: Estimate) -> str:
    rows = sentences.breakdown_rows(estimate)
    most = rows[0][1] if rows else 1
    return page.table(
        ("category", "", "", ""),
        (
            (
                page.text(name),
                page.bar(nbytes, most, 0, nbytes),
                size(nbytes),
                percent(nbytes, estimate.peak_allocated),
            )
            for name, nbytes in rows
        ),
        (2, 3),
    )


def _tables(estimate: Estimate, view: View) -> list[str]:
    """Return the largest tensors, equal ones in a row, and the named events."""
    tensors = (
        (
            size(row.nbytes),
            page.name(attribution.shape_and_type(row)),
            page.text(", ".join(filter(None, (row.category, row.phase)))),
            *(page.name(word) for word in (*attribution.counted(row, count), row.rule)),
        )
        for row, count in attribution.grouped(estimate.tensors)[: view.top]
    )
    events = (
        (page.text(mark.event), size(mark.allocated), size(mark.peak), size(mark.reserved))
        for mark in sentences.marks_so_far(estimate)
    )
    left = [(page.text(name), *map(size, figures)) for name, *figures in sentences.rows_after_runs(estimate)]
    gpus = [(page.text(name), *map(size, figures)) for name, *figures in sentences.rows_of_devices(estimate)]
    headings = (
        sentences.size_heading(estimate),
        "shape, type",
        "category, phase",
        "tensor or module",
        "operator, line",
        "rule",
    )
    largest = (page.heading("Largest tensors at the peak"), page.table(headings, tensors, (0,), "cards"))
    return [
        *(
            (
                page.heading("Each GPU"),
                page.table(("GPU", "allocated", "reserved", "of the device"), gpus, (1, 2, 3)),
            )
            if gpus
            else ()
        ),
        *(largest if estimate.tensors and view.top else ()),
        *(
            (
                page.heading("Named events"),
                page.table(("after", "allocated", "peak so far", "reserved"), events, (1, 2, 3)),
            )
            if estimate.marks
            else ()
        ),
        *(
            (
                page.heading("After each run"),
                page.table(("after", "in use", "held", "of the device"), left, (1, 2, 3)),
            )
            if left
            else ()
        ),
    ]


def _certainty(estimate: Estimate) -> list[str]:
    certainty = estimate.certainty
    return [
        page.paragraph(sentences.sureness(estimate)),
        page.items(sentences.uncertain(estimate)),
        page.paragraph(f"figures of: {sentences.figures_of(estimate)}" if estimate.modelled else "", "dim"),
        page.items(
            f"unknown operator {operator_name(name)}: {calls:,} calls; figures are at least what it takes"
            for name, calls in certainty.unknown_operators.items()
        ),
    ]
