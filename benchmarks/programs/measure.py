"""What the programs of `jobs.json` take on this machine's GPU: python -m benchmarks programs measure OUT [NAME ...]

Each runs as it is (`tests/programs`), in a process of its own, recorded by `benchmarks/harness/recorded_run.py`. Writes OUT/rows.json
(a row a program, as in `tests/data/h200/programs.json`) and OUT/histories.tgz (NAME.npz).
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness import recorded

PROGRAMS = ROOT / "tests/programs"
_SECONDS = 150


def run(job: dict[str, Any], out: Path) -> dict[str, Any]:
    """The row of one program."""
    name = out / job["name"]
    words = [str(PROGRAMS / job["program"]), *job["args"]]
    process = recorded.start(name, words, {"HF_HUB_OFFLINE": "1", **job["environment"]})
    return {**job, **recorded.ended(process, _SECONDS, name)}


@click.command()
@click.argument("out", type=Path)
@click.argument("names", nargs=-1)
@click.option("--jobs", type=Path, default=ROOT / "benchmarks/programs/jobs.json")
@click.option("--at-once", default=4)
def measure(out: Path, names: tuple[str, ...], jobs: Path, at_once: int) -> None:
    """Run every program, or those named, and write rows and histories."""
    out.mkdir(parents=True, exist_ok=True)
    chosen = [job for job in json.loads(jobs.read_text()) if not names or job["name"] in names]
    started = time.time()
    with ThreadPoolExecutor(at_once) as pool:
        rows = list(pool.map(lambda job: run(job, out), chosen))
    recorded.write_rows(out, rows)
    recorded.pack(out, sorted(out.glob("*.npz")))
    print(f"{time.time() - started:.0f} s")
