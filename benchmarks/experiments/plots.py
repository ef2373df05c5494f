"""The figures of `docs/evidence/EXPERIMENTS.md` as SVG files that are the same bytes for the same data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

mpl.rcParams["svg.hashsalt"] = "analyzer"
mpl.rcParams["font.size"] = 9
mpl.rcParams["axes.spines.top"] = mpl.rcParams["axes.spines.right"] = False
COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb", "#222222", "#999933")
MIB = 2**20


def _save(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def grouped_bars(path: Path, labels: Sequence[str], series: dict[str, Sequence[float]], unit: str) -> None:
    """One group of bars a label, one colour a series."""
    figure, axes = plt.subplots(figsize=(9, 3.6))
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        places = [index + (number - (len(series) - 1) / 2) * width for index in range(len(labels))]
        axes.bar(places, values, width, label=name, color=COLOURS[number])
    axes.set_xticks(range(len(labels)), labels, rotation=20, ha="right")
    axes.set_ylabel(unit)
    axes.legend(frameon=False, ncols=len(series), loc="lower left", bbox_to_anchor=(0, 1))
    _save(figure, path)


def stacked_timeline(
    path: Path, events: Sequence[str], parts: dict[str, Sequence[float]], measured: Sequence[float], unit: str
) -> None:
    """Stacked predicted categories an event, the measured total as a mark."""
    figure, axes = plt.subplots(figsize=(9, 3.6))
    below = [0.0] * len(events)
    for number, (name, values) in enumerate(parts.items()):
        axes.bar(range(len(events)), values, 0.8, below, label=name, color=COLOURS[number])
        below = [low + value for low, value in zip(below, values, strict=True)]
    axes.plot(range(len(events)), measured, "k_", markersize=12, label="measured")
    axes.set_xticks(range(len(events)), events, rotation=45, ha="right")
    axes.set_ylabel(unit)
    axes.legend(frameon=False, ncols=len(parts) + 1, loc="lower left", bbox_to_anchor=(0, 1))
    _save(figure, path)


def lines(
    path: Path,
    x: Sequence[float],
    series: dict[str, Sequence[float]],
    labels: tuple[str, str],
    marks: frozenset[str] = frozenset(),
) -> None:
    """Lines over x; the series in `marks` as points."""
    figure, axes = plt.subplots(figsize=(9, 3.2))
    for number, (name, values) in enumerate(series.items()):
        axes.plot(
            x, values, "o" if name in marks else "-", markersize=4, label=name, color=COLOURS[number * 4]
        )
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.legend(frameon=False)
    _save(figure, path)
