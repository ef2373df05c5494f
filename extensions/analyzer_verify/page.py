"""A verification as a page in the style of the estimate's (`page.py`), with the terminal's sentences
(`analyzer_verify/report.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.report import page
from analyzer.report.formats import PLAIN, View
from analyzer_verify import report as verifications

if TYPE_CHECKING:
    from analyzer_verify.results import Verification


def verification(verified: Verification, view: View = PLAIN) -> str:
    """Return the page of a verification: predicted beside measured, event by event."""
    # A page breaks lines where it has to: here each sentence is one.
    first, _, *rest = verifications.render(verified, replace(view, width=1000)).splitlines()
    figures = []
    for figure in verified.figures:
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
    judged = [
        figure
        for figure in verified.figures
        if figure.error_percent is not None and figure.name != verifications.NAIVE
    ]
    wrong = [figure for figure in judged if figure.predicted != figure.measured]
    sentence = (
        f"{len(judged) - len(wrong)} of {len(judged)} figures exact" if judged else "nothing was measured"
    )
    known = verifications.known(verified)
    charts: list[dict[str, Any]] = []
    body = [
        page.verdict(not wrong and bool(judged), sentence),
        page.table(("bytes", "predicted", known, "error"), figures, (1, 2, 3), "cards"),
    ]
    if len(verified.marks) > 1:
        charts.append(_marks(verified))
        body += [
            page.heading("Event by event"),
            page.chart(0, f"predicted and {known} after each named event"),
        ]
    if verified.marks:
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
            for mark in verified.marks
        ]
        heads = ("after", "allocated: predicted", known, "reserved: predicted", known, "")
        body.append(page.table(heads, rows, (1, 2, 3, 4), "cards"))
    body += [
        page.heading("In words"),
        page.items(line for line in rest[len(verified.figures) + 1 :] if line.strip()),
    ]
    return page.render(
        f"{first} · verified", "\n".join(body), {"charts": charts}, page.CHARTS if charts else page.NONE
    )


def _marks(verified: Verification) -> dict[str, Any]:
    columns = ("predicted_allocated", "measured_allocated", "predicted_reserved", "measured_reserved")
    known = verifications.known(verified)
    return {
        "x": "named event",
        "values": list(range(1, len(verified.marks) + 1)),
        "limit": None,
        "lines": [
            {
                "name": " ".join(reversed(name.replace("measured", known).split("_"))),
                "values": [getattr(mark, name) for mark in verified.marks],
                "dashed": name.startswith("measured"),
                "color": int(name.endswith("reserved")),
            }
            for name in columns
        ],
    }
