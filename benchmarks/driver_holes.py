"""Which addresses CUDA's driver has left, step by step: `python -m benchmarks driver_holes measure OUT.json.gz [--workers N]` on a GPU.

A step is a line of Python. For every program of `driver_holes.json` and every number of its steps, a fresh process runs that many and then
asks the driver for 2 MiB after 2 MiB: since a request goes into the lowest hole that has room, the answers are the holes, and
what follows lies in new chunks. A row: program, count (of steps run), segments (PyTorch's own) and holes, both (address, bytes).

The rules made of it are `analyzer/allocators/process.py`.
"""

from __future__ import annotations

import ctypes
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from benchmarks.harness import files
from benchmarks.harness.pages import MIB
from benchmarks.harness.processes import ProcessError, answer

PAGE_BYTES = 2 * MIB
# Requests beyond the holes there were: each goes into a new chunk's next page.
BEYOND = 300


def programs() -> dict[str, tuple[str, ...]]:
    """The steps of each program (`driver_holes.json`), "BASICS" being the steps that many end with.

    A step of "alone" is the second of a program whose first is one kernel, one of "first" the first kernel of a program that has one small
    tensor. Tensors stay in `kept`: what is freed would be PyTorch's again, not the driver's, and would be reused.
    """
    said = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    found = {
        name: tuple(s for step in steps for s in (said["basics"] if step == "BASICS" else [step]))
        for name, steps in said["programs"].items()
    }
    found |= {
        f"alone: {step}": ("kept['s'] = torch.zeros(256, device='cuda')", step) for step in said["alone"]
    }
    return found | {f"alone first: {step}": ("kept['s'] = empty(256)", step) for step in said["first"]}


PROGRAMS = programs()


def run(program: str, count: int) -> dict[str, Any]:
    """The first `count` steps in this process, and the holes after them."""
    import torch
    import torch.nn.functional as F

    def ones(*shape: int, dtype: Any = None) -> Any:
        return torch.empty(*shape, dtype=dtype, device="cuda").fill_(1)

    def back(function: Any, *given: Any) -> None:
        function(*[tensor.requires_grad_() for tensor in given]).sum().backward()

    names = {
        "torch": torch,
        "F": F,
        "kept": {},
        "MIB": MIB,
        "ones": ones,
        "back": back,
        "empty": lambda *shape: torch.empty(*shape, device="cuda"),
        "room": lambda mib: torch.empty(mib * MIB, dtype=torch.uint8, device="cuda"),
        "half": lambda *shape: ones(*shape, dtype=torch.bfloat16),
        "whole": lambda *shape: ones(*shape, dtype=torch.long),
    }
    torch.cuda.init()
    for step in PROGRAMS[program][:count]:
        exec(step, names)
    torch.cuda.synchronize()
    segments = [(segment["address"], segment["total_size"]) for segment in torch.cuda.memory_snapshot()]
    cuda = ctypes.CDLL("libcuda.so.1")
    holes: list[list[int]] = []
    for _ in range(BEYOND):
        address = ctypes.c_uint64()
        if cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(PAGE_BYTES)):
            raise SystemExit("the driver gives nothing any more")
        if holes and sum(holes[-1]) == address.value:
            holes[-1][1] += PAGE_BYTES
        else:
            holes.append([address.value, PAGE_BYTES])
    versions = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    return {"program": program, "count": count, "segments": segments, "holes": holes, **versions}


@click.command("measure")
@click.argument("out", type=Path)
@click.option("--workers", default=8)
@click.option("--only", default="", help="programs whose names begin so")
def main(out: Path, workers: int, only: str) -> int:
    """Record all programs, each in a process of its own; 1 where one gave no answer."""
    wanted = [
        (name, count)
        for name, steps in PROGRAMS.items()
        if name.startswith(only)
        for count in range(len(steps) * ("alone" in name), len(steps) + 1)
    ]

    def record(one: tuple[str, int]) -> Any:
        try:
            return answer("benchmarks.driver_holes:run", *one)
        except ProcessError as error:
            print(one, error, file=sys.stderr)
            return None

    with ThreadPoolExecutor(workers) as pool:
        rows = [row for row in pool.map(record, wanted) if row is not None]
    files.write(out, rows)
    return int(len(rows) < len(wanted))
