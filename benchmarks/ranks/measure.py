"""Measure the programs of `jobs.json` on as many GPUs as there are:
python -m benchmarks ranks measure OUT [NAME ...] [--log NAME ...]

--jobs targets.json: what `analyze TARGET --parallel` predicts instead (`programs/spread.py`; the repository on PYTHONPATH).

Each rank runs its program as it is, recorded by `benchmarks/harness/recorded_run.py`. Writes OUT/rows.json (a row a program and rank)
and OUT/NAME.rankR.npz (the history). --log: these run once more with NCCL's own
log of what it allocates, to OUT/NAME.nccl.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import ROOT

HERE = ROOT / "benchmarks/ranks"
RECORDED = ROOT / "benchmarks/harness/recorded_run.py"


def run(job: dict, out: Path, ranks: int, port: int, log: bool) -> list[dict]:
    """The rows of one program, a rank each."""
    processes = []
    for rank in range(ranks):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "NCCL_NVLS_ENABLE": "0",
            **({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ALLOC,GRAPH,P2P"} if log else {}),
        }
        name = out / f"{job['name']}.rank{rank}"
        program = str(HERE / "programs" / job["program"])
        with Path(f"{name}.txt").open("w") as text:
            processes.append(
                subprocess.Popen(
                    [sys.executable, str(RECORDED), str(name), program, *job["args"]],
                    env=environment,
                    stdout=text,
                    stderr=subprocess.STDOUT,
                )
            )
    rows = []
    for rank, process in enumerate(processes):
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
        file = out / f"{job['name']}.rank{rank}.json"
        row = json.loads(file.read_text()) if file.exists() else {"rank": rank, "error": "no answer"}
        rows.append({"name": job["name"], "args": job["args"], **row})
    return rows


def main() -> None:
    """Every job, a few at a time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="these programs; all of them, if none is named")
    parser.add_argument("--log", nargs="*", default=[])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--jobs", default="jobs.json")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    jobs = json.loads((HERE / arguments.jobs).read_text())
    jobs = [job for job in jobs if not arguments.names or job["name"] in arguments.names]
    jobs += [{**job, "name": f"{job['name']}.nccl"} for job in jobs if job["name"] in arguments.log]
    started = time.time()
    with ThreadPoolExecutor(arguments.at_once) as pool:
        found = pool.map(
            lambda pair: run(
                pair[1], arguments.out, arguments.ranks, 29600 + pair[0], pair[1]["name"].endswith(".nccl")
            ),
            enumerate(jobs),
        )
        rows = [row for rows in found for row in rows]
    (arguments.out / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
    for row in rows:
        print(
            row["name"],
            row["rank"],
            row.get("peak_allocated"),
            row.get("nvml_peak"),
            row.get("error", "")[-300:],
        )
    print(f"{time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
