"""How long each of many calls keeps the device busy: kernels by CUPTI, told apart by a marker between calls.

1. Between two calls runs one small kernel that nothing else here runs (`erfinv`). The kernels of one stream run in order, so
   those between two markers are one call's.
2. A call's time is the sum of its kernels' (memory copies and sets too), as `Busy` of `docs/evidence/TIMING.md` is.
3. **Warm**: the call again and again, its inputs in the L2 cache as far as they fit. **Cold**: before it 256 MiB are read, so that
   nothing of it is there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.timing.calls import Pool, Spec, build

MARKER = "erfinv"
_REPEATS = 3
_CHUNK = 150


def device_events(profiler: Any) -> list[tuple[int, int, str]]:
    """(start, duration, name) in ns of everything the device did, in the order of its start."""
    found = []
    for event in profiler.profiler.kineto_results.events():
        if (
            event.device_type() == torch.autograd.DeviceType.CUDA
            and event.duration_ns()
            and not event.name().startswith("Context Sync")
        ):
            found.append((event.start_ns(), event.duration_ns(), event.name()))
    return sorted(found)


class Meter:
    """Runs specifications and keeps a row each: the specification, warm and cold nanoseconds, kernels."""

    def __init__(self, device: str = "cuda", elements: int = 2**29) -> None:
        self.device, self.pool = device, Pool(device, elements)
        self._marked = torch.zeros(1, device=device)
        self._flushed = torch.ones(2**26 if device == "cuda" else 16, device=device)
        self.rows: list[dict[str, Any]] = []
        self.failed: list[dict[str, Any]] = []

    def measure(self, specs: Iterable[Spec], until: float) -> int:
        """All of them, or until the clock (`time.monotonic`) says so; how many were done."""
        done, chunk = 0, list[Spec]()
        for spec in specs:
            chunk.append(spec)
            if len(chunk) == _CHUNK:
                self._chunk(chunk, until)
                done, chunk = done + len(chunk), []
                if time.monotonic() > until:
                    return done
        self._chunk(chunk, until)
        return done + len(chunk)

    def _chunk(self, specs: list[Spec], until: float) -> None:
        labels: list[tuple[int, str]] = []
        activities = [ProfilerActivity.CUDA] if self.device == "cuda" else [ProfilerActivity.CPU]
        with profile(activities=activities) as profiler:
            for number, spec in enumerate(specs):
                if time.monotonic() > until:
                    break
                try:
                    call = build(spec, self.pool)
                    call()
                    self._mark(labels, number, "first")
                    begin = time.perf_counter()
                    call()
                    if self.device == "cuda":
                        torch.cuda.synchronize()
                    repeats = _REPEATS if time.perf_counter() - begin < 5e-3 else 1
                    self._mark(labels, number, "second")
                    for _ in range(repeats):
                        call()
                        self._mark(labels, number, "warm")
                    for _ in range(repeats):
                        self._flushed.sum()
                        self._mark(labels, number, "flush")
                        call()
                        self._mark(labels, number, "cold")
                except (RuntimeError, TypeError, IndexError, KeyError) as error:
                    self._mark(labels, number, "failed")
                    self.failed.append({**spec, "error": str(error)[:160]})
            if self.device == "cuda":
                torch.cuda.synchronize()
        self._read(specs, labels, device_events(profiler))

    def _mark(self, labels: list[tuple[int, str]], number: int, what: str) -> None:
        torch.special.erfinv(self._marked, out=self._marked)
        labels.append((number, what))

    def _read(
        self, specs: list[Spec], labels: list[tuple[int, str]], events: list[tuple[int, int, str]]
    ) -> None:
        times: dict[int, dict[str, list[int]]] = {}
        names: dict[int, list[str]] = {}
        place, busy, seen = 0, 0, list[str]()
        for _, duration, name in events:
            if MARKER not in name:
                busy += duration
                seen.append(name)
                continue
            if place < len(labels):
                number, what = labels[place]
                times.setdefault(number, {}).setdefault(what, []).append(busy)
                names.setdefault(number, seen) if what == "warm" else None
            place, busy, seen = place + 1, 0, []
        if place != len(labels) and self.device == "cuda":
            self.failed.append({"kind": "markers", "seen": place, "expected": len(labels)})
            return
        for number, found in times.items():
            if "cold" in found and "failed" not in found:
                self.rows.append(
                    {
                        **specs[number],
                        "warm": int(statistics.median(found["warm"])),
                        "cold": int(statistics.median(found["cold"])),
                        "kernels": len(names[number]),
                        "names": [name[:110] for name in names[number][:4]],
                    }
                )
