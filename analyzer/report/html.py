"""The estimate as one page that needs nothing else: no script, no network, safe to open with untrusted names in it.

Every text passes through `words.clean` and is escaped; the page forbids itself everything but its own style.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib import resources
from string import Template

from analyzer.estimate import Estimate
from analyzer.report import text
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean, mib, operator_name, percent, size

_WIDTH, _HEIGHT = 1000, 300
# More points than pixels only make the file larger.
_POINTS = 1000


def render(estimate: Estimate, view: View = PLAIN) -> str:
    """The page."""
    known = estimate.certainty
    total = known.exact + known.measured + known.bounded
    template = Template((resources.files("analyzer.report") / "page.html").read_text(encoding="utf-8"))
    verdicts = text.verdicts(estimate, view.budget_bytes)
    return template.substitute(
        title=_text(" · ".join(text.subject(estimate))),
        verdicts="\n".join(
            [
                *(
                    f'<p class="{"yes" if holds else "no"}"><strong>{_text(said)}</strong></p>'
                    for holds, said in verdicts
                ),
                f'<p class="dim">device: {_text(estimate.device_note)}</p>' if estimate.device_note else "",
            ]
        ),
        estimates=_rows(
            (_text(name), _number(f"{nbytes:,}"), _number(mib(nbytes)), _text(meaning))
            for name, nbytes, meaning in text.estimate_rows(estimate)
        ),
        naive=_text(text.naive_terms(estimate)),
        event_count=f"{len(estimate.timeline.delta):,}",
        chart=_chart(estimate),
        peak_at=f" ({_text(estimate.peak_at)})" if estimate.peak_at else "",
        breakdown=_rows(_breakdown(estimate)),
        tensors=_rows(
            (
                _number(size(row.nbytes)),
                f"<code>{_text('x'.join(map(str, row.shape)))} {_text(row.dtype)}</code>",
                _text(", ".join(filter(None, (row.category, row.phase)))),
                *(f"<code>{_text(word)}</code>" for word in (*text.who(row), row.rule)),
            )
            for row in estimate.top(view.top)
        ),
        certainty=_text(
            f"{percent(known.exact, total)} of the peak by rule, {percent(known.measured, total)} by measurement, "
            f"{percent(known.bounded, total)} bounded"
        ),
        rules=_list(text.uncertain(estimate)),
        unknown=_list(
            f"unknown operator {operator_name(name)}: {calls:,} calls, at most {size(bound)}"
            for name, (calls, bound) in known.unknown_operators.items()
        ),
        notes=_list(estimate.notes),
    )


def _breakdown(estimate: Estimate) -> Iterable[tuple[str, ...]]:
    rows = text.breakdown_rows(estimate)
    for name, nbytes in rows:
        share = 100 * nbytes // rows[0][1]
        bar = f'<div class="bar" style="width: {share}%"></div>'
        yield _text(name), bar, _number(size(nbytes)), _number(percent(nbytes, estimate.peak_allocated))


def _chart(estimate: Estimate) -> str:
    line = estimate.timeline
    count, ceiling = len(line.delta), max((*line.reserved, *line.allocated, 1))
    if not count:
        return ""

    def y(nbytes: int) -> str:
        return f"{_HEIGHT - nbytes * (_HEIGHT - 10) / ceiling:.1f}"

    def x(event: int) -> str:
        return f"{event * _WIDTH / count:.1f}"

    def steps(values: tuple[int, ...]) -> str:
        """The largest value of each group of events, so that no peak is lost."""
        group = -(-count // _POINTS)
        tops = ((at, max(values[at : at + group])) for at in range(0, count, group))
        return " ".join(f"L{x(at)} {y(value)} H{x(min(at + group, count))}" for at, value in tops)

    marks = (
        f'<path class="mark" d="M{x(at)} 0 V{_HEIGHT}"><title>{_text(label)}: {size(allocated)} allocated</title></path>'
        for at, (label, category, delta, allocated) in enumerate(
            zip(line.label, line.category, line.delta, line.allocated, strict=True)
        )
        if not category and not delta
    )
    return (
        f'<path class="allocated" d="M0 {_HEIGHT} {steps(line.allocated)} V{_HEIGHT} Z"/>'
        f'<path class="reserved" d="M0 {_HEIGHT} {steps(line.reserved)}"/>'
        f"{''.join(marks)}"
        f'<text x="8" y="20" font-size="14" fill="currentColor">{size(ceiling)}</text>'
    )


def _rows(rows: Iterable[Iterable[str]]) -> str:
    """Table rows; a cell is HTML, with its `<td>` if it starts with one."""
    cells = ("".join(cell if cell.startswith("<td") else f"<td>{cell}" for cell in row) for row in rows)
    return "\n".join(f"<tr>{row}</tr>" for row in cells)


def _number(shown: str) -> str:
    return f'<td class="number">{shown}'


def _list(items: Iterable[str]) -> str:
    shown = "".join(f"<li>{_text(item)}</li>" for item in items)
    return f"<ul>{shown}</ul>" if shown else ""


def _text(untrusted: str) -> str:
    return escape(clean(untrusted))
