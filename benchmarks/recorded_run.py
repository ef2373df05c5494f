"""Run a program as it is, with the allocator's history recorded from the start and NVML polled:
python benchmarks/recorded_run.py OUT PROGRAM [ARGS ...]

Writes OUT.json (what PyTorch and NVML reported; where torchrun's variables are set, of this rank's GPU) and OUT.npz (the
history: `act` indexes `actions`, `addr` indexes `base`, `size` as requested, as taken for segments; `stream` 0 is the first
seen). What the program raises is written to OUT.json, beside the figures up to there. `benchmarks/programs/measure.py` and
`benchmarks/ranks/measure.py` start one of these for each program and rank.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pynvml
import torch

_EVENTS_MAX = 5_000_000
_SECONDS_BETWEEN = 0.02
_PACKAGES = ("timm", "transformers")


class Nvml:
    """What NVML counts for this process on a GPU, and the most it counted while it was watched."""

    def __init__(self, device: int) -> None:
        pynvml.nvmlInit()
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(device)
        self.peak_bytes = 0
        self.over = threading.Event()
        self.watcher = threading.Thread(target=self.watch, daemon=True)

    def process_bytes(self) -> int:
        rows = pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        return next((row.usedGpuMemory for row in rows if row.pid == os.getpid()), 0)

    def watch(self) -> None:
        while not self.over.wait(_SECONDS_BETWEEN):
            self.peak_bytes = max(self.peak_bytes, self.process_bytes())

    def end(self) -> int:
        """Bytes now; nothing is watched any more."""
        now = self.process_bytes()
        self.over.set()
        self.watcher.join()
        self.peak_bytes = max(self.peak_bytes, now)
        return now


def history(trace: list[dict[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of OUT.npz."""
    actions = sorted({event["action"] for event in trace})
    where: dict[int, int] = {}
    streams: dict[int, int] = {}
    return {
        "actions": np.array(actions),
        "act": np.array([actions.index(event["action"]) for event in trace], dtype=np.int8),
        "addr": np.array([where.setdefault(event["addr"], len(where)) for event in trace], dtype=np.int32),
        "base": np.array(list(where), dtype=np.int64),
        "size": np.array([event["size"] for event in trace], dtype=np.int64),
        "stream": np.array(
            [streams.setdefault(event["stream"], len(streams)) for event in trace], dtype=np.int16
        ),
    }


def figures(device: int) -> dict[str, Any]:
    """What PyTorch counted, and with which versions."""
    found = torch.cuda.memory_stats(device)
    row = {
        "peak_allocated": found["allocated_bytes.all.peak"],
        "peak_reserved": found["reserved_bytes.all.peak"],
        "reserved_end": found["reserved_bytes.all.current"],
        "retries": found["num_alloc_retries"],
        "ooms": found["num_ooms"],
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "gpu": torch.cuda.get_device_name(device),
        "date": time.strftime("%Y-%m-%d"),
        "packages": {name: sys.modules[name].__version__ for name in _PACKAGES if name in sys.modules},
    }
    if "RANK" in os.environ:
        row["rank"], row["world_size"] = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        row["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return row


def main() -> None:
    """The command line."""
    out, program, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
    device = int(os.environ.get("LOCAL_RANK", "0"))
    nvml = Nvml(device)
    torch.cuda.set_device(device)
    torch.cuda.memory._record_memory_history(max_entries=_EVENTS_MAX, context=None)
    nvml.watcher.start()
    # As the interpreter would: the program's arguments, and its folder in place of this one's.
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).resolve().parent)
    error = ""
    try:
        runpy.run_path(program, run_name="__main__")
    except BaseException:  # whatever ends a program, its figures are wanted
        error = traceback.format_exc()[-2000:]
    torch.cuda.synchronize()
    end = nvml.end()
    row = figures(device) | {"nvml_peak": nvml.peak_bytes, "nvml_end": end}
    trace = torch.cuda.memory._snapshot()["device_traces"][device]
    np.savez_compressed(f"{out}.npz", allow_pickle=False, **history(trace))
    row |= {"events": len(trace)} | ({"error": error} if error else {})
    Path(f"{out}.json").write_text(json.dumps(row), encoding="utf-8")


if __name__ == "__main__":
    main()
