"""Measure the programs of `jobs.json` on as many GPUs as there are:
python benchmarks/ranks/measure.py OUT [NAME ...] [--log NAME ...]

--jobs targets.json: what `analyze TARGET --parallel` predicts instead (`programs/spread.py`; the repository on PYTHONPATH).

Each rank runs its program as it is, with the allocator's history recorded from the start and NVML polled. Writes
OUT/rows.json (a row a program and rank) and OUT/NAME.rankR.npz (the history). --log: these run once more with NCCL's own
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

HERE = Path(__file__).resolve().parent
RANK = """
import json, os, runpy, sys, threading, traceback
import numpy, pynvml, torch
out, program, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
device = int(os.environ["LOCAL_RANK"])
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(device)
def process_bytes():
    mine = [p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid == os.getpid()]
    return mine[0] if mine else 0
peak, stop = 0, threading.Event()
def watch():
    global peak
    while not stop.wait(0.02):
        peak = max(peak, process_bytes())
torch.cuda.set_device(device)
torch.cuda.memory._record_memory_history(max_entries=5_000_000, context=None)
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
sys.argv = [program, *arguments]
sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
row = {"rank": device, "world_size": int(os.environ["WORLD_SIZE"])}
try:
    runpy.run_path(program, run_name="__main__")
except BaseException:
    row["error"] = traceback.format_exc()[-2000:]
torch.cuda.synchronize()
row["nvml_end"] = process_bytes()
stop.set()
watcher.join()
found = torch.cuda.memory_stats(device)
row |= {"peak_allocated": found["allocated_bytes.all.peak"], "peak_reserved": found["reserved_bytes.all.peak"],
        "nvml_peak": max(peak, row["nvml_end"]), "torch": torch.__version__, "gpu": torch.cuda.get_device_name(device),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "packages": {name: sys.modules[name].__version__ for name in ("timm", "transformers") if name in sys.modules}}
trace = torch.cuda.memory._snapshot()["device_traces"][device]
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
                    [sys.executable, "-c", RANK, str(name), program, *job["args"]],
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
