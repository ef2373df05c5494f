"""docs/evidence/index.md: every page of evidence, its figure first. `python -m benchmarks evidence table` writes it.

`evidence.json` has for each page its title, where its figure stands, how it is said, and what the page is about. A figure is the
first place that a pattern finds; of a list of patterns, how many lines each finds; where it is said with thousands, the columns' sums
over all lines that the pattern finds.
"""

from __future__ import annotations

import json
import re

import click

from benchmarks import ROOT
from benchmarks.harness import pages

FOLDER = ROOT / "docs/evidence"
PAGE = FOLDER / "index.md"
HEAD = """# Evidence

What was measured, and what is known; the figure of each page first. Nothing here is needed to use `analyze`; nearly all of it is
written by the command that each page names, this page by `python -m benchmarks evidence table`, and tests hold it to the data.

"""


def figure(name: str, pattern: str | list[str], said: str) -> str:
    """Return the figure of a page. Raises ClickException where the page has it no longer."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    if isinstance(pattern, list):
        counts = [len(re.findall(rows, text, re.MULTILINE)) for rows in pattern]
        found = said.format(*counts) if counts[0] else None
    elif ":," in said:
        rows = [
            [int(cell.replace(",", "")) for cell in row] for row in re.findall(pattern, text, re.MULTILINE)
        ]
        found = said.format(*map(sum, zip(*rows, strict=True))) if rows else None
    else:
        first = re.search(pattern, text, re.DOTALL)
        found = None if first is None else said.format(*first.groups())
    if found is None:
        raise click.ClickException(f"{name} has no figure as benchmarks/evidence.json looks for it")
    return found


def index() -> str:
    """Return the page."""
    entries = json.loads((ROOT / "benchmarks/evidence.json").read_text(encoding="utf-8"))
    rows = [
        [figure(name, pattern, said), f"[{title}]({name})", about]
        for name, (title, pattern, said, about) in entries.items()
    ]
    return HEAD + pages.table(("figure", "page", "of what"), rows)


@click.command()
def table() -> None:
    """Write docs/evidence/index.md."""
    PAGE.write_text(index(), encoding="utf-8")
