"""Measure whole steps on this machine's GPU: what the device is busy, what the host takes, and what a step takes in all.

1. A step is that of `analyzer/capture/pytorch/module/step.py`: the batch is copied from pageable memory, forward, loss, backward, optimizer.
2. **wall**: seconds of a step, of five that run one after the other, the device waited for at the ends.
3. **device**: the sum of all kernels, copies and sets of one step by stream (CUPTI); `host_copies` of it are copies from
   the host. Also by operator, that whose call launched it, but for the held-out cases, which stay unseen.
4. **host**: seconds until a step has been handed over, the device idle before; of the smaller of this and of a batch of two, since the
   host waits where more than some thousand kernels are outstanding. `small` says which it was.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.accuracy.sets import zoo
from benchmarks.harness.files import write
from benchmarks.timing.cases import SETS, Case, tag
from benchmarks.timing.measure import versions
from benchmarks.timing.steps import stepping


def enqueued(step: Callable[[], None], count: int) -> list[float]:
    """Seconds until a step has been handed over, from an idle device."""
    found = []
    for _ in range(count):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        found.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
    return found


def walls_of(step: Callable[[], None], count: int) -> list[float]:
    """Seconds of a step, of five that run one after the other; so many times."""
    found = []
    for _ in range(count):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - begin) / 5)
    return found


def measured(case: Case, by_operator: bool) -> dict[str, Any]:
    """The row of one case."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = bool(case.get("tf32"))
    step = stepping(zoo(case["zoo"]), case, case["batch"])
    first = enqueued(step, 3)
    walls = walls_of(step, 2)
    row: dict[str, Any] = {
        "case": case,
        "wall": min(walls),
        "first": round(first[0], 3),
        "enqueue": statistics.median(enqueued(step, 4)),
    }
    activities = [ProfilerActivity.CUDA, *([ProfilerActivity.CPU] if by_operator else [])]
    with profile(activities=activities) as profiler:
        step()
        torch.cuda.synchronize()
    row |= busy(profiler, by_operator)
    row["peak"] = torch.cuda.max_memory_allocated()
    del step
    gc.collect()
    small = stepping(zoo(case["zoo"]), case, 2)
    enqueued(small, 3)
    row["small"] = statistics.median(enqueued(small, 5))
    return row


def busy(profiler: Any, by_operator: bool) -> dict[str, Any]:
    """Of a profiled step: seconds by stream, copies from the host, kernels; by operator where asked."""
    streams: dict[int, int] = defaultdict(int)
    copies = kernels = 0
    launches: dict[int, int] = {}
    device, calls = [], []
    for event in profiler.profiler.kineto_results.events():
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            if (
                not event.duration_ns()
                or event.name().startswith(("Context Sync", "Optimizer."))  # PyTorch's marks are no kernels
                or not event.correlation_id()
            ):
                continue
            streams[event.device_resource_id()] += event.duration_ns()
            kernels += 1
            copies += event.duration_ns() if "HtoD" in event.name() else 0
            device.append((event.correlation_id(), event.duration_ns(), event.name()))
        elif event.name().startswith(("cuda", "cu")):
            launches[event.correlation_id()] = event.start_ns()
        elif event.name().startswith(("aten::", "torchvision::")):
            calls.append(
                (
                    event.start_ns(),
                    event.start_ns() + event.duration_ns(),
                    event.start_thread_id(),
                    event.name(),
                    event.shapes(),
                )
            )
    found: dict[str, Any] = {
        "streams": {str(k): v / 1e9 for k, v in streams.items()},
        "host_copies": copies / 1e9,
        "kernels": kernels,
    }
    if by_operator:
        found["operators"] = _by_operator(device, launches, calls)
    return found


def _by_operator(device: list[Any], launches: dict[int, int], calls: list[Any]) -> dict[str, Any]:
    """Name of the innermost operator whose call holds a launch -> kernels, nanoseconds."""
    import bisect

    calls.sort()
    starts = [call[0] for call in calls]
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for number, duration, name in device:
        at = launches.get(number)
        owner = "?"
        if at is not None:
            place = bisect.bisect_right(starts, at) - 1
            for back in range(place, max(place - 60, -1), -1):
                if calls[back][1] >= at:
                    owner = calls[back][3]
                    break
        entry = found[f"{owner} | {name[:60]}"]
        entry[0] += 1
        entry[1] += duration
    return dict(found)


@click.command("programs")
@click.argument("folder", type=Path)
@click.option("--seconds", default=300.0, help="no case is begun after these")
@click.option("--set", "only", multiple=True, type=click.Choice(list(SETS)), help="these cases alone")
def main(folder: Path, seconds: float, only: tuple[str, ...]) -> None:
    """Measure the steps of `cases.json`: programs.json.gz."""
    warnings.simplefilter("ignore")
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    chosen = [(name, case) for name in only or SETS for case in SETS[name]]
    random.Random(1).shuffle(chosen)
    rows = []
    for name, case in chosen:
        if time.monotonic() - begin > seconds:
            break
        at = time.monotonic()
        try:
            rows.append({"set": name, **measured(case, name != "held_out")})
            said = f"wall {rows[-1]['wall'] * 1e3:.1f} device {max(rows[-1]['streams'].values(), default=0) * 1e3:.1f}"
        except Exception as error:
            rows.append(
                {
                    "set": name,
                    "case": case,
                    "error": repr(error)[:300],
                    "traceback": traceback.format_exc()[-600:],
                }
            )
            said = repr(error)[:150]
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        print(f"{tag(case)}: {said} ({time.monotonic() - at:.1f} s)", flush=True)
        if len(rows) % 12 == 0:
            write(folder / "programs.json.gz", {"versions": versions(), "rows": rows})
    write(folder / "programs.json.gz", {"versions": versions(), "rows": rows})
    print(json.dumps({"rows": len(rows), "seconds": round(time.monotonic() - begin)}))


if __name__ == "__main__":
    main()
