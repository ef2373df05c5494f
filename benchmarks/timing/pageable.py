"""What a copy from the host's pageable memory takes: `python -m benchmarks timing pageable OUT`.

1. `idle`: the host's seconds of `x.to("cuda")` with an idle device; `again`: of one that follows another; `flushed`: with the source out
   of the processor's caches; `untouched`: of pages that nobody has written; each the median of nine.
2. `profiled`: CUPTI's seconds of a copy, one in a profile; `profiled_again`: the median of several in one.
3. `behind`: the host's seconds of a copy and of a kernel before it that takes `kernel` of the device; `handed`: of a copy behind it that
   is not waited for (`non_blocking`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.harness.files import write
from benchmarks.timing.kernels import device_events
from benchmarks.timing.measure import versions

_BYTES = (2**16, 2**18, 2**20, 2**22, 9633792, 2**24, 2**25, 38535168, 2**26, 2**28)
_REPEATS, _CYCLES, _FLUSHED = 9, 8_000_000, 2**29


def _clocked(call: Callable[[], Any], before: Callable[[], Any] | None = None) -> float:
    """The median of the host's seconds of a call, the device idle; before: what runs first, outside the clock."""
    found = []
    for _ in range(_REPEATS):
        if before is not None:
            before()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
    return statistics.median(found)


def _profiled(call: Callable[[], Any], count: int) -> float:
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(count):
            call()
        torch.cuda.synchronize()
    return statistics.median(duration for _, duration, _ in device_events(profiler)) / 1e9


def copies() -> list[dict[str, Any]]:
    """A row for each size."""
    flushing = torch.ones(_FLUSHED // 4)
    torch.cuda._sleep(_CYCLES)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    torch.cuda._sleep(_CYCLES)
    torch.cuda.synchronize()
    kernel = time.perf_counter() - begin
    rows = []
    for nbytes in _BYTES:
        source, empty = torch.randn(nbytes // 4), torch.zeros(nbytes // 4)

        def copy(source: torch.Tensor = source) -> torch.Tensor:
            return source.to("cuda")

        def behind(copy: Callable[[], torch.Tensor] = copy) -> torch.Tensor:
            torch.cuda._sleep(_CYCLES)
            return copy()

        def sleep() -> None:
            torch.cuda.synchronize()
            torch.cuda._sleep(_CYCLES)

        copy()
        begin = time.perf_counter()
        for _ in range(_REPEATS):
            copy()
        row = {
            "nbytes": nbytes,
            "again": (time.perf_counter() - begin) / _REPEATS,
            "idle": _clocked(copy),
            "kernel": kernel,
        }
        row |= {
            "flushed": _clocked(copy, lambda: flushing.add_(1.0)),
            "untouched": _clocked(lambda empty=empty: empty.to("cuda")),
            "behind": _clocked(behind),
        }
        handed = []
        for _ in range(_REPEATS):
            sleep()
            begin = time.perf_counter()
            source.to("cuda", non_blocking=True)
            handed.append(time.perf_counter() - begin)
        row |= {
            "handed": statistics.median(handed),
            "profiled": statistics.median(_profiled(copy, 1) for _ in range(3)),
            "profiled_again": _profiled(copy, 7),
        }
        rows.append(row)
        print(
            {name: round(1e3 * value, 3) if name != "nbytes" else value for name, value in row.items()},
            flush=True,
        )
    return rows


@click.command("pageable")
@click.argument("out", type=Path)
def main(out: Path) -> None:
    """Time copies from pageable memory on this machine's GPU."""
    write(out, {"versions": versions(), "rows": copies()})
