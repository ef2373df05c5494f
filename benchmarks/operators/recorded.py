"""What is kept of PyTorch's own tests, traced beside emulated: `python -m benchmarks operators keep FILE ...`.

1. Two kinds of rows: what PyTorch's host code asked for in a case under the emulated runtime ("emulated", written by `emulate`), and how
   the traced side compares ("compared", written by `compare -o`; `Row`). `campaign` writes both.
2. A file holds one release's rows of one list, type and scale, as lines of JSON, compressed in members of gzip. Rows are added behind
   the others and none is taken away: of a case the last row counts, and of an entry those of the campaign that took most of its samples
   (a sample's number says which one it is only together with how many were taken).
"""

from __future__ import annotations

import collections
import gzip
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks import ROOT

KEPT = ROOT / "tests/data/emulation/lists"


class Row(NamedTuple):
    """A compared case. case: list, entry, type, scale, sample, layout and way; limit: how many samples of the entry were taken; date: of
    the comparison."""

    torch: str
    case: tuple[Any, ...]
    sample: str
    kind: str
    at: str
    under_bytes: int
    limit: int
    date: str


def lines(path: Path) -> list[Any]:
    """The rows of a file, compressed or not."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def compared_rows(paths: Iterable[Path]) -> list[Row]:
    """The compared cases of these files that count."""
    found = _latest(row for path in paths for row in lines(path))
    return [Row(torch, tuple(case), *rest) for torch, case, *rest in found]


def emulated_rows(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The emulated cases of these files that count, an entry's side by side."""
    rows: list[dict[str, Any]] = _latest(row for path in paths for row in lines(path))
    return sorted(rows, key=lambda row: json.dumps(row["case"][0]))  # a stable sort: samples stay in order


def kept(kind: str, under: Path = KEPT) -> list[Path]:
    """The files that are kept: "emulated" or "compared" ones."""
    return sorted((under / kind).glob("*.jsonl.gz"))


def add(rows: Sequence[Any], under: Path = KEPT) -> int:
    """Write rows behind those that are kept, without those that say what the last one of their case says. Returns how many were."""
    files: dict[Path, list[Any]] = collections.defaultdict(list)
    for row in rows:
        kind = "compared" if isinstance(row, list) else "emulated"
        torch, (database, _, dtype, scale, *_) = _torch(row), _case(row)
        if not torch:
            continue  # no sample could be made: nothing ran
        release = re.match(r"\d+\.\d+", torch)
        name = f"torch{release[0] if release else torch}_{database}_{dtype}_x{scale}.jsonl.gz"
        files[under / kind / name].append(row)
    written = 0
    for path, found in sorted(files.items()):
        before = {_key(row): _said(row) for row in lines(path)} if path.exists() else {}
        new = [row for row in _latest(found) if before.get(_key(row)) != _said(row)]
        written += len(new)
        if new:
            path.parent.mkdir(parents=True, exist_ok=True)
            append(path, new)
    return written


def append(path: Path, rows: Iterable[Any]) -> None:
    """Write rows behind a compressed file's others."""
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    with path.open("ab") as stream:
        stream.write(gzip.compress(text.encode(), mtime=0))


def _latest(rows: Iterable[Any]) -> list[Any]:
    """Of each case the last row, of each entry those of the largest limit."""
    last = {_key(row): row for row in rows}
    most: dict[Any, int] = collections.defaultdict(int)
    for torch, case, limit in last:
        entry = (torch, *case[:4], *case[5:])
        most[entry] = max(most[entry], limit)
    return [row for (torch, case, limit), row in last.items() if most[torch, *case[:4], *case[5:]] == limit]


def _key(row: Any) -> tuple[str, tuple[Any, ...], int]:
    return _torch(row), _case(row), row[6] if isinstance(row, list) else row["limit"]


def _torch(row: Any) -> str:
    found: str = row[0] if isinstance(row, list) else row.get("torch", "")
    return found


def _case(row: Any) -> tuple[Any, ...]:
    """List, entry, type, scale, sample, layout and way."""
    return tuple(row[1]) if isinstance(row, list) else (*row["case"][0], *row["case"][1:])


def _said(row: Any) -> Any:
    """What a row says, but when."""
    return row[:7] if isinstance(row, list) else row


@click.command("keep")
@click.argument("files", nargs=-1, required=True, type=Path)
def main(files: tuple[Path, ...]) -> None:
    """Add rows of `emulate`, `compare -o` or `campaign` to those that are kept in tests/data/emulation/lists."""
    for path in files:
        rows = lines(path)
        click.echo(f"{path}: {add(rows)} of {len(rows)} rows added")
