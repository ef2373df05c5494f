"""Pictures drawn by matplotlib, which the extra `analyzer[plot]` brings; the same data gives the same bytes.

The bars of an estimate are those of document 001: after each named event what is in use, stacked by category,
with what is reserved then and the peak since the iteration began; and one of the peak itself. Of a program
with more events than fit, the iteration of the peak.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from analyzer.errors import MissingDependencyError, install
from analyzer.report import sentences
from analyzer.report.formats import PLAIN, View
from analyzer.report.palette import CATEGORIES, LIGHT, category, picture_style
from analyzer.report.words import MIB, clean, tail
from analyzer.results.estimate import Estimate, MarkRow

FORMS = ("svg", "png")
_MOST = 60
# How far the bar of the peak stands from the last event's, in bars.
_APART = 0.5


@contextmanager
def drawing(form: str) -> Iterator[Any]:
    """Yield matplotlib's pyplot, set up for reproducible bytes. Raises MissingDependencyError."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise MissingDependencyError(
            f"{form} pictures are drawn by matplotlib, which is not installed", install("plot")
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    settings: dict[Any, str] = dict.fromkeys(ink, LIGHT["text"]) | dict.fromkeys(
        ("figure.facecolor", "axes.facecolor"), LIGHT["back"]
    )
    with pyplot.rc_context({"svg.hashsalt": "analyzer", "svg.fonttype": "none", "font.size": 9, **settings}):
        yield pyplot


def saved(pyplot: Any, figure: Any, form: str) -> bytes:
    """Return the figure as a file's content; it is closed."""
    stream = io.BytesIO()
    metadata = {"Date": None} if form == "svg" else {"Software": None}
    figure.savefig(stream, format=form, metadata=metadata, dpi=120)
    pyplot.close(figure)
    return stream.getvalue().replace(b"</style>", f"{picture_style()}</style>".encode(), 1)


def label(untrusted: str, width: int = 60) -> str:
    """Return a name for a picture: clean, short, and never read as mathematics."""
    return tail(clean(untrusted), width).replace("$", r"\$")


def _bars(estimate: Estimate, _: View = PLAIN, *, form: str) -> bytes:
    """Return the bars. Raises MissingDependencyError without matplotlib."""
    marks = _shown(estimate)
    with drawing(form) as pyplot:
        figure, axes = pyplot.subplots(
            figsize=(max(6.0, min(0.32 * len(marks) + 2.5, 16.0)), 4.2), layout="constrained"
        )
        at_peak = [(name, nbytes) for name, nbytes in estimate.breakdown.items() if nbytes]
        used = {name for mark in marks for name, nbytes in mark.by_category.items() if nbytes}
        used |= {name for name, _ in at_peak}
        names = [name for name in CATEGORIES if name in used] + sorted(used - {*CATEGORIES})
        # The peak is mostly within a phase, not after one: a bar of its own, apart from the others.
        places, below = range(len(marks)), [0.0] * (len(marks) + 1)
        peak = len(marks) + _APART
        for name in names:
            values = [mark.by_category.get(name, 0) / MIB for mark in marks]
            values.append(estimate.breakdown.get(name, 0) / MIB)
            color = LIGHT[category(name)]
            axes.bar([*places, peak], values, 0.8, below, label=label(name, 30), color=color)
            below = [low + value for low, value in zip(below, values, strict=True)]
        axes.plot(
            places,
            [mark.peak / MIB for mark in marks],
            "_",
            color=LIGHT["text"],
            markersize=10,
            label="peak so far",
        )
        axes.step(
            places,
            [mark.reserved / MIB for mark in marks],
            where="mid",
            color=LIGHT["reserved"],
            linewidth=1,
            label="reserved",
        )
        events = [label(mark.event, 24) for mark in marks]
        axes.set_xticks([*places, peak], [*events, "at the peak"], rotation=45, ha="right")
        axes.set_ylabel("MiB in use after the event, and at the peak")
        axes.set_title(label(" · ".join(sentences.subject(estimate)), 110), fontsize=9)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        figure.legend(loc="outside lower center", ncols=4, frameon=False)
        return saved(pyplot, figure, form)


def _shown(estimate: Estimate) -> tuple[MarkRow, ...]:
    """Return the named events that fit: all, or those around the one at the peak."""
    marks = sentences.marks_so_far(estimate)
    if len(marks) <= _MOST:
        return marks
    at = next((place for place, mark in enumerate(marks) if mark.event == estimate.peak_at), len(marks) - 1)
    begin = min(max(0, at - _MOST // 2), len(marks) - _MOST)
    return marks[begin : begin + _MOST]


bars_svg, bars_png = partial(_bars, form="svg"), partial(_bars, form="png")
