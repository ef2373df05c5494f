"""docs/evidence/TIMING.md: a part for each set of steps, with a line a kind of them; single steps are shown by `timing lines PART`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness import pages
from benchmarks.harness.files import read
from benchmarks.timing import advise, advise_compiled, compiled_score, compiled_ways, fresh, score, strategies

PAGE = ROOT / "docs" / "evidence" / "TIMING.md"
_LINES = score.table_of
# What was recorded, mostly with what is said of it now; the part's text, and its single lines, of that.
PARTS: dict[str, tuple[Callable[..., Any], Callable[[Any], str], Callable[[Any], str]]] = {
    "h100": (score.rows, partial(score.section, "h100"), _LINES),
    "h200": (
        lambda only="": [*score.rows(only, "h200"), *(() if only else compiled_score.rows("h200"))],
        partial(score.section, "h200"),
        _LINES,
    ),
    "compiled": (compiled_score.rows, compiled_score.section, _LINES),
    "ways": (compiled_ways.ways, compiled_ways.section, compiled_ways.lines),
    "compiled_advice": (
        lambda: read(advise_compiled.RECORD),
        advise_compiled.section,
        advise_compiled.lines,
    ),
    **{
        draw: (
            partial(fresh.rows, draw),
            partial(fresh.section, draw),
            lambda rows: _LINES([*rows[0], *rows[1]]),
        )
        for draw in fresh.DRAWS
    },
    "advice": (lambda: read(advise.RECORD), advise.section, advise.lines),
    "strategies": (lambda: strategies.predicted(strategies.recorded()), strategies.section, strategies.lines),
}


def text_of(name: str, evidence: Any) -> str:
    """A part's text, with the command that shows its single lines."""
    return f"{PARTS[name][1](evidence)}\n\nLine by line: `python -m benchmarks timing lines {name}`."


@click.command("table")
@click.argument("names", nargs=-1, type=click.Choice(list(PARTS)))
def table(names: Sequence[str]) -> None:
    """Write docs/evidence/TIMING.md anew, or these parts of it."""
    for name in names or PARTS:
        pages.write_part(PAGE, name, text_of(name, PARTS[name][0]()))


@click.command("lines")
@click.argument("name", type=click.Choice(list(PARTS)))
@click.option("--only", default="", help="of h100 and h200: eager steps whose line has this in it")
def lines(name: str, only: str) -> None:
    """Print a part's single steps, which its table counts."""
    evidence, _, shown = PARTS[name]
    print(shown(evidence(only) if only else evidence()))
