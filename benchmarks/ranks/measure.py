"""Measure the programs of `jobs.json` on as many GPUs as there are:
python -m benchmarks ranks measure OUT [NAME ...] [--log NAME] ...

--jobs targets.json: what `analyze TARGET --parallel` predicts instead (`programs/spread.py`; the repository on PYTHONPATH).

Each rank runs its program as it is, recorded by `benchmarks/harness/recorded_run.py`. Writes OUT/rows.json (a row a program and rank)
and OUT/NAME.rankR.npz (the history). --log: these run once more with NCCL's own
log of what it allocates, to OUT/NAME.nccl.txt.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from benchmarks import SUBJECTS
from benchmarks.harness import recorded

HERE = SUBJECTS / "ranks"
_SECONDS = 120
_NCCL_LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ALLOC,GRAPH,P2P"}


def run(job: dict[str, Any], out: Path, ranks: int, port: int, log: bool) -> list[dict[str, Any]]:
    """The rows of one program, a rank each."""
    names = [out / f"{job['name']}.rank{rank}" for rank in range(ranks)]
    words = [str(HERE / "programs" / job["program"]), *job["args"]]
    processes = [
        recorded.start(name, words, {**recorded.world(rank, ranks, port), **(_NCCL_LOG if log else {})})
        for rank, name in enumerate(names)
    ]
    found = [recorded.ended(process, _SECONDS, name) for process, name in zip(processes, names, strict=True)]
    told = {"name": job["name"], "args": job["args"]}
    return [{**told, "rank": rank, **row} for rank, row in enumerate(found)]


@click.command()
@click.argument("out", type=Path)
@click.argument("names", nargs=-1)
@click.option("--log", multiple=True, help="programs that run once more with NCCL's log")
@click.option("--ranks", default=2)
@click.option("--at-once", default=4)
@click.option("--jobs", default="jobs.json")
def measure(
    out: Path, names: tuple[str, ...], log: tuple[str, ...], ranks: int, at_once: int, jobs: str
) -> None:
    """Run every program, or those named, and write a row a rank, and the histories."""
    out.mkdir(parents=True, exist_ok=True)
    chosen = [job for job in json.loads((HERE / jobs).read_text()) if not names or job["name"] in names]
    chosen += [{**job, "name": f"{job['name']}.nccl"} for job in chosen if job["name"] in log]
    started = time.time()

    def one(numbered: tuple[int, dict[str, Any]]) -> list[dict[str, Any]]:
        number, job = numbered
        return run(job, out, ranks, 29600 + number, job["name"].endswith(".nccl"))

    with ThreadPoolExecutor(at_once) as pool:
        rows = [row for rows in pool.map(one, enumerate(chosen)) for row in rows]
    recorded.write_rows(out, rows)
    print(f"{time.time() - started:.0f} s")
