"""Plans and comparisons as pages in the style of the estimate's (`page.py`, `html.py`).

The page has the terminal's sentences, from the same functions; `assets/charts.js` draws the pictures. Two
compared estimates have their timelines overlaid (`overlay.py`), then each its own with its live sets, side
by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.report import difference as differences
from analyzer.report import html, overlay, page, plan, speed
from analyzer.report import strategies as plans
from analyzer.report.formats import PLAIN, View
from analyzer.report.verdicts import verdicts
from analyzer.report.words import clean, mib, percent, size

if TYPE_CHECKING:
    from analyzer.results.curve import Curve
    from analyzer.results.difference import Change, Difference
    from analyzer.results.estimate import Estimate
    from analyzer.results.fit import Fit
    from analyzer.results.strategy import Strategy


# GPUs that a title names, and rows a page shows unasked.
_NAMED = 6
_OPEN = 40


def curve(sweep: Curve, _: View = PLAIN) -> str:
    """Return the curve over the batch: picture, where it bends, every row."""
    bends = plan.kink_lines(sweep.kinks)
    slopes = [
        f"batch {slope.first} to {slope.last}: {slope.bytes_per_sample:,.0f} bytes of peak allocated a sample"
        for slope in sweep.slopes
    ]
    failures = [f"batch {batch} failed: {message}" for batch, message in sweep.failures.items()]
    rows = ((f"{row.batch:,}", *(mib(getattr(row, name)) for name in plan.LINES)) for row in sweep.rows)
    drawn = {
        "x": "batch",
        "values": [row.batch for row in sweep.rows],
        "limit": sweep.estimate.usable_bytes,
        "lines": [
            {
                "name": plan.WORDS[name],
                "values": [getattr(row, name) for row in sweep.rows],
                "dashed": name == "naive",
            }
            for name in plan.LINES
        ],
    }
    title = f"{plan.about(sweep.estimate)} · over the batch"
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
            len(sweep.rows) <= _OPEN,
        ),
    ]
    return page.render(title, "\n".join(body), {"charts": [drawn]}, page.CHARTS)


def fits(answers: Sequence[Fit], view: View = PLAIN) -> str:
    """Return the page of largest batches: bars, failures beyond them, the last batch's timeline."""
    body: list[str] = []
    several = len(answers) > 1
    what = answers[0].what
    if several:
        most = max(*(fit.batch for fit in answers), 1)
        rows = (
            (
                page.text(plan.known_of(fit).device),
                f"{fit.batch:,}",
                page.bar(fit.batch, most, 0, fit.batch),
                mib(fit.limit),
                mib(fit.headroom) if fit.batch else "-",
                *(("-", "-") if fit.brief is None else (speed.step(fit.brief), speed.rate(fit.brief))),
            )
            for fit in answers
        )
        heads = ("GPU", f"largest {what}", "", "MiB for the allocator", "of them free", "step", "samples/s")
        body += [page.table(heads, rows, (1, 3, 4, 5, 6), "cards")]
    views: list[dict[str, Any]] = []
    for fit in answers:
        shown = plan.known_of(fit)
        answer, about, *rest = plan.fit_lines(fit, view.verbose)
        body += [page.heading(shown.device) if several else "", page.verdict(fit.batch > 0, answer)]
        body += [
            "" if several else page.paragraph(about, "dim"),
            page.items(line.removeprefix("- ") for line in rest),
        ]
        if not several and shown is not None:
            shown = shown if fit.at is None else fit.at
            named = fit.option or "Batch"
            which = f"{named} {fit.batch:,}" if fit.at is not None else f"{named} 1, until it fails"
            body.append(html.course(shown, len(views), which))
            views.append(html.view_data(shown))
    devices = [clean(plan.known_of(fit).device) for fit in answers]
    if len(devices) > _NAMED:
        devices = [*devices[:_NAMED], f"{len(answers) - _NAMED} more"]
    where = " and ".join(filter(None, (", ".join(devices[:-1]), devices[-1])))
    title = f"{plan.about(plan.known_of(answers[0]), device=False)} · largest {what} on {where}"
    return page.render(title, "\n".join(body), {"views": views}, page.TIMELINE if views else page.NONE)


def strategies(ways: Sequence[Strategy], _: View = PLAIN) -> str:
    """Return the page of strategies: what each takes, saves and costs."""
    base = ways[0].estimate
    assert base is not None
    runs = [(strategy, strategy.estimate) for strategy in ways if strategy.estimate is not None]
    most = max(shown.needed.device_used for _, shown in runs)
    timed = any(shown.step_seconds is not None for _, shown in runs)
    pressed = plans.under_pressure(ways)
    before = base.needed.device_used
    unlimited = base.device_assumed and base.budget_bytes is None  # no limit was given: nothing to fit
    rows = [_strategy(strategy, shown, before, most, timed, pressed) for strategy, shown in runs]
    times = ("step", "between", "samples/s") if timed else ()
    heads = (
        "strategy",
        "",
        "allocated",
        "device",
        *(("with room",) if pressed else ()),
        "saves",
        "compute",
        *times,
        "cost",
        "fits",
        "largest batch",
    )
    numbers = (*range(2, 6 + pressed + len(times)), len(heads) - 1)
    failed = [f"{strategy.name}: {strategy.error}" for strategy in ways if strategy.estimate is None]
    body = [
        *(page.verdict(holds, sentence) for holds, sentence in verdicts(base, None)),
        page.paragraph(
            "" if base.verdict() == "fits" or unlimited else plans.advice(plans.cheapest(ways), base, 1000)
        ),
        page.table(heads, rows, numbers, "cards"),
        page.paragraph("dark: allocated at the peak; light: device memory", "dim"),
        *((page.heading("Failed"), page.items(failed)) if failed else ()),
    ]
    return page.render(f"{plan.about(base)} · what if", "\n".join(body))


def _strategy(
    strategy: Strategy, estimate: Estimate, before: int, most: int, timed: bool, pressed: bool
) -> tuple[str, ...]:
    extra = f"+{100 * strategy.extra_compute:.0f} %" if strategy.extra_compute >= 0.005 else "-"
    return (
        page.text(strategy.name) + (f"<br>{page.name(strategy.typed)}" if strategy.typed else ""),
        page.bar(estimate.device_used, most, 0, estimate.peak_allocated),
        size(estimate.peak_allocated),
        size(estimate.device_used),
        *((size(estimate.needed.device_used),) if pressed else ()),
        percent(strategy.saved, before),
        extra,
        *((speed.step(estimate), speed.step_range(estimate), speed.rate(estimate)) if timed else ()),
        page.text(plans.COSTS[strategy.cost]),
        plans.judged(estimate),
        "-" if strategy.largest is None else f"{strategy.largest:,}",
    )


def difference(compared: Difference, view: View = PLAIN) -> str:
    """Return the page of a difference: what grew, and both estimates side by side."""
    figures = (
        (
            differences.WORDS[c.name],
            f"{c.before:,}",
            f"{c.after:,}",
            differences.signed(c.grown),
            percent(c.grown, c.before),
        )
        for c in compared.figures
    )
    others = (
        (name, f"{old:,}", f"{new:,}", differences.signed(new - old), percent(new - old, old))
        for name, old, new in (
            ("naive sum", compared.before.naive.total, compared.after.naive.total),
            ("graph liveness", compared.before.graph_peak, compared.after.graph_peak),
        )
    )
    pair = ((compared.before, "Before"), (compared.after, "After"))
    laid = overlay.chart(compared.before, compared.after, ("before", "after"))
    body = [
        page.verdict(not compared.exceeds, differences.verdict(compared)),
        page.items(f"{name}: {clean(before)}, now {clean(after)}" for name, before, after in compared.unlike),
        page.chart(0, "both courses over one another") if laid else "",
        page.table(("", "before", "after", "change", ""), (*others, *figures), (1, 2, 3, 4), "cards"),
    ]
    body += [page.paragraph(line) for line in differences.step_lines(compared)]
    if compared.moved:
        body.append(page.paragraph(f"the peak was in {compared.moved[0]} and is in {compared.moved[1]}"))
    for title, changes in (
        ("by category", compared.categories),
        ("by module", compared.modules),
        ("by line", compared.lines),
    ):
        if changes:
            body += [page.heading(f"At the peak, {title}"), _changes(changes, view.top)]
    columns = "".join(
        f"<div>{html.course(estimate, number, title)}</div>" for number, (estimate, title) in enumerate(pair)
    )
    body.append(f'<div class="side">{columns}</div>')
    data = {"views": [html.view_data(estimate) for estimate, _ in pair], "charts": [laid] if laid else []}
    both = clean(compared.before.target)
    if compared.after.target != compared.before.target:
        both += f" and {clean(compared.after.target)}"
    changed = [(name, *values) for name, *values in compared.unlike if name not in ("target", "figures of")]
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
