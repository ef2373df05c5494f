"""What the programs of `jobs.json` take on this machine's GPU: python -m benchmarks programs measure OUT [NAME ...]

Each runs as it is (`tests/programs`), in a process of its own, recorded by `benchmarks/harness/recorded_run.py`. Writes OUT/rows.json
(a row a program, as in `tests/data/h200/programs.json`) and OUT/histories.tgz (NAME.npz).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import ROOT

PROGRAMS = ROOT / "tests/programs"
RECORDED = ROOT / "benchmarks/harness/recorded_run.py"
_SECONDS = 150


def run(job: dict[str, Any], out: Path) -> dict[str, Any]:
    """The row of one program."""
    name = out / job["name"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **job["environment"]}
    command = [sys.executable, str(RECORDED), str(name), str(PROGRAMS / job["program"]), *job["args"]]
    with Path(f"{name}.txt").open("w") as text:
        process = subprocess.Popen(command, env=environment, stdout=text, stderr=subprocess.STDOUT)
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    file = Path(f"{name}.json")
    return {**job, **(json.loads(file.read_text()) if file.exists() else {"error": "no answer"})}


def main() -> None:
    """Every job, a few at a time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=Path, default=ROOT / "benchmarks/programs/jobs.json")
    parser.add_argument("--at-once", type=int, default=4)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    jobs = [
        job for job in json.loads(given.jobs.read_text()) if not given.names or job["name"] in given.names
    ]
    started = time.time()
    with ThreadPoolExecutor(given.at_once) as pool:
        rows = list(pool.map(lambda job: run(job, given.out), jobs))
    (given.out / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
    with tarfile.open(given.out / "histories.tgz", "w:gz") as archive:
        for file in sorted(given.out.glob("*.npz")):
            archive.add(file, file.name)
    for row in rows:
        print(row["name"], row.get("peak_allocated"), row.get("nvml_peak"), row.get("error", "")[-300:])
    print(f"{time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
