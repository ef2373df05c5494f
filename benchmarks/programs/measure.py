"""What the programs of `jobs.json` take on this machine's GPU: python benchmarks/programs/measure.py OUT [NAME ...]

Each runs as it is (`tests/programs`), in a process of its own, with the allocator's history recorded from the start and NVML
polled. Writes OUT/rows.json (a row a program, as in `tests/data/h200/programs.json`) and OUT/histories.tgz (NAME.npz: `act`
indexes `actions`, `addr` indexes `base`, `size` as requested, as taken for segments; `stream` 0 is the first seen).
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

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE.parents[1] / "tests/programs"
_SECONDS = 150
RUN = """
import json, os, runpy, sys, threading, time, traceback
import numpy, pynvml, torch
out, program, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
def process_bytes():
    mine = [p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid == os.getpid()]
    return mine[0] if mine else 0
peak, stop = 0, threading.Event()
def watch():
    global peak
    while not stop.wait(0.02):
        peak = max(peak, process_bytes())
torch.cuda.set_device(0)
torch.cuda.memory._record_memory_history(max_entries=5_000_000, context=None)
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
sys.argv = [program, *arguments]
sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
row = {}
try:
    runpy.run_path(program, run_name="__main__")
except BaseException:
    row["error"] = traceback.format_exc()[-2000:]
torch.cuda.synchronize()
end = process_bytes()
stop.set()
watcher.join()
found = torch.cuda.memory_stats()
row |= {"peak_allocated": found["allocated_bytes.all.peak"], "peak_reserved": found["reserved_bytes.all.peak"],
        "reserved_end": found["reserved_bytes.all.current"], "nvml_peak": max(peak, end),
        "retries": found["num_alloc_retries"], "ooms": found["num_ooms"], "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(), "gpu": torch.cuda.get_device_name(), "date": time.strftime("%Y-%m-%d")}
trace = torch.cuda.memory._snapshot()["device_traces"][0]
row["events"] = len(trace)
actions = sorted({e["action"] for e in trace})
where, streams = {}, {}
numpy.savez_compressed(out + ".npz", actions=numpy.array(actions),
    act=numpy.array([actions.index(e["action"]) for e in trace], dtype=numpy.int8),
    addr=numpy.array([where.setdefault(e["addr"], len(where)) for e in trace], dtype=numpy.int32),
    base=numpy.array(sorted(where, key=where.get), dtype=numpy.int64),
    size=numpy.array([e["size"] for e in trace], dtype=numpy.int64),
    stream=numpy.array([streams.setdefault(e["stream"], len(streams)) for e in trace], dtype=numpy.int16))
json.dump(row, open(out + ".json", "w"))
"""


def run(job: dict[str, Any], out: Path) -> dict[str, Any]:
    """The row of one program."""
    name = out / job["name"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **job["environment"]}
    command = [sys.executable, "-c", RUN, str(name), str(PROGRAMS / job["program"]), *job["args"]]
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
    parser.add_argument("--jobs", type=Path, default=HERE / "jobs.json")
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
