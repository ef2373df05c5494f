"""The page of PyTorch's own tests traced beside emulated: `python -m benchmarks operators table COMPARED.jsonl ...` (`compare.py`).

Of a case that is in several files the last one counts. Each case that differs stands under a reason (`REASONS`), or under none.
"""

from __future__ import annotations

import collections
import datetime
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks import ROOT
from benchmarks.harness.pages import MIB, table

PAGE = ROOT / "docs/evidence/DISPATCHER.md"
KINDS = ("same", "order", "sizes", "not followed", "emulator")
_CUDNN = "cuDNN's workspace, where it is a table's or a bound's on one side"
_NORMS = "its steps depend on the matrices' norms; bounded by those that take most, some small requests apart"
_DATA = "values decide how large a result is, and one of the two sides does not know them"
# Entry, or the beginning of its name -> why it differs.
REASONS = {
    "matrix_exp": _NORMS,
    "linalg.matrix_exp": _NORMS,
    "sparse.sampled_addmm": "products of what has elements are refused in plain words",
    "nonzero": _DATA,
    "unique": _DATA,
    "Rprop": "whether a gradient changed its sign is data, which steers what its state is multiplied by",
    "prod": "no element is taken to be zero, as in nearly every program; the emulated runtime takes all to be",
    "repeat_interleave": "the sample scaled contradicts itself: its result's size is not the sum of its repeats",
    "nn.functional.conv": _CUDNN,
    "nn.Conv": _CUDNN,
    "nn.functional.one_hot": "how many classes there are is data: each side takes another number",
    "linalg.lstsq": "cuSOLVER's V comes conjugated, which a formula reads in another order",
    "nn.functional.multilabel_margin_loss": "a copy of targets that are not contiguous",
    "nn.functional.soft_margin_loss": "a gradient that is not contiguous is copied at another moment",
    "multinomial": "probabilities that are not contiguous are copied for each check",
    "special.erfcx": "the emulated runtime was ended at its time limit",
    "view_copy": "PyTorch's kernel for meta tensors refuses what is not contiguous",
    "masked.prod": "the gradient of a single factor that keeps its dimension calls nothing of meta tensors",
}


class Row(NamedTuple):
    """A compared case."""

    torch: str
    case: tuple[Any, ...]
    sample: str
    kind: str
    at: str
    under_bytes: int

    @property
    def reason(self) -> str:
        """Why it differs; empty where nobody has said."""
        found = [said for name, said in REASONS.items() if self.case[1].startswith(name)]
        return found[-1] if found else ""


def read(paths: Sequence[Path]) -> list[Row]:
    """The cases of these files that PyTorch runs, each once."""
    found: dict[str, Row] = {}
    for path in paths:
        for line in path.read_text("utf-8").splitlines():
            row = Row(*json.loads(line))
            found[json.dumps([row.torch, row.case])] = row
    return [row for row in found.values() if row.kind in KINDS]


def page(rows: Sequence[Row], date: str) -> str:
    """The page."""
    groups: dict[tuple[Any, ...], list[Row]] = collections.defaultdict(list)
    for row in rows:
        database, _, dtype, scale, _, layout, way = row.case
        groups[row.torch, database, dtype, scale, f"{layout}, {way}"].append(row)
    counted = [(*key, *_counted(found)) for key, found in sorted(groups.items())]
    head = ("torch", "list", "type", "times the size", "layout, way", "cases", *KINDS, "same")
    differing = [row for row in rows if row.kind != "same"]
    over = sum(row.under_bytes > MIB for row in differing)
    worst = max(differing, key=lambda row: row.under_bytes, default=None)
    under = "" if worst is None else f"{worst.case[1]} ({worst.under_bytes:,} bytes)"
    return f"""# PyTorch's own tests, traced beside emulated

Written by `python -m benchmarks operators table` on {date}. A case is a call of PyTorch's own test lists
(`op_db`, `module_db`, `optim_db`) and its backward pass, as an H200's; *same*: the same requests to the
allocator in the same order, and the same order of returns, as by PyTorch's own host code under the emulated
runtime. What PyTorch refuses, scaled, counts for nothing.

{table(head, [*counted, ("all", "", "", "", "", *_counted(rows))])}
{f"Under by more than 1 MiB: {over}; worst {under}." if under else ""}

## What differs

{table(("entry", "cases", "how", "where first", "under by, bytes", "reason"), _entries(differing))}"""


def _entries(differing: Sequence[Row]) -> Iterator[tuple[object, ...]]:
    """The rows of the entries that differ."""
    entries: dict[str, list[Row]] = collections.defaultdict(list)
    for row in differing:
        entries[row.case[1]].append(row)
    for name, found in sorted(entries.items()):
        kinds = ", ".join(dict.fromkeys(row.kind for row in found))
        under = max(row.under_bytes for row in found)
        at = found[0].at.replace("|", "/")[:90]
        yield name, len(found), kinds, at, f"{under:,}", found[0].reason or "not yet found"


def _counted(rows: Sequence[Row]) -> tuple[str, ...]:
    kinds = collections.Counter(row.kind for row in rows)
    run = len(rows) - kinds["emulator"]
    counts = (f"{kinds[kind]:,}" for kind in KINDS)
    return f"{len(rows):,}", *counts, f"{100 * kinds['same'] / max(run, 1):.2f} %"


@click.command("table")
@click.argument("compared", nargs=-1, required=True, type=Path)
def main(compared: tuple[Path, ...]) -> None:
    """Write docs/evidence/DISPATCHER.md."""
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    PAGE.write_text(page(read(compared), date), encoding="utf-8")
