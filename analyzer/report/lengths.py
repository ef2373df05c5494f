"""The largest batch of every length on some GPUs: as text, JSON, CSV, or a picture with both axes
doubling."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from analyzer.report.columns import Column, table, within
from analyzer.report.csv import csv_text
from analyzer.report.formats import PLAIN, View
from analyzer.report.picture import drawing, label, saved
from analyzer.report.words import clean

if TYPE_CHECKING:
    from analyzer.results.fit import Lengths


def render(lengths: Lengths, view: View = PLAIN) -> str:
    """Return a sentence a GPU, then a row a length with the largest batch on each."""
    lines = [_sentence(lengths, place) for place in range(len(lengths.devices))]
    lines.append(f"{clean(lengths.target)}: largest batch by length of a sample")
    columns = [
        Column("length", 12),
        *(Column(clean(name), max(len(name) + 2, 12)) for name in lengths.devices),
    ]
    rows = [
        [f"{length:,}", *(f"{lengths.batch(length, place):,}" for place in range(len(lengths.devices)))]
        for length in lengths.fits
    ]
    notes = [f"- {clean(note)}" for note in lengths.notes]
    return (
        "\n".join(
            [
                *within(lines, view.width),
                "",
                *table(columns, rows, view.width),
                "",
                *within(notes, view.width),
            ]
        ).rstrip()
        + "\n"
    )


def _sentence(table: Lengths, place: int) -> str:
    """Return the greatest length that runs, and the one with most tokens at a time."""
    name = clean(table.devices[place])
    running = [length for length in table.fits if table.batch(length, place)]
    if not running:
        return f"{name}: not even one sample of {min(table.fits):,} runs"
    most = max(running, key=lambda length: length * table.batch(length, place))
    batch, longest = table.batch(most, place), table.batch(running[-1], place)
    return (
        f"{name}: up to length {running[-1]:,} (batch {longest:,}); most tokens at a time: "
        f"{batch * most:,}, as {batch:,} of {most:,}"
    )


def render_json(lengths: Lengths, _: View = PLAIN) -> str:
    """Return the figures of every answer as JSON, in bytes."""
    rows = [
        {
            "length": length,
            "device": lengths.devices[place],
            "batch": fit.batch,
            "device_used": fit.brief.device_used if fit.brief else None,
            "peak_reserved": fit.brief.peak_reserved if fit.brief else None,
            "limit_bytes": fit.limit,
        }
        for length, answers in lengths.fits.items()
        for place, fit in enumerate(answers)
        if fit is not None
    ]
    return (
        json.dumps({"schema": 1, "target": lengths.target, "rows": rows, "notes": lengths.notes}, indent=1)
        + "\n"
    )


def render_csv(lengths: Lengths, _: View = PLAIN) -> str:
    """Return a row a length, a column a GPU."""
    places = range(len(lengths.devices))
    rows = ((length, *(lengths.batch(length, place) for place in places)) for length in lengths.fits)
    return csv_text(("length", *lengths.devices), rows)


def _drawn(lengths: Lengths, _: View = PLAIN, *, form: str) -> bytes:
    """Return a line a GPU. Raises MissingDependencyError without matplotlib."""
    with drawing(form) as pyplot:
        figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
        for place, name in enumerate(lengths.devices):
            points = [(length, batch) for length in lengths.fits if (batch := lengths.batch(length, place))]
            if points:
                axes.plot(*zip(*points, strict=True), "o-", label=label(name))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("length of a sample")
        axes.set_ylabel("largest batch")
        axes.set_title(label(lengths.target, 90), fontsize=9)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        return saved(pyplot, figure, form)


render_svg, render_png = partial(_drawn, form="svg"), partial(_drawn, form="png")
