"""Merge what cuDNN answered (`ask.py`) into the shipped table of workspaces.

Run: `python -m benchmarks cudnn merge ANSWERS.npz... --table h200 --output .../h200.convolutions.3.npz [--about '{"date": "..."}']`.
A further file of the table comes out (`analyzer/libraries/cudnn/shards.py`), and the files there are stay as they are. Rules:

1. Calls the table lacks are added, and vote on others: `votes.py` says how often the votes are right.
2. Calls the table has keep what is known of them; figures they lack (other settings, other plans) are added.
3. A first plan's workspace that is not what the table says is an error, and nothing is written: cuDNN answers the same
   question the same way, so one of the two files belongs to another version, GPU or list of calls.
4. A winner of benchmark mode's trials the table has stays: of plans that are equally fast now one wins and now the other.

With --new instead of --table the answers are a table of their own, whose first file comes out.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from analyzer.libraries.cudnn.shards import more
from analyzer.libraries.cudnn.table import (
    FASTEST,
    FIGURES,
    FIRST,
    NOT_ASKED,
    OPERATIONS,
    Measurements,
    member_of,
    write,
)
from benchmarks.cudnn.calls import GROUPS, Calls

Integers = npt.NDArray[np.int64]
# Family and batch in one number, so that calls sort as the table wants them.
_BATCHES = 1 << 20


@dataclass
class Group:
    """The calls of one dtype and layout: `keys` ascending, `figures` [calls, operations, figures]."""

    keys: Integers
    figures: Integers

    def add(self, keys: Integers, operations: Integers, told: Integers) -> int:
        """Put answers in (`told`: [answers, figures], bytes); how many first plans differ from those known."""
        new = np.setdiff1d(keys, self.keys)
        order = np.argsort(np.concatenate([self.keys, new]), kind="stable")
        unknown = np.full((len(new), *self.figures.shape[1:]), NOT_ASKED, np.int64)
        self.keys = np.concatenate([self.keys, new])[order]
        self.figures = np.concatenate([self.figures, unknown])[order]
        places = np.searchsorted(self.keys, keys)
        known = self.figures[places, operations]
        first = FIGURES.index(FIRST)
        both = (known[:, first] != NOT_ASKED) & (told[:, first] != NOT_ASKED)
        winner = FIGURES.index(FASTEST)
        told[:, winner] = np.where(known[:, winner] != NOT_ASKED, known[:, winner], told[:, winner])
        self.figures[places, operations] = np.where(told != NOT_ASKED, told, known)
        return int((both & (known[:, first] != told[:, first])).sum())


def read(table: Measurements | None, name: str) -> Group:
    """One dtype and layout of a table; `name`: "float32.nchw"."""
    if table is None or f"{name}.family" not in table.members:
        return Group(
            np.empty(0, np.int64),
            np.empty((0, len(OPERATIONS), len(FIGURES)), np.int64),
        )
    keys = table.array(f"{name}.family").astype(np.int64) * _BATCHES + table.array(f"{name}.batch")
    figures = np.full((len(keys), len(OPERATIONS), len(FIGURES)), NOT_ASKED, np.int64)
    for row, operation in enumerate(OPERATIONS):
        for column, figure in enumerate(FIGURES):
            if (member := member_of(name, operation, figure)) in table.members:
                figures[:, row, column] = table.array(member)
    return Group(keys, figures)


def merged(table: Measurements | None, answers: list[Path]) -> tuple[dict[str, np.ndarray[Any, Any]], int]:
    """The arrays of the table with the answers in it, and how many first plans contradict it."""
    families = [] if table is None else [tuple(family) for family in table.families.tolist()]
    rows = {family: row for row, family in enumerate(families)}
    groups = {name: read(table, name) for name in GROUPS}
    differ = 0
    for path in answers:
        calls, asked = Calls.read(path), np.load(path)["rows"]
        for family in map(tuple, calls.families.tolist()):
            if rows.setdefault(family, len(families)) == len(families):
                families.append(family)
        own = np.array([rows[tuple(family)] for family in calls.families.tolist()], np.int64)
        entries = calls.entries[asked[:, 0]].astype(np.int64)
        keys = own[entries[:, 0]] * _BATCHES + entries[:, 2]
        for number, name in enumerate(GROUPS):
            of_group = entries[:, 1] == number
            found = groups[name].add(keys[of_group], asked[of_group, 1], asked[of_group, 2:])
            print(f"{path.name} {name}: {int(of_group.sum()):,} answers, {found} differ", file=sys.stderr)
            differ += found
    return arrays_of(families, groups), differ


def arrays_of(families: list[tuple[int, ...]], groups: dict[str, Group]) -> dict[str, np.ndarray[Any, Any]]:
    """The members `Measurements` reads, without families nobody asked about."""
    used = np.unique(np.concatenate([group.keys // _BATCHES for group in groups.values()]))
    arrays: dict[str, np.ndarray[Any, Any]] = {"family": np.array([families[row] for row in used], np.int32)}
    for name, group in groups.items():
        if not len(group.keys):
            continue
        arrays[f"{name}.family"] = np.searchsorted(used, group.keys // _BATCHES).astype(np.int32)
        arrays[f"{name}.batch"] = (group.keys % _BATCHES).astype(np.int32)
        for row, operation in enumerate(OPERATIONS):
            for column, figure in enumerate(FIGURES):
                if (group.figures[:, row, column] != NOT_ASKED).any():
                    arrays[member_of(name, operation, figure)] = group.figures[:, row, column]
    return arrays


@click.command("merge")
@click.argument("answers", nargs=-1, required=True, type=Path)
@click.option("--table", "table_of", help="the device whose table gets a further file")
@click.option("--new", is_flag=True, help="a table of their own")
@click.option("--output", required=True, type=Path)
@click.option("--about", "about_json", default="{}", help="JSON")
def main(answers: tuple[Path, ...], table_of: str | None, new: bool, output: Path, about_json: str) -> int:
    """Write the answers as a further file of a table; 1 where one contradicts it."""
    if new == (table_of is not None):
        raise click.UsageError("either --table or --new")
    table = None if table_of is None else Measurements(table_of)
    arrays, differ = merged(table, answers)
    if differ:
        print(f"{differ} first plans are not what {table_of} says: nothing written", file=sys.stderr)
        return 1
    entries = sum(array.size for name, array in arrays.items() if name.endswith(".batch")) * len(OPERATIONS)
    counts = {"families": str(len(arrays["family"])), "entries": str(entries)}
    about = (table.about if table else {}) | counts | json.loads(about_json)
    # A file more beside the table, which stays as it is.
    told = more(arrays, table.joined, table.families) if table else arrays
    write(output, told, about)
    print(f"{output}: {entries:,} entries, {output.stat().st_size:,} bytes", file=sys.stderr)
    return 0
