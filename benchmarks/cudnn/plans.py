"""Ask cuDNN on this machine's GPU for all plans of a list of calls (`calls.py`), and keep each plan's engine.

    python -m benchmarks cudnn plans ask CALLS.npz OUT [--seconds 200] [--processes 14]      # on the GPU
    python -m benchmarks cudnn plans answers CALLS.npz OUT ANSWERS.npz                       # as merge.py takes them

Nothing is executed. Each process asks every n-th call in the order of the list until the time is over, and writes OUT/plans.NN.npz:
`entries` (places in CALLS.npz); for each of their operations in `OPERATIONS`' order how many runs of equal plans it has (`runs`); and
for each run in PyTorch's order its engine, workspace (place in `sizes`), how many plans, and notes (1: deterministic, 2: tensor cores).

With --device the GPU is one that is not there, described by its figures (`elsewhere.py`).

The plans of one engine of each operation are compiled at run time, which takes most of the time, and are not built: they work on
NHWC data, and take copies of what lies otherwise, each with 128 bytes over (26,152 of 26,363 built: right to the byte; the rest within
116 bytes).
"""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path

import click
import numpy as np

from analyzer.libraries.cudnn.answers import CudnnPlan, figures
from analyzer.libraries.cudnn.table import ELEMENT_BYTES, Convolution
from analyzer.runs.cudnn import Cudnn, CudnnError
from benchmarks.cudnn.calls import Calls
from benchmarks.cudnn.elsewhere import ELSEWHERE, device_json
from benchmarks.harness.processes import in_parts

_COMPILED = {"forward": 71, "data": 78, "weight": 70}
# Engines compiled at run time that cannot be built for another GPU than the machine's: their place in the list is kept, and
# `answers` says what they take.
UNKNOWN = -4
NOT_BUILT = {"forward": {5: UNKNOWN}, "data": {6: UNKNOWN}, "weight": {16: UNKNOWN, 19: UNKNOWN}}
_RESULT = {"forward": 1, "data": 0, "weight": 2}
_PAGE_BYTES = 128
_DETERMINISTIC, _TENSOR_CORE = 1, 2


@click.group()
def plans() -> None:
    """All plans of a list of calls, with their engines."""


def compiled_bytes(call: Convolution) -> dict[int, int]:
    """The workspace of the engine that is compiled at run time, by its number; 2-D convolutions alone."""
    if len(call.stride) != 2:
        return {}
    total = 0
    if not call.channels_last:
        for place, shape in enumerate((call.x_shape, call.y_shape, call.w_shape)):
            if math.prod(shape[2:]) > 1:
                nbytes = ELEMENT_BYTES[call.dtype] * math.prod(shape)
                rounded = -(-nbytes // _PAGE_BYTES) * _PAGE_BYTES
                total += (nbytes if place == _RESULT[call.operation] else rounded) + _PAGE_BYTES
    return {_COMPILED[call.operation]: total}


def unbuilt_bytes(call: Convolution) -> int:
    """The workspace of the engines of `NOT_BUILT`: none, but for the gradient of depthwise filters on NHWC data, which keeps eight
    partial sums an image, in float32, with channels padded to 32. All of 199 plans of engine 16 built on an H200, and 301 of the
    others; as many SMs as 40 change nothing.
    """
    depthwise = call.groups == call.x_shape[1] == call.w_shape[0] > 1
    if not (call.operation == "weight" and depthwise and call.channels_last):
        return 0
    channels = -(-call.x_shape[1] // 32) * 32
    return 8 * call.x_shape[0] * channels * math.prod(call.w_shape[2:]) * ELEMENT_BYTES["float32"]


def share(
    part: int, parts: int, calls_path: Path, out: Path, seconds: float, device: str | None = None
) -> int:
    """One process's share; how many calls it asked. device: the properties of another GPU (`elsewhere.py`)."""
    calls = Calls.read(calls_path)
    if device is None:
        import torch

        torch.zeros(1, device="cuda")
    begin, cudnn = time.monotonic(), Cudnn(device_json=device)
    unbuilt = dict[str, dict[int, int]]() if device is None else NOT_BUILT
    entries: list[int] = []
    runs: list[int] = []
    told: list[tuple[int, int, int, int]] = []
    for number in range(part, len(calls.entries), parts):
        if time.monotonic() - begin > seconds:
            break
        entries.append(number)
        for call in calls.convolutions(number):
            try:
                plans = list(cudnn.plans(call, compiled_bytes(call) | unbuilt.get(call.operation, {})))
            except CudnnError:
                plans = []
            equal = itertools.groupby(
                (
                    plan.engine,
                    plan.workspace_bytes,
                    _DETERMINISTIC * plan.deterministic + _TENSOR_CORE * plan.tensor_core,
                )
                for plan in plans
            )
            found = [(*plan, len(list(same))) for plan, same in equal]
            runs.append(len(found))
            told += found
    rows = np.array(told, np.int64).reshape(-1, 4)
    sizes, place = np.unique(rows[:, 1], return_inverse=True)
    np.savez_compressed(
        out / f"plans.{part:02}.npz", allow_pickle=False, entries=np.array(entries, np.int32), runs=np.array(runs, np.uint8),
        engine=rows[:, 0].astype(np.int16), size=place.astype(np.int32), sizes=sizes,
        notes=rows[:, 2].astype(np.uint8), count=rows[:, 3].astype(np.uint8),
    )  # fmt: skip
    return len(entries)


@plans.command()
@click.argument("calls_path", metavar="CALLS.npz", type=Path)
@click.argument("out", type=Path)
@click.argument("output", type=Path)
def answers(calls_path: Path, out: Path, output: Path) -> None:
    """What was asked as `ask.py` writes it."""
    calls, rows = Calls.read(calls_path), list[tuple[int, ...]]()
    for path in sorted(out.glob("plans.*.npz")):
        with np.load(path) as members:
            told = dict(members)
        sizes = told["sizes"][told["size"]].tolist()
        each = zip(
            told["engine"].tolist(), sizes, told["notes"].tolist(), told["count"].tolist(), strict=True
        )
        runs = iter(told["runs"].tolist())
        for number in told["entries"].tolist():
            for operation, call in enumerate(calls.convolutions(number)):
                found = [
                    CudnnPlan(
                        engine,
                        _known(call, engine, size),
                        bool(notes & _DETERMINISTIC),
                        bool(notes & _TENSOR_CORE),
                    )
                    for engine, size, notes, count in itertools.islice(each, next(runs))
                    for _ in range(count)
                ]
                rows.append((number, operation, *figures(found, call.dtype)))
    calls.write(output, rows=np.array(rows, np.int64))


def _known(call: Convolution, engine: int, size: int) -> int:
    """Bytes of a plan as it was written down. Weight gradients of engine 19 take nothing."""
    if size != UNKNOWN:
        return size
    return 0 if engine == 19 else unbuilt_bytes(call)


@plans.command("ask")
@click.argument("calls", type=Path)
@click.argument("out", type=Path)
@click.option("--seconds", default=200.0)
@click.option("--processes", default=14)
@click.option("--device", type=click.Choice(list(ELSEWHERE)), help="a GPU that is not there (elsewhere.py)")
def ask(calls: Path, out: Path, seconds: float, processes: int, device: str | None) -> None:
    """Ask for all plans of every call of a list."""
    out.mkdir(parents=True, exist_ok=True)
    properties = device_json(device) if device else None
    answered = sum(in_parts(share, processes, calls, out, seconds, properties))
    print(f"{answered:,} of {len(Calls.read(calls).entries):,} calls, all operations of each")
