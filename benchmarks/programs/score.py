"""The programs of `tests/programs` as predicted, beside what they took on an H200.

    python -m benchmarks programs score [NAME ...] [--history]
    python -m benchmarks programs table                             # their part of docs/evidence/PROGRAMS.md

Measured: `tests/data/h200/programs.json`, by `measure.py` (its rows say with which GPU and versions). Each program is followed
in a process of its own. --history: where the predicted requests part from the recorded ones (`analyzer_verify/history.py`), which is
where a missing mechanism shows.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness import pages
from benchmarks.harness.processes import ProcessError, answer
from benchmarks.subjects.networks import torchvision_cpu

_TEXT = pages.prose(__file__)

DATA = ROOT / "tests/data/h200"
PAGE = ROOT / "docs/evidence/PROGRAMS.md"


def measured() -> list[dict[str, Any]]:
    """The rows of the recorded runs."""
    return list(json.loads((DATA / "programs.json").read_text()))


def predicted(row: dict[str, Any], history: bool) -> dict[str, Any]:
    """Figures of one program, followed in a process of its own; {"error": ...} where that failed."""
    try:
        alone = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
        return dict(answer("benchmarks.programs.score:one", row, history, environment=alone))
    except ProcessError as error:
        return {"error": " ".join(str(error).splitlines()[-2:])}


def one(row: dict[str, Any], history: bool) -> dict[str, Any]:
    """Follow a program here; with `history`, also where its requests part from the recorded ones."""
    from analyzer.options import Options
    from analyzer_programs.program import follow
    from analyzer_verify.history import compare_history

    torchvision_cpu.enable()
    program = ROOT / "tests/programs" / row["program"]
    analysis, _ = follow(
        program,
        row["args"],
        Options.of({"device": "h200"}),
        row.get("environment", {}),
        whole=history,
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


def tables(names: tuple[str, ...] = (), history: bool = False) -> str:
    """What the page says of these programs, all where none is named; a line each on stderr as it is known."""
    rows = [row for row in measured() if not names or row["name"] in names]
    if not rows:
        raise click.UsageError(f"no measured program is called {' or '.join(names)}")
    off = []
    with ThreadPoolExecutor(2) as pool:
        for row, found in zip(rows, pool.map(lambda row: predicted(row, history), rows), strict=True):
            off.append(pages.errors(found, row))
            line = f"| {row['name']} | {pages.cells(found, row, 'failed')} |"
            print(line, found.get("error", ""), flush=True, file=sys.stderr)
            if history:
                print(json.dumps(found, indent=1), file=sys.stderr)
    figures = pages.exactness({name: [each[name] for each in off] for name in pages.FIGURES})
    return f"{_TEXT['head']}{pages.table(pages.EXACTNESS, figures)}{_TEXT['why']}"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--history", is_flag=True, help="where the predicted requests part from the recorded ones")
def score(names: tuple[str, ...], history: bool) -> None:
    """Follow every program, or those named, and print the tables."""
    print(tables(names, history))


@click.command()
def table() -> None:
    """Follow every program, and write their part of the page."""
    pages.write_part(PAGE, "programs", tables())
