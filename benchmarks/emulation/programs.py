"""The measured programs beside the same ones emulated: three tables of docs/evidence/EMULATION.md.

    python -m benchmarks emulation programs FOLDER PYTHON [NAME ...]

FOLDER: programs measured on an H200 (`programs/jobs.json`, `h200/programs/rows.json`) and on two (`programs/jobs_x2.json`,
`h200/programs_x2/rows.json`), whose ranks are a row each, "ddp rank 0"; the last table is of `benchmarks/ranks`. PYTHON: of an environment with torch
2.11.0+cu130 and what the programs need. NAME: only these are run anew, the others' rows are kept (`kept.py`); NAME* for all that begin so.
"""

from __future__ import annotations

import fnmatch
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from analyzer import emulate
from analyzer.errors import AnalyzerError
from benchmarks import ROOT, SUBJECTS
from benchmarks.emulation import kept
from benchmarks.harness import pages

# A table's name -> where its programs lie (None: FOLDER), what ran, and what was measured.
TABLES = {
    "programs": (None, "programs/jobs.json", "h200/programs/rows.json"),
    "ranks": (None, "programs/jobs_x2.json", "h200/programs_x2/rows.json"),
    "other ranks": (SUBJECTS / "ranks", "jobs.json", str(ROOT / "tests/data/h200/ranks.json")),
}
FIGURES = {"peak_allocated": "peak_allocated", "peak_reserved": "peak_reserved", "device_used": "nvml_peak"}


def name_of(row: dict[str, Any]) -> str:
    """A measured row's name, with its rank where it has one."""
    return row["name"] if ranks_of(row) == 1 else f"{row['name']} rank {row['rank']}"


def ranks_of(row: dict[str, Any]) -> int:
    """How many ranks there were."""
    return int(row.get("world") or row.get("world_size") or 1)


def row(folder: Path, python: str, job: dict[str, Any], measured: dict[str, Any]) -> list[str]:
    """A program: what was measured in MiB, and how far what is emulated is off."""
    ranks, started = ranks_of(measured), time.monotonic()
    try:
        found = emulate(
            next(
                path
                for path in (folder / job["program"], folder / "programs" / job["program"])
                if path.exists()
            ),
            job["args"],
            python=python,
            environment=job.get("environment"),
            device="h200",
            ranks=ranks if ranks > 1 else None,
            rank=measured["rank"] if ranks > 1 else 0,
        )
    except AnalyzerError as error:
        return [*"---", error.message[:60]]
    if found.incomplete and not found.out_of_memory:
        return [*"---", found.incomplete[:60].replace("|", " ")]
    cells = []
    for mine, theirs in FIGURES.items():
        off = 100 * (getattr(found, mine) / measured[theirs] - 1)
        cells.append(f"{measured[theirs] / pages.MIB:,.1f} MiB {'exact' if not off else f'{off:+.3f} %'}")
    return [*cells, f"{time.monotonic() - started:.0f} s"]


def text(cases: Sequence[kept.Case]) -> str:
    """The table of the programs by what they run, which their names begin with."""
    return kept.by_kind(cases, lambda case: case.split(" ")[0].split("_")[0])


def table(folder: Path, python: str, only: Sequence[str], name: str) -> None:
    """Write one of the tables anew."""
    own, jobs_file, measured_file = TABLES[name]
    folder, old, rows = own or folder, kept.load(name), {}
    jobs = {job["name"]: job for job in json.loads((folder / jobs_file).read_text("utf-8"))}
    measured = json.loads((folder / measured_file).read_text("utf-8"))
    measured.sort(key=lambda row: list(jobs).index(row["name"]))
    for one in measured:
        named = name_of(one)
        if any(fnmatch.fnmatch(named, pattern) for pattern in only):
            old[named] = row(folder, python, jobs[one["name"]], one)
            print(named, *old[named], flush=True)
        if named in old:
            rows[named] = old[named]
    kept.keep(name, rows, text)


@click.command("programs")
@click.argument("folder", type=Path)
@click.argument("python")
@click.argument("names", nargs=-1)
def main(folder: Path, python: str, names: tuple[str, ...]) -> None:
    """Emulate the measured programs, all or those named, and write their three tables."""
    for name in TABLES:
        table(folder, python, names or ("*",), name)
