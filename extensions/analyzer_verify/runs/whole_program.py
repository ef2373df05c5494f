"""A whole program run unchanged on the GPU: the measured side of `analyze verify run`.

1. The program runs as `python SCRIPT ARGUMENTS` would; nothing about it is changed. Its output goes to
   stderr.
2. The allocator's history is recorded from its first request on, without stack traces, and returned as one
   integer an event (`program.encode`); the asynchronous backend keeps none.
3. NVML's figure for the process is sampled while it runs, every `SAMPLE_SECONDS`: a peak shorter than that
   may be missed.
4. The end of every optimizer step is a mark with the allocator's counters then.
5. `SystemExit` ends a program as it would outside; out of memory is a result; anything else it raises is an
   error.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analyzer_verify.runs import machine
from analyzer_verify.runs.observer import CudaMeter
from analyzer_verify.runs.program import HISTORY_ENTRIES, encode, versions

SAMPLE_SECONDS = 0.02


def run(script: str, module: bool, arguments: list[str]) -> dict[str, Any]:
    """Run the program on the GPU. Returns what `program.run` does, with one entry of peaks."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from analyzer_programs.following.as_main import as_main

    started = time.monotonic()
    before = machine.process_bytes(), machine.device_bytes()
    recorded = "cudaMallocAsync" not in os.environ.get("PYTORCH_ALLOC_CONF", "")
    if recorded:
        torch.cuda.memory._record_memory_history(max_entries=HISTORY_ENTRIES, context=None)
    meter, marks = CudaMeter(), list[dict[str, Any]]()

    def stepped(*_: Any) -> None:
        marks.append({"event": f"{len(marks)}.step", **asdict(meter.read())})

    hook = register_optimizer_step_post_hook(stepped)
    failed: dict[str, Any] | None = None
    watch = _Watch()
    try:
        with watch, as_main(script if module else Path(script), arguments, {}) as main:
            main()
    except SystemExit:
        pass
    except torch.OutOfMemoryError as error:
        failed = {
            "after": marks[-1]["event"] if marks else "start",
            "message": " ".join(str(error).split())[:500],
            "counters": asdict(meter.read()),
        }
    finally:
        hook.remove()
    torch.cuda.synchronize()
    end = machine.process_bytes(), machine.device_bytes()
    trace = torch.cuda.memory._snapshot()["device_traces"][0] if recorded else []
    result = {
        "marks": marks,
        "peaks": [asdict(meter.read())],
        "nvml_process": {"before": before[0], "end": max(filter(None, (watch.peak, end[0])), default=None)},
        "nvml_device": {"before": before[1], "end": end[1]},
        "history": encode(trace) if recorded else None,
        "versions": versions(),
        "seconds": round(time.monotonic() - started, 1),
    }
    return result if failed is None else {**result, "out_of_memory": failed}


class _Watch:
    """Samples NVML's figure for this process while open. peak: bytes, None where NVML does not tell."""

    def __init__(self) -> None:
        self.peak: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.peak = max(filter(None, (self.peak, machine.process_bytes())), default=None)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
