"""Find the largest batch as a trial finder does, on this machine's GPU, under a limit of PyTorch's allocator.

    python -m benchmarks fit measure CASES.json -o TRIALS.json [--histories TRIALS.npz] [--seconds 150]

`CASES.json`: a list of {"model", "opt", "limit_mib", "start"} (`development.M` and `OPT`, or "torchvision:NAME"), each
with "batches" too where only these are to be tried. Three training steps a trial, in a process of its own, under
`torch.cuda.set_per_process_memory_fraction`; from `start` on the batch doubles until one fails, then bisection. What is written
has the form of `tests/data/h200/fit.json`; `--histories` keeps the allocator's history of the trials next to the answer.
Several cases run at once: what the allocator of one process may hold has nothing to do with the others.

A case without "limit_mib" has the whole GPU, and runs alone; "near" is a batch that should run and one that should not: what is between
them is bisected. The six of `tests/data/h100/fit_cases.json` (predicted: the largest batch, the first that fails), on an H100 that
nobody else uses, in some three minutes:

    python -m benchmarks fit measure tests/data/h100/fit_cases.json -o $OUT/fit.json --histories $OUT/fit.npz --at-once 1 --seconds 200
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from benchmarks.subjects.networks import development, kinds

MIB = 2**20
_STEPS = 3
# As `c10::cuda::CUDACachingAllocator::TraceEntry::Action` orders them, with the names `_snapshot` gives.
ACTIONS = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom", "segment_map", "segment_unmap", "snapshot",
)  # fmt: skip
Case = dict[str, Any]


def model_of(name: str) -> tuple[Callable[[], Any], Callable[[int], Any], Callable[..., Any]]:
    """make_model, make_batch and loss of a name."""
    if name.startswith("torchvision:"):
        return kinds.vision(name.partition(":")[2]), kinds.images, kinds.cross_entropy
    return development.M[name]


def readings() -> dict[str, int | None]:
    """What CUDA and NVML say of the GPU now, and what the allocator holds, in bytes; process: None where NVML shows no processes."""
    import pynvml

    free, total = torch.cuda.mem_get_info()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    own = [row for row in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if row.pid == os.getpid()]
    return {
        "total_memory": torch.cuda.get_device_properties(0).total_memory,
        "mem_get_info_total": total,
        "mem_get_info_free": free,
        "nvml_total": memory.total,
        "nvml_used": memory.used,
        "nvml_process": own[0].usedGpuMemory if own else None,
        "reserved": torch.cuda.memory_reserved(),
    }


def trial(case: Case, batch: int, folder: Path) -> None:
    """Three steps in this process; writes `trial.json` and `trial.npz` into `folder`."""
    torch.manual_seed(0)
    make_model, make_batch, loss_of = model_of(case["model"])
    torch.cuda.init()
    device = {"fresh": readings()}
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    device["first kernel"] = readings()
    if "limit_mib" in case:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(case["limit_mib"] * MIB / total)
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(max_entries=2_000_000, context=None)
    found: dict[str, Any] = {"ok": True}
    peaks: list[tuple[int, int]] = []
    try:
        model = make_model().to("cuda").train()
        given, wanted = make_batch(batch)
        optimizer = development.OPT[case["opt"]](model.parameters())
        for _ in range(_STEPS):
            torch.cuda.reset_peak_memory_stats()
            inputs = [x.to("cuda") for x in given]
            target = wanted.to("cuda")
            optimizer.zero_grad()
            output = model(*inputs)
            if isinstance(output, tuple):
                output = output[0]
            loss = loss_of(output, target)
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
            peaks.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
        found |= {"reserved": max(held for _, held in peaks), "allocated": max(used for used, _ in peaks)}
    except RuntimeError as error:  # a library without room for a handle says so in its own words
        found = {"ok": False, "message": str(error)[:300]}
    statistics = torch.cuda.memory_stats()
    found |= {"retries": statistics["num_alloc_retries"], "refused": statistics["num_ooms"]}
    found["device"] = device | {"end": readings()}
    traces = torch.cuda.memory._snapshot()["device_traces"][0]
    addresses: dict[int, int] = {}
    np.savez_compressed(
        folder / "trial.npz",
        act=np.array([ACTIONS.index(entry["action"]) for entry in traces], np.int8),
        addr=np.array(
            [addresses.setdefault(entry.get("addr", -1), len(addresses)) for entry in traces], np.int32
        ),
        size=np.array([entry["size"] for entry in traces], np.int64),
        base=np.array(list(addresses), np.int64),
    )
    (folder / "trial.json").write_text(json.dumps(found))


class Trials:
    """Trials of many cases, several at once; `results` in the form of `fit.json`, `histories` by "MODEL.BATCH"."""

    def __init__(self, seconds: float) -> None:
        self.results: list[dict[str, Any]] = []
        self.histories: dict[str, dict[str, Any]] = {}
        self._end = time.monotonic() + seconds
        self._lock = threading.Lock()

    def search(self, case: Case) -> None:
        """All trials of a case. Stops where the time is over, and says so (`stopped`)."""
        tried: dict[int, dict[str, Any]] = {}

        def runs(batch: int) -> bool:
            if batch not in tried:
                if time.monotonic() > self._end:
                    raise TimeoutError
                tried[batch] = self._run(case, batch)
                print(case["model"], batch, tried[batch], flush=True)
            return bool(tried[batch]["ok"])

        def bisect(low: int, high: int) -> None:
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if runs(middle) else (low, middle)

        stopped = False
        try:
            if "batches" in case:
                for batch in case["batches"]:
                    runs(batch)
            elif "near" in case:
                low, high = case["near"]
                while low and not runs(low):
                    low, high = low - 1, low
                while runs(high):
                    low, high = high, high + 1
                bisect(low, high)
            else:
                low, high = 0, case["start"]
                while runs(high):
                    low, high = high, 2 * high
                bisect(low, high)
        except TimeoutError:
            stopped = True
        largest = max((batch for batch, found in tried.items() if found["ok"]), default=0)
        for batch in [batch for batch in tried if "batches" not in case and abs(batch - largest) > 1]:
            self.histories.pop(f"{case['model']}.{batch}", None)
        entry = {
            "case": case,
            "largest": largest,
            "trials": {str(batch): tried[batch] for batch in sorted(tried)},
        }
        with self._lock:
            self.results.append(entry | ({"stopped": True} if stopped else {}))

    def _run(self, case: Case, batch: int) -> dict[str, Any]:
        """One trial in a forked process, which takes its imports with it and starts CUDA itself."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with self._lock:
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        if "conf" in case:
                            os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = case[
                                "conf"
                            ]
                        trial(case, batch, folder)
                        code = 0
                    except BaseException as error:
                        print(case["model"], batch, repr(error)[:300], flush=True)
                    finally:
                        os._exit(code)
            os.waitpid(child, 0)
            if not (folder / "trial.json").exists():
                return {"ok": False, "message": "the process died"}
            with np.load(folder / "trial.npz") as recorded:
                self.histories[f"{case['model']}.{batch}"] = dict(recorded)
            found: dict[str, Any] = json.loads((folder / "trial.json").read_text())
            return found


@click.command("measure")
@click.argument("cases_file", metavar="CASES.json", type=Path)
@click.option("-o", "--output", type=Path, required=True)
@click.option("--histories", type=Path)
@click.option("--seconds", default=150.0)
@click.option("--at-once", default=11)
def main(cases_file: Path, output: Path, histories: Path | None, seconds: float, at_once: int) -> None:
    """Search the largest batch of every case, several at once."""
    cases = json.loads(cases_file.read_text())
    for case in cases:  # imported once, before any process is forked
        with torch.device("meta"), contextlib.suppress(NotImplementedError):
            model_of(case["model"])[0]()
    trials = Trials(seconds)
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(trials.search, cases))
    trials.results.sort(key=lambda entry: entry["case"]["model"])
    output.write_text(json.dumps(trials.results, indent=1) + "\n")
    if histories is not None:
        arrays = {
            f"{trial}.{name}": values
            for trial, recorded in sorted(trials.histories.items())
            for name, values in recorded.items()
        }
        np.savez_compressed(histories, allow_pickle=False, **arrays)
