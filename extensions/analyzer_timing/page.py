"""Advice as a page in the style of the estimate's (`page.py`), with the terminal's sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzer.report import page, plan, speed
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import size
from analyzer_timing import report as advices

if TYPE_CHECKING:
    from analyzer.results.estimate import Estimate
    from analyzer_timing.results import Advice, Way


def advice(result: Advice, _: View = PLAIN) -> str:
    """Return the page of advice: the answer, what to type, every way by time, the patch, notes."""
    base, best = result.base.estimate, result.best
    assert base is not None
    ways = [way for way in (*result.ways, *result.others) if way.estimate is not None]
    most = max(way.estimate.needed.device_used for way in ways if way.estimate is not None)
    rows = [_way(way, way.estimate, most) for way in ways if way.estimate is not None]
    failed = [f"{way.name} does not run: {way.error}" for way in result.others if way.estimate is None]
    heads = ("way", "", "device", "fits", "step", "between", "samples/s")
    first, *more = advices.verdict(result)
    typed = "" if best is None or not best.typed else best.typed
    body = [
        page.verdict(best is not None and best.verdict == "fits" and result.reached is not False, first),
        *map(page.paragraph, more),
        *((page.heading("Command line"), f"<p>{page.name(f'add {typed}')}</p>") if typed else ()),
        page.heading("Every way that was analysed"),
        page.table(heads, rows, (2, 4, 5, 6), "cards"),
        page.paragraph("dark: allocated at the peak; light: device memory", "dim"),
        *((page.heading("Failed"), page.items(failed)) if failed else ()),
        *(
            (page.heading("As a patch of the file"), f"<pre>{page.lines(result.patch)}</pre>")
            if result.patch
            else ()
        ),
        page.heading("Notes") if advices.notes(result) else "",
        page.items(advices.notes(result)),
    ]
    return page.render(f"{plan.about(base)} · advice", "\n".join(filter(None, body)))


def _way(way: Way, estimate: Estimate, most: int) -> tuple[str, ...]:
    used = estimate.device_used if way.verdict == "fits" else estimate.needed.device_used
    return (
        page.text(way.name) + (f"<br>{page.name(way.typed)}" if way.typed else ""),
        page.bar(used, most, 0, estimate.peak_allocated),
        size(used),
        advices.JUDGED[way.verdict],
        speed.step(estimate),
        speed.step_range(estimate),
        speed.rate(estimate),
    )
