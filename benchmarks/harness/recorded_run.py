"""Run a program as it is, with the allocator's history recorded from the start and NVML polled:
python benchmarks/harness/recorded_run.py OUT [--until N] [--spawned] PROGRAM [ARGS ...]

PROGRAM: a file, or -m and a module. --until: ends after N optimizer steps, as `analyze run --until` does. --spawned: the program
starts its ranks itself (`torch.multiprocessing.spawn`), and each writes its own OUT.rankR. A SIGTERM ends the program; what it
took up to there is written, with "time is up" as the error. Writes OUT.json (what PyTorch and NVML reported; where torchrun's variables are set, of this rank's GPU) and OUT.npz (the
history: `act` indexes `actions`, `addr` indexes `base`, `size` as requested, as taken for segments; `stream` 0 is the first
seen). What the program raises is written to OUT.json, beside the figures up to there. `benchmarks/programs/measure.py` and
`benchmarks/ranks/measure.py` start one of these for each program and rank.

NVML is asked without a pause by a process of its own (`recorded_run.py --watch PID PLACE`): what PyTorch takes while it times
algorithms is given back within milliseconds.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pynvml
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

_EVENTS_MAX = 5_000_000
_WATCH = "--watch"
_PACKAGES = ("timm", "transformers")


class Nvml:
    """What NVML counts for this process on a GPU, and the most it counted while it was watched."""

    def __init__(self, device: int) -> None:
        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")  # NVML counts the others too
        self.place = int(visible.split(",")[device]) if visible else device
        self.watcher: subprocess.Popen[str] | None = None

    def watch(self) -> None:
        """From now on, until `end`."""
        command = [sys.executable, str(Path(__file__).resolve()), _WATCH, str(os.getpid()), str(self.place)]
        self.watcher = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def end(self) -> tuple[int, int]:
        """The most bytes, and those of now; nothing is watched any more."""
        now = process_bytes(self.place, os.getpid())
        assert self.watcher
        peak = self.watcher.communicate()[0]
        return max(int(peak), now), now


def process_bytes(place: int, pid: int) -> int:
    """What NVML counts for a process on the GPU at this place."""
    rows = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(place))
    return next((row.usedGpuMemory for row in rows if row.pid == pid), 0)


def watched(pid: int, place: int) -> None:
    """Ask NVML again and again until standard input ends, and print the most it counted."""
    pynvml.nvmlInit()
    peak_bytes = 0
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    while not over.is_set():
        peak_bytes = max(peak_bytes, process_bytes(place, pid))
    print(peak_bytes)


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


class TimeIsUp(BaseException):
    """SIGTERM came: no program catches this by mistake."""


def _end_now(*_: object) -> None:
    raise TimeIsUp("time is up")


def end_after(count: int) -> None:
    """The program ends itself after so many optimizer steps."""
    steps = 0

    def stepped(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps >= count:
            raise SystemExit(0)

    register_optimizer_step_post_hook(stepped)


def record(out: str, device: int, program: Callable[[], object], until: int | None = None) -> None:
    """Run it, and write OUT.json and OUT.npz."""
    nvml = Nvml(device)
    torch.cuda.set_device(device)
    torch.cuda.memory._record_memory_history(max_entries=_EVENTS_MAX, context=None)
    nvml.watch()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end_now)
        # A process the program forks ends as it would without this one: `terminate` would hang otherwise.
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    if until:
        end_after(until)
    error = ""
    started = time.monotonic()
    try:
        program()
    except SystemExit as ended:
        error = f"SystemExit: {ended.code}" if ended.code else ""
    except BaseException:  # whatever ends a program, its figures are wanted
        error = traceback.format_exc()[-2000:]
    seconds = time.monotonic() - started
    try:
        torch.cuda.synchronize()
    except RuntimeError as wrong:  # of a kernel, which is told only now
        error = error or str(wrong)
    peak, end = nvml.end()
    row = figures(device) | {"nvml_peak": peak, "nvml_end": end, "seconds": round(seconds, 1)}
    trace = torch.cuda.memory._snapshot()["device_traces"][device]
    np.savez_compressed(f"{out}.npz", allow_pickle=False, **history(trace))
    row |= {"events": len(trace)} | ({"error": error} if error else {})
    Path(f"{out}.json").write_text(json.dumps(row), encoding="utf-8")


class Rank:
    """What a process that the program spawns runs in place of its function. A class, so that it can be sent there."""

    def __init__(self, out: str, function: Callable[..., object], ranks: int, until: int | None) -> None:
        self.out, self.function, self.ranks, self.until = out, function, ranks, until

    def __call__(self, rank: int, *args: object) -> None:
        def run() -> None:
            try:
                self.function(rank, *args)
            finally:  # `figures` tells them; the program finds no such thing
                os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(self.ranks)

        record(f"{self.out}.rank{rank}", rank, run, self.until)


def spawned(out: str, until: int | None) -> None:
    """`torch.multiprocessing.spawn` starts recorded ranks."""
    start = torch.multiprocessing.spawn
    here = str(Path(__file__).resolve().parent)

    def spawn(
        fn: Callable[..., object], args: tuple[Any, ...] = (), nprocs: int = 1, *rest: Any, **named: Any
    ) -> object:
        import recorded_run  # a module the processes find by its name, where `__main__` is the program

        path = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (path, here)))
        return start(recorded_run.Rank(out, fn, nprocs, until), args, nprocs, *rest, **named)

    sys.path.append(here)
    torch.multiprocessing.spawn = spawn


def main() -> None:
    """The command line."""
    if sys.argv[1] == _WATCH:
        watched(*map(int, sys.argv[2:]))
        return
    out, *rest = sys.argv[1:]
    until, ranks = None, False
    while rest[0] in ("--until", "--spawned"):
        if rest.pop(0) == "--spawned":
            ranks = True
        else:
            until = int(rest.pop(0))
    module = rest[0] == "-m"
    program, *arguments = rest[module:]
    # As the interpreter would: the program's arguments, and its folder in place of this one's.
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path.cwd() if module else Path(program).resolve().parent)

    def run() -> None:
        if module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")

    if ranks:
        spawned(out, until)
        run()
    else:
        record(out, int(os.environ.get("LOCAL_RANK", "0")), run, until)


if __name__ == "__main__":
    main()
