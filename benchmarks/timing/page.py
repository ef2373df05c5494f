"""docs/evidence/TIMING.md: a part for each set of steps, with a line a kind of them; single steps are shown by `timing lines PART`.

Its other parts (pairs of ways, advice, cases drawn by lot) were run once and are kept as commit cf817472 wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness import pages
from benchmarks.timing import compiled_score, score

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
