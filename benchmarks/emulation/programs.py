"""The measured programs beside the same ones emulated: the second table of docs/EMULATION.md.

    python benchmarks/emulation/programs.py FOLDER PYTHON [NAME ...]

FOLDER: programs measured on an H200 (`programs/jobs.json`, `h200/programs/rows.json`). PYTHON: of an environment with torch
2.11.0+cu130 and what the programs need. NAME: only these are run anew, the others' rows are kept; NAME* for all that begin so.
"""

from __future__ import annotations

import fnmatch
import json
import re
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from analyzer.emulation.emulate import emulate
from analyzer.errors import AnalyzerError

PAGE = Path(__file__).parents[2] / "docs" / "EMULATION.md"
MARKS = re.compile(r"(<!-- programs: [^>]*-->\n).*?(<!-- /programs -->)", re.S)
FIGURES = {"peak_allocated": "peak_allocated", "peak_reserved": "peak_reserved", "device_used": "nvml_peak"}
MIB = 2**20
_ROW = re.compile(r"\| (\w+) \| ")


def row(folder: Path, python: str, job: dict[str, Any], measured: dict[str, Any]) -> str:
    """A program: what was measured in MiB, and how far what is emulated is off."""
    started = time.monotonic()
    try:
        found = emulate(
            folder / job["program"], job["args"], python=python, environment=job["environment"], device="h200"
        )
    except AnalyzerError as error:
        return f"| {job['name']} | - | - | - | {error.message[:60]} |"
    if found.incomplete and not found.out_of_memory:
        return f"| {job['name']} | - | - | - | {found.incomplete[:60].replace('|', ' ')} |"
    cells = []
    for mine, theirs in FIGURES.items():
        off = 100 * (getattr(found, mine) / measured[theirs] - 1)
        cells.append(f"{measured[theirs] / MIB:,.1f} MiB {'exact' if not off else f'{off:+.3f} %'}")
    return f"| {job['name']} | {' | '.join(cells)} | {time.monotonic() - started:.0f} s |"


def summary(rows: Iterable[str]) -> str:
    """How many are exact, and how far off the others are."""
    ran = [line for line in rows if "| - | - |" not in line]
    told = []
    for place, name in enumerate(("allocated", "reserved", "device")):
        cells = [line.split(" | ")[1 + place] for line in ran]
        off = sorted(
            0.0 if cell.endswith("exact") else abs(float(cell.split(" MiB ")[1].rstrip(" %")))
            for cell in cells
        )
        if off:
            told.append(
                f"{name}: {sum(not value for value in off)} of {len(off)} exact, median {statistics.median(off):.3f} %, most {off[-1]:.3f} %"
            )
    return "; ".join(told) + "."


def main() -> None:
    """Run and write."""
    folder, python, only = Path(sys.argv[1]), sys.argv[2], sys.argv[3:] or ["*"]
    page = PAGE.read_text("utf-8")
    part = MARKS.search(page)
    old = {found[1]: line for line in (part[0] if part else "").splitlines() if (found := _ROW.match(line))}
    measured = {
        row["name"]: row for row in json.loads((folder / "h200/programs/rows.json").read_text("utf-8"))
    }
    rows = []
    for job in json.loads((folder / "programs/jobs.json").read_text("utf-8")):
        if job["name"] in measured and any(fnmatch.fnmatch(job["name"], name) for name in only):
            old[job["name"]] = row(folder, python, job, measured[job["name"]])
            print(old[job["name"]], flush=True)
        if job["name"] in old:
            rows.append(old[job["name"]])
    table = "\n".join(
        [
            summary(rows),
            "",
            "| program | allocated | reserved | device | takes |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )
    PAGE.write_text(
        MARKS.sub(lambda found: f"{found[1]}{table}\n{found[2]}", PAGE.read_text("utf-8")), "utf-8"
    )


if __name__ == "__main__":
    main()
