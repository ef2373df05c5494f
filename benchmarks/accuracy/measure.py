"""Measure a held-out set on this machine's GPU: `python benchmarks/accuracy/measure.py OUT_FOLDER [--workers N] [--set held_out_3]`.

Each case runs in a process of its own: the step of `analyzer/capture/pytorch/module/step.py` on real CUDA tensors, random weights.
Written: `SET.json` (a row a case: peaks, marks, NVML, versions) and `SET_histories.npz` (the allocator's own sequence of
allocations and frees, `NNN_act` +1/-1 and `NNN_size`, in order; `NNN_id` pairs a free with its allocation).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pynvml
import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from cases import SETS  # noqa: E402
from sets import zoo  # noqa: E402

from analyzer.capture.pytorch.module.step import Step, run  # noqa: E402

_PACKAGES = ("timm", "transformers", "torchvision", "monai")
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Observer:
    """Stands where the recorder stands in a capture and reads the real allocator's counters."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, int, int, int]] = []
        self.peaks: list[tuple[int, int]] = []
        self.phase: Any = None

    @property
    def step(self) -> int:
        return len(self.peaks)

    @step.setter
    def step(self, _iteration: int) -> None:
        self.close()
        torch.cuda.reset_peak_memory_stats()

    def close(self) -> None:
        """An iteration is over."""
        torch.cuda.synchronize()
        self.peaks.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))

    def mark(self, name: str) -> None:
        c = torch.cuda
        self.marks.append((name, c.memory_allocated(), c.max_memory_allocated(), c.memory_reserved()))

    def label(self, *_: Any) -> None:
        pass


def nvml() -> int:
    """Bytes NVML counts for this process."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    rows = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return sum(row.usedGpuMemory for row in rows if row.pid == os.getpid())


def measure(case: dict[str, Any], set_name: str) -> tuple[dict[str, Any], list[Any]]:
    """One case of a set in this process: its row and its allocation history."""
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    context = nvml()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(max_entries=2_000_000, context=None)
    models = zoo(set_name)
    make_model, make_batch, loss = models.M[case["model"]]
    train = case["mode"] == "train"
    model = make_model()
    inputs, target = make_batch(case["batch"])
    dtype = TYPES.get(case.get("dtype", ""))
    if dtype:
        model = model.to(dtype)
        inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    if case.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
        inputs = tuple(x.to(memory_format=torch.channels_last) for x in inputs)
    observer = Observer()
    step = Step(
        model,
        inputs,
        (target,) if train else (),
        loss,
        models.OPT[case["opt"]],
        train,
        case.get("amp"),
        case.get("accum", 1),
        3,
    )
    run(step, observer)  # type: ignore[arg-type]
    observer.close()
    used = nvml()
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    row = {
        "case": case,
        "peak_allocated": max(p[0] for p in observer.peaks[1:]),
        "peak_reserved": max(p[1] for p in observer.peaks[1:]),
        "marks": observer.marks,
        "nvml_process": {"context": [context], "end": [used]},
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "packages": {name: sys.modules[name].__version__ for name in _PACKAGES if name in sys.modules},
        "date": time.strftime("%Y-%m-%d"),
    }
    return row, [(e["action"], e["addr"], e["size"]) for e in history]


def pairs(history: list[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """As arrays: `act` +1 allocation, -1 completed free; `size` requested bytes; `id` the allocation's number."""
    rows: list[tuple[int, int, int]] = []
    live: dict[int, int] = {}
    count = 0
    for action, address, nbytes in history:
        if action == "alloc":
            live[address] = count
            rows.append((1, nbytes, count))
            count += 1
        elif action == "free_completed" and address in live:
            rows.append((-1, nbytes, live.pop(address)))
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return {"act": table[:, 0].astype(np.int8), "size": table[:, 1], "id": table[:, 2].astype(np.int32)}


def child(case: str, set_name: str, out: str) -> None:
    """`measure` for one case given as JSON, written to OUT.json and OUT.npz."""
    try:
        row, history = measure(json.loads(case), set_name)
        np.savez_compressed(out + ".npz", **pairs(history))
    except Exception as error:
        row = {
            "case": json.loads(case),
            "error": repr(error)[:400],
            "traceback": traceback.format_exc()[-1200:],
        }
    Path(out + ".json").write_text(json.dumps(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--set", choices=SETS, default="held_out", dest="name")
    parser.add_argument("--seconds", type=float, default=3600, help="no case is begun after these")
    parser.add_argument("--child")
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.name, arguments.out)
        return
    folder, name = Path(arguments.out), arguments.name
    cases = SETS[name]
    end = time.monotonic() + arguments.seconds
    work = Path(tempfile.mkdtemp(prefix=name))

    def one(numbered: tuple[int, dict[str, Any]]) -> dict[str, Any]:
        number, case = numbered
        out = str(work / f"{number:03d}")
        command = [sys.executable, __file__, out, "--set", name, "--child", json.dumps(case)]
        if time.monotonic() > end:
            return {"case": case, "error": "no time left"}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        except subprocess.TimeoutExpired:
            return {"case": case, "error": "took more than 200 s"}
        path = Path(out + ".json")
        if not path.exists():
            return {"case": case, "error": f"exit code {done.returncode}: {done.stderr[-300:]}"}
        return json.loads(path.read_text())  # type: ignore[no-any-return]

    with ThreadPoolExecutor(arguments.workers) as pool:
        rows = list(pool.map(one, enumerate(cases)))
    (folder / f"{name}.json").write_text(json.dumps(rows))
    histories = {}
    for number in range(len(cases)):
        path = work / f"{number:03d}.npz"
        if path.exists():
            loaded = np.load(path)
            histories.update({f"{number:03d}_{member}": loaded[member] for member in loaded.files})
    np.savez_compressed(folder / f"{name}_histories.npz", **histories)
    for row in rows:
        tag = " ".join(str(v) for v in row["case"].values())
        print(tag, row.get("error") or f"{row['peak_allocated']} {row['peak_reserved']}", flush=True)


if __name__ == "__main__":
    main()
