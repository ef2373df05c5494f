"""Run the experiments on this machine's GPU: `python -m benchmarks experiments measure OUT [PATTERN] [--jobs N]`.

Each case and script runs in a process of its own (`analyzer_verify.runs.jobs`); its raw result goes to OUT/NAME.json.gz with
the environment it was made in. Nothing is predicted here: `report.py` does that from these files.
"""

from __future__ import annotations

import fnmatch
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from analyzer.options import Options
from analyzer_verify.runs import execute, jobs, machine
from benchmarks import ROOT
from benchmarks.experiments.cases import CASES, MODELS, SCRIPTS, Case, Script
from benchmarks.harness import files

FOLDER = ROOT / "benchmarks/experiments"


def run_case(case: Case) -> dict[str, Any]:
    """The program as it is, and its captured graph."""
    options = Options(**case.options)
    job = jobs.describe(case.target, options)
    environment = jobs.environment_of(options)
    return {
        "program": jobs.run({**job, "kind": "pytorch"}, environment),
        "graph": jobs.run({**job, "kind": "graph"}, {**environment, **execute.ENVIRONMENT}),
    }


def run_script(script: Script) -> dict[str, Any]:
    """One function of `scripts.py`."""
    environment = {} if script.workspace is None else {"CUBLAS_WORKSPACE_CONFIG": script.workspace}
    job = {"kind": "script", "script": f"{FOLDER / 'scripts.py'}:{script.function}"}
    return {"program": jobs.run(job, environment)}


@click.command("measure")
@click.argument("out", type=Path)
@click.argument("pattern", default="*")
@click.option("--jobs", "at_once", default=1, help="processes at a time")
def main(out: Path, pattern: str, at_once: int) -> None:
    """Run what matches, and write one file each."""
    out.mkdir(parents=True, exist_ok=True)
    gpu = machine.require_cuda("an experiment")
    about = machine.fingerprint(gpu)
    models = [Case(f"model_{name}", "models", name, target, options) for name, target, options in MODELS]
    wanted = [entry for entry in (*CASES, *SCRIPTS, *models) if fnmatch.fnmatchcase(entry.name, pattern)]

    def one(entry: Case | Script) -> None:
        started = time.monotonic()
        result = run_case(entry) if isinstance(entry, Case) else run_script(entry)
        files.write(out / f"{entry.name}.json.gz", {"name": entry.name, "environment": about, **result})
        bad = [f"{kind}: {part['error']}" for kind, part in result.items() if "error" in part]
        print(f"{entry.name:<40} {time.monotonic() - started:6.1f} s  {'; '.join(bad) or 'ok'}", flush=True)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, wanted))
