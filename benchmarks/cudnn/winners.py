"""Time the convolutions that people train on this machine's GPU as benchmark mode does, and keep what the winners take.

    python -m benchmarks cudnn winners list SHAPES.jsonl... -o CALLS.npz                                   # needs no GPU
    python -m benchmarks cudnn winners time CALLS.npz ANSWERS.npz [--seconds 400] [--processes 5]         # on the GPU
    python -m benchmarks cudnn merge ANSWERS.npz --table h200 --output .../h200.convolutions.4.npz         # the table's next file

`list` takes shapes of known networks (`shapes.py`) and those the table was asked about, at the batches of training, in an
order drawn once in which what is wanted more (`calls.py`) tends to come first: many convolutions at one batch tell more than few
at all. `time` runs each call twice with `torch.backends.cudnn.benchmark`: the first times cuDNN's
plans and takes its trials' workspace, the second runs the winner; what the second takes beside its result is the winner's
workspace. Calls are timed in the order of the list until the time is over. A plan is timed once (`CUDNN_FIND_SAMPLE_ONCE`), so of plans
that are equally fast now one wins and now the other; a few processes share the GPU, which is idle while plans are built.
`ANSWERS.npz` is what `ask.py` writes, with one figure more, "trial" of the first call.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from analyzer.libraries.cudnn.table import (
    FASTEST,
    FIGURES,
    MODELLED_ON,
    NOT_ASKED,
    Convolution,
    convolution_of,
    measurements,
)
from benchmarks.cudnn.ask import Integers, gather, rows_of
from benchmarks.cudnn.calls import GROUPS, Calls, Families, how_usual, list_of

# How usual a batch is in training with benchmark mode, and a 16-bit dtype beside float32 there.
_BATCHES = {
    32: 1.0, 64: 1.0, 128: 1.0, 16: 0.9, 8: 0.7, 256: 0.7, 4: 0.5, 100: 0.4, 2: 0.3, 24: 0.2, 48: 0.2, 96: 0.2, 1: 0.3, 512: 0.2, 12: 0.2,
    20: 0.1, 10: 0.1,
}  # fmt: skip
_GROUPS = {
    "float32.nchw": 1.0,
    "float16.nchw": 0.8,
    "bfloat16.nchw": 0.3,
    "float16.nhwc": 0.3,
    "bfloat16.nhwc": 0.3,
}
_BYTES_MAX = 2e9


def wanted(shapes: Sequence[Path], limit: int, answers: Sequence[Path]) -> Calls:
    """The calls to time, in the order of `list`; without those that have answers."""
    known = set()
    for path in answers:
        calls, timed = Calls.read(path), np.load(path)["rows"][:, 0]
        for family, group, batch in calls.entries[np.unique(timed)].tolist():
            known.add((tuple(calls.families[family].tolist()), group, batch))
    families = Families()
    for path in shapes:
        families.read(path)
    families.add_known(measurements(MODELLED_ON))
    drawn, chosen = random.Random(0), []
    for family, of in families.found.items():
        one = convolution_of(
            np.array(family), 1, Convolution("forward", "float32", False, (1, 1), (1, 1), (), (), ())
        )
        depthwise = not of.transposed and one.groups == one.x_shape[1] > 1
        elements = math.prod(one.x_shape) + math.prod(one.y_shape)
        usual = how_usual(of)
        for batch, often in _BATCHES.items():
            images = batch * of.images
            if family[1] or 4 * elements * images > _BYTES_MAX:
                continue
            for name, much in _GROUPS.items():
                if depthwise and not name.endswith("nhwc") and name != "float16.nchw":
                    continue
                layout = name.partition(".")[2]
                weight = often * much * usual[f"float32.{layout}"]
                if not weight or (family, GROUPS.index(name), images) in known:
                    continue
                chosen.append((-drawn.expovariate(1) / weight, family, GROUPS.index(name), images))
    return list_of(chosen, limit)


def timed(part: int, parts: int, path: Path, seconds: float) -> Integers:
    """The rows of every `parts`-th call, as far as the time goes."""
    import torch

    torch.backends.cudnn.benchmark = True

    def told(call: Convolution) -> tuple[int, ...] | None:
        try:
            winner = winner_of(torch, call)
        except RuntimeError:  # no memory, or nothing runs: not told
            torch.cuda.empty_cache()
            return None
        return tuple(winner if figure == FASTEST else NOT_ASKED for figure in FIGURES)

    return rows_of(path, part, parts, time.monotonic() + seconds, told)


def winner_of(torch: Any, call: Convolution) -> int:
    """Bytes the second of two equal calls asks for beside its result."""
    from benchmarks.cudnn.executed import taken  # which imports torch

    dtype, last = getattr(torch, call.dtype), call.channels_last

    def tensor(shape: tuple[int, ...]) -> Any:
        made = torch.randn(shape, device="cuda", dtype=dtype)
        return made.contiguous(memory_format=torch.channels_last) if last else made

    x, w = tensor(call.x_shape), tensor(call.w_shape)
    numbers = (call.stride, call.padding, call.dilation, False, [0] * len(call.stride), call.groups)
    run = partial(torch.ops.aten.convolution, x, w, None, *numbers)
    if call.operation != "forward":
        mask = [call.operation == "data", call.operation == "weight", False]
        run = partial(torch.ops.aten.convolution_backward, tensor(call.y_shape), x, w, None, *numbers, mask)
    run()
    return taken(run)


@click.group("winners")
def main() -> None:
    """Benchmark mode's winners."""


@main.command("list")
@click.argument("shapes", nargs=-1, type=Path)
@click.option("-o", "--output", type=Path, required=True)
@click.option("--but", type=Path, multiple=True, help="answers that are there")
@click.option("--limit", default=60_000)
def listed(shapes: tuple[Path, ...], output: Path, but: tuple[Path, ...], limit: int) -> None:
    """List the calls to time."""
    wanted(shapes, limit, but).write(output)


@main.command("time")
@click.argument("calls", type=Path)
@click.argument("answers", type=Path)
@click.option("--seconds", default=400.0)
@click.option("--processes", default=5)
def time_them(calls: Path, answers: Path, seconds: float, processes: int) -> None:
    """Time them, on a GPU."""
    gather(timed, calls, answers, processes, seconds)
