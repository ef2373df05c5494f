"""Predictions of the programs of `jobs.json` beside what two H200 took: python -m benchmarks ranks table

Measured: `tests/data/h200/ranks.json`, by `measure.py` (its rows say with which GPU and versions).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import click

from analyzer import run
from benchmarks import ROOT, SUBJECTS
from benchmarks.harness.pages import beside, prose

_TEXT = prose(__file__)

HERE = SUBJECTS / "ranks"
ROWS = ROOT / "tests/data/h200/ranks.json"
PAGE = ROOT / "docs/evidence/RANKS.md"


def rows(
    names: Sequence[str] | None = None, ranks: list[int] | None = None
) -> Iterator[tuple[str, int, list[tuple[int, int]]]]:
    """Program, rank, and (predicted, measured) bytes: allocated, reserved, device. names, ranks: these only."""
    jobs = {job["name"]: job for job in json.loads((HERE / "jobs.json").read_text())}
    for row in json.loads(ROWS.read_text()):
        job = jobs[row["name"]]
        if (names and row["name"] not in names) or (ranks is not None and row["rank"] not in ranks):
            continue
        found = run(HERE / "programs" / job["program"], job["args"], device="h200", ranks=2, rank=row["rank"])
        pairs = [
            (found.peak_allocated or 0, row["peak_allocated"]),
            (found.peak_reserved or 0, row["peak_reserved"]),
            (found.device_used or 0, row["nvml_peak"]),
        ]
        yield row["name"], row["rank"], pairs


def cells(pairs: list[tuple[int, int]]) -> str:
    """Cells of a table for (predicted, measured) bytes: MiB measured, and how far the prediction is from it."""
    return " | ".join(beside(got, measured) for got, measured in pairs)


def page(names: Sequence[str] = ()) -> str:
    """The page, of these programs; all, where none is named."""
    lines = [f"| {name} | {rank} | {cells(pairs)} |" for name, rank, pairs in rows(names)]
    return _TEXT["head"] + "\n".join(lines) + "\n" + _TEXT["tail"]


@click.command()
@click.argument("names", nargs=-1)
def score(names: tuple[str, ...]) -> None:
    """Follow every program's ranks, or those named, and print the table."""
    print(page(names))


@click.command()
def table() -> None:
    """Follow every program's ranks, and write the page."""
    PAGE.write_text(page())
