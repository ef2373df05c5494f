"""On a GPU: what PyTorch asks its allocator for when it runs a convolution for the first time, and what a handle lists.

    python -m benchmarks cudnn tried OUT.json [--benchmark] [--calls N]
    python -m benchmarks cudnn listed OUT.json [--calls N]

tried: random convolutions of small networks, run by `aten::convolution` and its backward in a process that has run none of them; a line: the
call and the bytes of each request besides the result's. With `--benchmark` (`torch.backends.cudnn.benchmark`) the first is that of the
trials, the second that of the plan that won. listed: gradients of the input with strides above one, and engine and bytes of each
plan of the handle's list, in order.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click

from analyzer.libraries.cudnn.backend import Cudnn
from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES, OPERATIONS, Convolution, Question

_SIDES = (4, 5, 6, 7, 8, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 65, 96, 112, 128, 224)
_CHANNELS = (1, 2, 3, 4, 6, 8, 12, 16, 16, 16, 24, 32, 32, 48, 64, 96, 128)
_BATCHES = (1, 2, 3, 4, 8, 10, 16, 17, 32, 50, 64, 100, 128, 256)
_BLOCK = 512  # the allocator's


def small(dice: random.Random) -> Convolution:
    """A convolution as small networks have them, dense, NCHW, of any type and operation."""
    taps, side = dice.choice((3, 3, 3, 3, 5, 5, 7, 9, 11)), dice.choice(_SIDES)
    width = side if dice.random() < 0.8 else dice.choice((8, 16, 31, 64))
    stride, pad = 1 if dice.random() < 0.9 else 2, dice.choice((taps // 2, taps // 2, 0, 1))
    dtype = dice.choice(("float32", "float16", "bfloat16"))
    inputs, outputs = dice.choice(_CHANNELS), dice.choice(_CHANNELS)
    return Convolution(
        dice.choice(OPERATIONS), dtype, False, (dice.choice(_BATCHES), inputs, side, width), (outputs, inputs, taps, taps),
        (pad, pad), (stride, stride), (1, 1),
    )  # fmt: skip


def strided(dice: random.Random) -> Convolution:
    """A float32 gradient of the input with strides of two to four, now and then of another one sideways."""
    taps, side = dice.choice((2, 3, 3, 3, 4, 5, 5, 7, 9, 11)), dice.choice(_SIDES)
    width = side if dice.random() < 0.7 else dice.choice((8, 16, 31, 64))
    kernel = (taps, taps if dice.random() < 0.85 else dice.choice((3, 5)))
    step, pad = dice.choice((2, 2, 2, 2, 2, 3, 4)), dice.choice((taps // 2, taps // 2, 0, 1, 2))
    stride = (step, step if dice.random() < 0.9 else dice.choice((1, 2)))
    padding = (pad, pad if dice.random() < 0.8 else dice.choice((0, 1, 2)))
    inputs, outputs = dice.choice(_CHANNELS), dice.choice(_CHANNELS)
    return Convolution(
        "data",
        "float32",
        False,
        (dice.choice(_BATCHES), inputs, side, width),
        (outputs, inputs, *kernel),
        padding,
        stride,
        (1, 1),
    )


def drawn(kind: Callable[[random.Random], Convolution], seed: int) -> Iterator[Convolution]:
    """Convolutions of a kind without end that have a result."""
    dice = random.Random(seed)
    while True:
        call = kind(dice)
        sizes = zip(call.x_shape[2:], call.padding, call.w_shape[2:], strict=True)
        if all(size + 2 * pad >= taps > pad for size, pad, taps in sizes) and min(call.y_shape) > 0:
            yield call


def requested(call: Convolution) -> list[int]:
    """Run the convolution; return the bytes PyTorch asks the allocator for besides those of the result."""
    import torch

    def zeros(shape: tuple[int, ...]) -> Any:
        return torch.zeros(shape, dtype=getattr(torch, call.dtype), device="cuda")

    settings = (call.stride, call.padding, call.dilation, False, [0, 0], call.groups)
    x, w, y = zeros(call.x_shape), zeros(call.w_shape), zeros(call.y_shape)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    if call.operation == "forward":
        torch.ops.aten.convolution(x, w, None, *settings)
    else:
        wanted = [call.operation == "data", call.operation == "weight", False]
        torch.ops.aten.convolution_backward(y, x, w, None, *settings, wanted)
    torch.cuda.synchronize()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    sizes = [entry["size"] for entry in trace if entry["action"] == "alloc"]
    made = {"forward": call.y_shape, "data": call.x_shape, "weight": call.w_shape}[call.operation]
    nbytes = math.prod(made) * ELEMENT_BYTES[call.dtype]
    sizes.remove(nbytes if nbytes in sizes else -(-nbytes // _BLOCK) * _BLOCK)
    return sizes


@click.command()
@click.argument("output", type=Path)
@click.option("--benchmark", is_flag=True)
@click.option("--calls", default=750)
@click.option("--seed", default=1)
def main(output: Path, benchmark: bool, calls: int, seed: int) -> None:
    """Run convolutions of small networks and write what each asks for."""
    import torch

    torch.backends.cudnn.benchmark = benchmark
    rows = [[call._asdict(), requested(call)] for call in islice(drawn(small, seed), calls)]
    output.write_text(
        json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "calls": rows})
    )


@click.command()
@click.argument("output", type=Path)
@click.option("--calls", default=260)
@click.option("--seed", default=1)
def listed(output: Path, calls: int, seed: int) -> None:
    """Write what a handle lists for gradients of the input with larger strides."""
    import torch

    torch.zeros(1, device="cuda")
    cudnn, rows = Cudnn(), []
    for call in islice(drawn(strided, seed), calls):
        plans = [(engine, nbytes) for engine, _, nbytes in cudnn.candidates(Question.of(call))]
        rows.append([call._asdict(), plans])
    output.write_text(
        json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "calls": rows})
    )
