"""Plans, verifications and comparisons as pages in the style of the estimate's (`page.py`, `html.py`).

What a terminal is told stands in the page in the same words, from the same functions; pictures are drawn by
`assets/charts.js`. Two estimates compared have their courses over one another (`overlay.py`), then each its
own with its live sets, side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.report import difference as differences
from analyzer.report import html, overlay, page, plan, speed
from analyzer.report import strategies as plans
from analyzer.report import verification as verifications
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean, mib, percent, size

if TYPE_CHECKING:
    from analyzer.results.curve import Curve
    from analyzer.results.difference import Change, Difference
    from analyzer.results.estimate import Estimate
    from analyzer.results.fit import Fit
    from analyzer.results.strategy import Strategy
    from analyzer.results.verification import Verification


# GPUs that a title names, and rows a page shows unasked.
_NAMED = 6
_OPEN = 40


def curve(found: Curve, _: View = PLAIN) -> str:
    """Return the curve over the batch: picture, where it bends, every row."""
    bends = plan.kink_lines(found.kinks)
    slopes = [
        f"batch {slope.first} to {slope.last}: {slope.bytes_per_sample:,.0f} bytes of peak allocated a sample"
        for slope in found.slopes
    ]
    failures = [f"batch {batch} failed: {message}" for batch, message in found.failures.items()]
    rows = ((f"{row.batch:,}", *(mib(getattr(row, name)) for name in plan.LINES)) for row in found.rows)
    drawn = {
        "x": "batch",
        "values": [row.batch for row in found.rows],
        "limit": found.estimate.usable_bytes,
        "lines": [
            {
                "name": plan.WORDS[name],
                "values": [getattr(row, name) for row in found.rows],
                "dashed": name == "naive",
            }
            for name in plan.LINES
        ],
    }
    title = f"{plan.about(found.estimate)} · over the batch"
    body = [
        page.chart(0, "memory over the batch"),
        page.items([*slopes, *bends, *failures]),
        page.folded(
            "Every batch, in MiB",
            page.table(
                ("batch", *(plan.WORDS[name] for name in plan.LINES)),
                rows,
                range(1 + len(plan.LINES)),
                "figures",
            ),
            len(found.rows) <= _OPEN,
        ),
    ]
    return page.render(title, "\n".join(body), {"charts": [drawn]}, page.CHARTS)


def fits(found: Sequence[Fit], view: View = PLAIN) -> str:
    """Return the page of largest batches: bars, failures beyond them, the last batch's timeline."""
    body: list[str] = []
    several = len(found) > 1
    what = "batch" if found[0].samples is None else "length"
    if several:
        most = max(*(fit.batch for fit in found), 1)
        rows = (
            (
                page.text(plan.known_of(fit).device),
                f"{fit.batch:,}",
                page.bar(fit.batch, most, 0, fit.batch),
                mib(fit.limit),
                mib(fit.headroom) if fit.batch else "-",
                *(("-", "-") if fit.brief is None else (speed.step(fit.brief), speed.rate(fit.brief))),
            )
            for fit in found
        )
        heads = ("GPU", f"largest {what}", "", "MiB for the allocator", "of them free", "step", "samples/s")
        body += [page.table(heads, rows, (1, 3, 4, 5, 6), "cards")]
    views: list[dict[str, Any]] = []
    for fit in found:
        shown = plan.known_of(fit)
        answer, about, *rest = plan.fit_lines(fit, view.verbose)
        body += [page.heading(shown.device) if several else "", page.verdict(fit.batch > 0, answer)]
        body += [
            "" if several else page.paragraph(about, "dim"),
            page.items(line.removeprefix("- ") for line in rest),
        ]
        if not several and shown is not None:
            shown = shown if fit.at is None else fit.at
            which = f"Batch {fit.batch:,}" if fit.at is not None else "Batch 1, until it fails"
            body.append(html.course(shown, len(views), which))
            views.append(html.view_data(shown))
    devices = [clean(plan.known_of(fit).device) for fit in found]
    if len(devices) > _NAMED:
        devices = [*devices[:_NAMED], f"{len(found) - _NAMED} more"]
    where = " and ".join(filter(None, (", ".join(devices[:-1]), devices[-1])))
    title = f"{plan.about(plan.known_of(found[0]), device=False)} · largest {what} on {where}"
    return page.render(title, "\n".join(body), {"views": views}, page.TIMELINE if views else page.NONE)


def strategies(found: Sequence[Strategy], _: View = PLAIN) -> str:
    """Return the page of strategies: what each takes, saves and costs."""
    base = found[0].estimate
    assert base is not None
    runs = [(strategy, strategy.estimate) for strategy in found if strategy.estimate is not None]
    most = max(known.needed.device_used for _, known in runs)
    timed = any(known.step_seconds is not None for _, known in runs)
    rows = [_strategy(strategy, known, base.needed.device_used, most, timed) for strategy, known in runs]
    times = ("step", "between", "samples/s") if timed else ()
    heads = (
        "strategy",
        "",
        "allocated",
        "device",
        "saves",
        "compute",
        *times,
        "cost",
        "fits",
        "largest batch",
    )
    numbers = (*range(2, 6 + len(times)), len(heads) - 1)
    failed = [f"{strategy.name}: {strategy.error}" for strategy in found if strategy.estimate is None]
    body = [
        page.table(heads, rows, numbers, "cards"),
        page.paragraph("dark: allocated at the peak; light: device memory", "dim"),
        *((page.heading("What does not run"), page.items(failed)) if failed else ()),
    ]
    return page.render(f"{plan.about(base)} · what if", "\n".join(body))


def _strategy(strategy: Strategy, known: Estimate, before: int, most: int, timed: bool) -> tuple[str, ...]:
    room = known.needed
    extra = f"+{100 * strategy.extra_compute:.0f} %" if strategy.extra_compute >= 0.005 else "-"
    return (
        page.text(strategy.name),
        page.bar(room.device_used, most, 0, room.peak_allocated),
        size(room.peak_allocated),
        size(room.device_used),
        percent(strategy.saved, before),
        extra,
        *((speed.step(known), speed.step_range(known), speed.rate(known)) if timed else ()),
        page.text(plans.COSTS[strategy.cost]),
        plans.judged(known),
        "-" if strategy.largest is None else f"{strategy.largest:,}",
    )


def difference(found: Difference, view: View = PLAIN) -> str:
    """Return the page of a difference: what grew, and both estimates side by side."""
    figures = (
        (
            differences.WORDS[c.name],
            f"{c.before:,}",
            f"{c.after:,}",
            differences.signed(c.grown),
            percent(c.grown, c.before),
        )
        for c in found.figures
    )
    others = (
        (name, f"{old:,}", f"{new:,}", differences.signed(new - old), percent(new - old, old))
        for name, old, new in (
            ("naive sum", found.before.naive.total, found.after.naive.total),
            ("graph liveness", found.before.graph_peak, found.after.graph_peak),
        )
    )
    pair = ((found.before, "Before"), (found.after, "After"))
    laid = overlay.chart(found.before, found.after, ("before", "after"))
    body = [
        page.verdict(not found.exceeds, differences.verdict(found)),
        page.items(f"{name}: {clean(before)}, now {clean(after)}" for name, before, after in found.unlike),
        page.chart(0, "both courses over one another") if laid else "",
        page.table(("", "before", "after", "change", ""), (*others, *figures), (1, 2, 3, 4), "cards"),
    ]
    body += [page.paragraph(line) for line in differences.step_lines(found)]
    if found.moved:
        body.append(page.paragraph(f"the peak was in {found.moved[0]} and is in {found.moved[1]}"))
    for title, changes in (
        ("by category", found.categories),
        ("by module", found.modules),
        ("by line", found.lines),
    ):
        if changes:
            body += [page.heading(f"At the peak, {title}"), _changes(changes, view.top)]
    columns = "".join(
        f"<div>{html.course(estimate, number, title)}</div>" for number, (estimate, title) in enumerate(pair)
    )
    body.append(f'<div class="side">{columns}</div>')
    data = {"views": [html.view_data(estimate) for estimate, _ in pair], "charts": [laid] if laid else []}
    both = clean(found.before.target)
    if found.after.target != found.before.target:
        both += f" and {clean(found.after.target)}"
    changed = [(name, *values) for name, *values in found.unlike if name not in ("target", "figures of")]
    title = " · ".join([both, *(f"{name} {clean(old)}, now {clean(new)}" for name, old, new in changed)])
    return page.render(f"{title} · compared", "\n".join(body), data, (*page.TIMELINE, "charts.js"))


def _changes(changes: Sequence[Change], top: int) -> str:
    shown = changes[: max(top, 1)]
    rows: Iterable[tuple[str, ...]] = (
        (page.text(differences.named(c)), size(c.before), size(c.after), differences.signed(c.grown))
        for c in shown
    )
    more = (
        f"and {len(changes) - len(shown):,} more (--format json lists all)"
        if len(changes) > len(shown)
        else ""
    )
    return page.table(("", "before", "after", "change"), rows, (1, 2, 3)) + page.paragraph(more, "dim")


def verification(found: Verification, view: View = PLAIN) -> str:
    """Return the page of a verification: predicted beside measured, event by event."""
    # A page breaks lines where it has to: here each sentence is one.
    first, _, *rest = verifications.render(found, replace(view, width=1000)).splitlines()
    figures = []
    for figure in found.figures:
        error = figure.error_percent
        same = figure.predicted == figure.measured
        figures.append(
            (
                page.text(figure.name),
                "-" if figure.predicted is None else f"{figure.predicted:,}",
                "-" if figure.measured is None else f"{figure.measured:,}",
                "-" if error is None else "exact" if same else f"{error:+.2f} %",
            )
        )
    known = [figure for figure in found.figures if figure.error_percent is not None]
    wrong = [figure for figure in known if figure.predicted != figure.measured]
    sentence = f"{len(known) - len(wrong)} of {len(known)} figures exact" if known else "nothing was measured"
    charts: list[dict[str, Any]] = []
    body = [
        page.verdict(not wrong and bool(known), sentence),
        page.table(("bytes", "predicted", "measured", "error"), figures, (1, 2, 3), "cards"),
    ]
    if len(found.marks) > 1:
        charts.append(_marks(found))
        body += [
            page.heading("Event by event"),
            page.chart(0, "predicted and measured after each named event"),
        ]
    if found.marks:
        rows: list[Sequence[str]] = [
            (
                page.text(mark.event),
                *(
                    f"{n:,}"
                    for n in (
                        mark.predicted_allocated,
                        mark.measured_allocated,
                        mark.predicted_reserved,
                        mark.measured_reserved,
                    )
                ),
                "exact" if mark.same else "differs",
            )
            for mark in found.marks
        ]
        heads = ("after", "allocated: predicted", "measured", "reserved: predicted", "measured", "")
        body.append(page.table(heads, rows, (1, 2, 3, 4), "cards"))
    body += [
        page.heading("In words"),
        page.items(line for line in rest[len(found.figures) + 1 :] if line.strip()),
    ]
    return page.render(
        f"{first} · verified", "\n".join(body), {"charts": charts}, page.CHARTS if charts else page.NONE
    )


def _marks(found: Verification) -> dict[str, Any]:
    columns = ("predicted_allocated", "measured_allocated", "predicted_reserved", "measured_reserved")
    return {
        "x": "named event",
        "values": list(range(1, len(found.marks) + 1)),
        "limit": None,
        "lines": [
            {
                "name": " ".join(reversed(name.split("_"))),
                "values": [getattr(mark, name) for mark in found.marks],
                "dashed": name.startswith("measured"),
                "color": int(name.endswith("reserved")),
            }
            for name in columns
        ],
    }
