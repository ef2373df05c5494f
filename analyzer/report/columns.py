"""Plain text within the columns there are: tables lose what matters least, sentences are continued on the
next line.

1. A table keeps all its columns where they fit. Otherwise those with the highest `rank` go first, and the
   column that may shrink takes what is left.
2. Sentences are broken between words where they are wider than that.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.report.words import tail


@dataclass(frozen=True, slots=True)
class Column:
    """width: with its gap. rank: which goes first without room, 0 stays. least: smallest width, 0: fixed.

    A column that may shrink is one of names: on the left, its text cut at the beginning.
    """

    title: str
    width: int
    rank: int = 0
    least: int = 0


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the title's line and a line a row; cells of columns that went are left out."""
    kept = _kept(columns, width)

    def cell(number: int, text: str) -> str:
        column = columns[number]
        if not column.least:
            return f"{text:>{column.width}}"
        room = room_of(column, columns, width)
        return f"{tail(text, room):<{room + 1}}"

    titles = [column.title for column in columns]
    return ["".join(cell(n, row[n]) for n in kept) for row in [titles, *rows]]


def room_of(column: Column, columns: Sequence[Column], width: int) -> int:
    """Return how many letters of a name in `column`, which may shrink, fit a table of this width."""
    fixed = sum(columns[n].width for n in _kept(columns, width) if not columns[n].least)
    return min(column.width, max(width - fixed, column.least)) - 1


def _kept(columns: Sequence[Column], width: int) -> list[int]:
    """Return the indices of the columns that fit; those with the highest rank go first."""
    kept = list(range(len(columns)))
    while sum(columns[n].least or columns[n].width for n in kept) > width:
        least_needed = max(kept, key=lambda n: columns[n].rank)
        if not columns[least_needed].rank:
            break
        kept.remove(least_needed)
    return kept


def within(lines: Sequence[str], width: int) -> list[str]:
    """Wrap lines to a width; continuation lines are indented by two more blanks."""
    fitting = []
    for line in lines:
        before = " " * (len(line) - len(line.lstrip()) + 2)
        broken = textwrap.wrap(line, width, subsequent_indent=before, break_on_hyphens=False)
        fitting += broken if len(line) > width else [line]
    return fitting
