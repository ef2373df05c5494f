"""What each strategy saves, predicted and measured on this machine's GPU: a row a strategy, for the committed record.

    python -m benchmarks what_if measure -o tests/data/h200/what_if.json [--jobs 8]

Every strategy `analyze what-if` names for RetinaNet, ViT and GPT-2 is run by `analyzer_verify` in a process of its own
(three steps, random weights). Needs an NVIDIA GPU and the packages the models need; about a minute a strategy. `score`
needs no GPU: it compares a record with today's predictions and exits with 1 when a saving is off by more than 0.5 % of the
base's device memory.
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT

JOBS: dict[str, dict[str, Any]] = {
    "retinanet_r50_fpn.py": {"batch": 8, "mode": "train", "optimizer": "adam"},
    "vit_b_16.py": {"batch": 64, "mode": "train", "optimizer": "adamw"},
    "gpt2.py": {"batch": 16, "mode": "train", "optimizer": "adamw"},
}
FIGURES = ("peak_allocated", "peak_reserved", "device_used")
ALLOWED = 0.005


def todo() -> list[dict[str, Any]]:
    """A row a model and strategy, nothing predicted yet."""
    from analyzer.options import Options
    from analyzer.pipeline import analysis
    from analyzer.planning.changes import variants

    rows = []
    for name, options in JOBS.items():
        target = ROOT / "models" / name
        said = Options.of({**options, "device": "h200"})
        for strategy, _, changes in [("as it is", 0, {}), *variants(analysis(target, said), said, target)]:
            if "parallel" in changes:  # measured by benchmarks/ranks, on machines with several GPUs
                continue
            rows.append({"model": name, "strategy": strategy, "options": {**options, **changes}})
    return rows


def predicted(row: dict[str, Any]) -> dict[str, Any]:
    """The row with what is predicted of it, or the error that was said."""
    import analyzer
    from analyzer.errors import AnalyzerError

    try:
        found = analyzer.analyze(ROOT / "models" / row["model"], device="h200", **row["options"])
    except AnalyzerError as error:
        return {**row, "error": error.message}
    return {**row, "predicted": {figure: getattr(found, figure) for figure in FIGURES}}


def measured(row: dict[str, Any]) -> dict[str, Any]:
    """The row with what `verify` predicts and measures of it on this machine's GPU, in a process of its own."""
    from analyzer_verify.verify import verify

    try:
        result = verify(
            ROOT / "models" / row["model"], graph=False, force=True, device="h200", **row["options"]
        )
    except Exception as error:  # a strategy that does not run is part of the record
        return {**row, "error": f"{type(error).__name__}: {error}"}
    if result.out_of_memory is not None:
        return {**row, "error": f"out of memory beside the other processes: {result.out_of_memory.message}"}
    return {
        **row,
        "predicted": {figure.name: figure.predicted for figure in result.figures},
        "measured": {figure.name: figure.measured for figure in result.figures},
        "environment": dict(result.environment),
    }


def measure(output: Path, jobs: int) -> None:
    """Measures every row that the record lacks, `jobs` at a time, and writes it after each."""
    before = json.loads(output.read_text()) if output.exists() else []
    done = [row for row in before if "measured" in row]
    known = {(row["model"], row["strategy"]) for row in done}
    missing = [row for row in todo() if (row["model"], row["strategy"]) not in known]
    with pool(jobs) as workers:
        for finished in as_completed([workers.submit(measured, row) for row in missing]):
            row = finished.result()
            done.append(row)
            print(
                f"{row['model']:<24} {row['strategy']:<50} {row.get('measured') or row.get('error')}",
                flush=True,
            )
            output.write_text(json.dumps(done, indent=1) + "\n")


def pool(jobs: int) -> ProcessPoolExecutor:
    """Fresh processes: torch's threads do not survive a fork."""
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))


def check(record: list[dict[str, Any]], jobs: int) -> int:
    """Savings of today's predictions beside the record's measurements; how many are off by more than `ALLOWED`."""
    rows = [
        {key: row[key] for key in ("model", "strategy", "options")} for row in record if "measured" in row
    ]
    with pool(jobs) as workers:
        today = {
            (row["model"], row["strategy"]): row.get("predicted") for row in workers.map(predicted, rows)
        }
    base = {row["model"]: row for row in record if row["strategy"] == "as it is"}
    off = 0
    for row in record:
        ours = today.get((row["model"], row["strategy"]))
        if ours is None or "measured" not in row:
            continue
        first = base[row["model"]]
        whole = _device(first["measured"])
        measured = whole - _device(row["measured"])
        told = today[row["model"], "as it is"]
        assert told is not None
        saved = told["device_used"] - ours["device_used"]
        error = (saved - measured) / whole
        off += abs(error) > ALLOWED
        print(
            f"{row['model']:<24} {row['strategy']:<50} saves {saved:>15,} measured {measured:>15,} {100 * error:+.2f} %"
        )
    return off


def _device(figures: dict[str, int]) -> int:
    """Device memory, by the name `verify` gives it."""
    return next(value for name, value in figures.items() if name.startswith("device"))


_OUTPUT = click.option("-o", "--output", type=Path, default=ROOT / "tests" / "data" / "h200" / "what_if.json")
_JOBS = click.option("--jobs", default=1, help="processes at once; figures are each process's own")


@click.command("measure")
@_OUTPUT
@_JOBS
def record(output: Path, jobs: int) -> None:
    """Run every strategy on this machine's GPU, and write the record."""
    measure(output, jobs)


@click.command("score")
@_OUTPUT
@_JOBS
def score(output: Path, jobs: int) -> int:
    """Compare a record with today's predictions; 1 when a saving is off by more than 0.5 % of the base's device memory."""
    return int(check(json.loads(output.read_text()), jobs) > 0)
