"""The tables of docs/evidence/EMULATION.md: `rows.json` keeps the cells of each case, the page has a line a kind of them.

A cell of a figure is what was measured and how far what is emulated is off, "815.5 MiB -0.731 %" or "815.5 MiB exact"; "-" where a
case did not run, whose last cell says why.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import click

from benchmarks import ROOT
from benchmarks.harness import pages

PAGE = ROOT / "docs/evidence/EMULATION.md"
RECORD = Path(__file__).with_name("rows.json")
FIGURES = ("allocated", "reserved", "device")
PROGRAM = (*FIGURES, "takes")
# A table's name -> the heads of a case's cells.
HEADS = {
    "truth": ("allocated, bytes off", "reserved, bytes off", "takes"),
    "programs": PROGRAM,
    "ranks": PROGRAM,
    "other ranks": PROGRAM,
    "cards": ("allocated", "reserved", "requests as predicted", "workspaces in a range"),
}
# A case's name and its cells.
Case: TypeAlias = tuple[str, Sequence[str]]


def load(name: str) -> dict[str, list[str]]:
    """A table's cells by case."""
    return dict(json.loads(RECORD.read_text("utf-8"))[name])


def keep(name: str, rows: Mapping[str, Sequence[str]], text: Callable[[Sequence[Case]], str]) -> None:
    """Record a table's cells, and write what the page says of them."""
    tables = json.loads(RECORD.read_text("utf-8")) | {name: rows}
    bodies = []
    for one, some in tables.items():
        body = ",\n".join(f"  {json.dumps(case)}: {json.dumps(cells)}" for case, cells in some.items())
        bodies.append(f" {json.dumps(one)}: {{\n{body}\n }}")
    RECORD.write_text("{\n" + ",\n".join(bodies) + "\n}\n", "utf-8")
    pages.write_part(PAGE, name, section(name, rows, text))


def section(name: str, rows: Mapping[str, Sequence[str]], text: Callable[[Sequence[Case]], str]) -> str:
    """A table's part of the page, with the command that shows its cases."""
    by = f"Line by line: `python -m benchmarks emulation lines {shlex.quote(name)}`."
    return f"{text(list(rows.items()))}\n{by}\n"


def by_kind(cases: Sequence[Case], kind: Callable[[str], str], figures: Sequence[str] = FIGURES) -> str:
    """The table of cases by the kind that their names say."""

    def cells(some: Sequence[Case]) -> list[str]:
        return pages.figure_cells(
            [
                (case, None if "-" in said else dict(zip(figures, map(error_of, said), strict=False)))
                for case, said in some
            ],
            figures,
        )

    rows = pages.by_kind(cases, lambda case: kind(case[0]), cells)
    align = f"l{'r' * (len(figures) * 2 + 1)}l"
    return pages.table(["kind", "cases", *pages.figure_head(figures)], rows, align)


def error_of(cell: str) -> float:
    """In percent, of a figure's cell."""
    return 0.0 if cell.endswith("exact") else float(cell.rpartition(" MiB ")[2].rstrip(" %"))


@click.command("lines")
@click.argument("name", type=click.Choice(list(HEADS)))
def lines(name: str) -> None:
    """Print the cells of each case of a table."""
    rows = ([case, *cells] for case, cells in load(name).items())
    print(pages.table(["case", *HEADS[name]], rows))
