"""The programs of `tests/programs` as predicted, beside what they took on an H200.

    python -m benchmarks programs score [NAME ...] [-o docs/evidence/PROGRAMS.md] [--history]

Measured: `tests/data/h200/programs.json`, by `measure.py` (its rows say with which GPU and versions). Each program is followed
in a process of its own. --history: where the predicted requests part from the recorded ones (`verify/history.py`), which is
where a missing mechanism shows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.networks import torchvision_cpu

DATA = ROOT / "tests/data/h200"
FIGURES = ("allocated", "reserved", "device")
_MEASURED = {"allocated": "peak_allocated", "reserved": "peak_reserved", "device": "nvml_peak"}
MIB = 2**20
_HEAD = """# Programs, predicted and measured

Each program of `tests/programs`, run as it is on one H200 (driver 580, torch 2.11.0+cu130, 22 November 2026) and followed by
`analyze run` on a machine without one. Made by `python -m benchmarks programs table`, never edited; the
figures are predicted with the torch that is installed, 2.13 here.

"""
_PUBLIC = "<!-- public programs"
_WHY = """
What is not exact, and why:

- `word_vectors`, `recommendation_sparse` and other sparse gradients: how many rows of a batch differ is bounded by how many there
  are, and counted as bounded.
- `geometric_sage`, `geometric_sage_whole`, `geometric_gat`, `closures_line_search`: how many neighbours are drawn, and steps a line search tries,
  is data; the estimate names the lines.
"""
_TABLE = """
MiB measured, and how far the prediction is from it:

| program | allocated | | reserved | | device | |
|---|---|---|---|---|---|---|
"""


def measured() -> list[dict[str, Any]]:
    """The rows of the recorded runs."""
    return list(json.loads((DATA / "programs.json").read_text()))


def predicted(row: dict[str, Any], history: bool) -> dict[str, Any]:
    """Figures of one program, followed in a process of its own; {"error": the last line it said} where that failed."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.programs.score", "--one", row["name"], *(["--history"] if history else [])],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("@@")]
    if lines:
        return dict(json.loads(lines[-1][2:]))
    return {"error": " ".join(done.stderr.strip().splitlines()[-2:]) or "no answer"}


def one(row: dict[str, Any], history: bool) -> dict[str, Any]:
    """Follow a program here; with `history`, also where its requests part from the recorded ones."""
    from analyzer.options import Options
    from analyzer.pipeline.program import follow
    from analyzer.verify.history import compare_history

    torchvision_cpu.enable()
    program = ROOT / "tests/programs" / row["program"]
    analysis, _ = follow(
        program, row["args"], Options.of({"device": "h200"}), row.get("environment", {}), whole=history
    )
    estimate = analysis.estimate
    found: dict[str, Any] = {
        "allocated": estimate.peak_allocated,
        "reserved": estimate.peak_reserved,
        "device": estimate.device_used,
        "notes": estimate.notes,
        "bounded": estimate.certainty.bounded,
    }
    if history:
        compared = compare_history(analysis.prediction.events, recorded(row["name"]), analysis.graph)
        found["first"] = None if compared.first is None else str(compared.first)
        found |= {"missing": compared.missing, "extra": compared.extra}
        found["requests"] = [compared.predicted_count, compared.recorded_count]
    return found


def recorded(name: str) -> list[int]:
    """The history of one program: n for a request of n bytes, -(k + 1) for the k-th given back."""
    from tests.allocators.pytorch.histories import histories

    told: list[int] = []
    count = 0
    for action, value, _ in histories("kinds_of_programs")[name].events:
        if action == 0:
            told.append(value)
            count += 1
        elif action == 1:
            told.append(value - count - 1)  # so many requests ago
    return told


def errors(row: dict[str, Any], found: dict[str, Any]) -> dict[str, float]:
    """How far each figure is from what was measured, in percent; a failure counts as 100."""
    return {
        name: 100.0 if "error" in found else 100 * (found[name] / row[_MEASURED[name]] - 1)
        for name in FIGURES
    }


def line(row: dict[str, Any], found: dict[str, Any]) -> str:
    """The program's row of the table."""
    off = errors(row, found)
    cells = [
        f"{row[_MEASURED[name]] / MIB:,.1f} | "
        + ("failed" if "error" in found else "exact" if not off[name] else f"{off[name]:+.2f} %")
        for name in FIGURES
    ]
    return f"| {row['name']} | {' | '.join(cells)} |"


def summary(all_errors: list[dict[str, float]]) -> str:
    """How many are exact, and the middle and far end of the errors."""
    text = "| figure | byte-exact | median % | 95th percentile % | maximum % |\n|---|---|---|---|---|\n"
    for name in FIGURES:
        off = sorted(abs(row[name]) for row in all_errors)
        far = off[min(len(off) - 1, int(0.95 * len(off)))]
        exact = f"{sum(not value for value in off)} of {len(off)}"
        text += f"| {name} | {exact} | {statistics.median(off):.3f} | {far:.3f} | {off[-1]:.3f} |\n"
    return text


def main() -> None:
    """Print or write the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("-o", type=Path)
    parser.add_argument("--history", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    rows = [row for row in measured() if not given.names or row["name"] in given.names]
    if given.one:
        row = next(row for row in rows if row["name"] == given.one)
        print("@@" + json.dumps(one(row, given.history)))
        return
    lines, off = [], []
    with ThreadPoolExecutor(2) as pool:
        for row, found in zip(rows, pool.map(lambda row: predicted(row, given.history), rows), strict=True):
            lines.append(line(row, found))
            off.append(errors(row, found))
            print(lines[-1], found.get("error", ""), flush=True, file=sys.stderr)
            if given.history:
                print(json.dumps(found, indent=1), file=sys.stderr)
    text = _HEAD + summary(off) + _TABLE + "\n".join(lines) + "\n" + _WHY
    if given.o:
        before = given.o.read_text() if given.o.exists() else ""
        _, mark, public = before.partition(_PUBLIC)  # made by benchmarks/public/score.py
        given.o.write_text(f"{text}\n{mark}{public}" if mark else text)
    else:
        print(text)


if __name__ == "__main__":
    main()
