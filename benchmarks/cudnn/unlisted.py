"""On a GPU: where cuDNN puts the engines that no description lists without one.

    while ! python -m benchmarks cudnn unlisted rtx4090 products.rtx4090.jsonl --kind products; do :; done
    python -m benchmarks cudnn grow sm89 products.rtx4090.jsonl winograd.rtx4090.jsonl transforms.rtx4090.jsonl

Engines built on cuBLAS stand in a description's list in a process that has a GPU of any model, as a handle lists them;
the order depends on the compute capability alone (H100, 26 November 2026: of 3,000 convolutions asked for an L4, an RTX
4060 and an RTX 4090 all the same, likewise an RTX 3060 and an RTX 3090; of 6,400 by an H100's handle and description
none differs in what is first). A
line for each convolution: the question, and engines and bytes of the list up to the first plan that is listed
everywhere. A call at which the library crashes (9.19 for a B200, nearly every one) is a line without answer; the
command, begun again, goes on behind the last line. `grow` makes a table of `analyzer/libraries/cudnn/first_plan.py` of the lines, for one compute capability.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import click

from analyzer.devices import load
from analyzer.libraries.cudnn.backend import Cudnn, CudnnError
from analyzer.libraries.cudnn.convolution import OPERATIONS, Convolution, Question
from analyzer.libraries.cudnn.description import description_of
from analyzer.libraries.cudnn.on_cublas import is_on_cublas, is_single_product

_TYPES = (("float32", False),) * 5 + (
    ("float32", True), ("float16", False), ("float16", True), ("bfloat16", False), ("bfloat16", True),
)  # fmt: skip
_MOST_ELEMENTS = 2**28


def products(dice: random.Random) -> Convolution:
    """Filters of one element, strides of one, nothing padded: images, sequences, single vectors, volumes."""
    form = dice.choices(("square", "oblong", "sequence", "vector", "volume"), (6, 2, 2, 1, 0.5))[0]
    side = _logarithmic(dice, 1, 160)
    spatial = {
        "square": (side, side), "oblong": (side, _logarithmic(dice, 1, 160)), "vector": (1, 1),
        "sequence": (1, _logarithmic(dice, 4, 8000)), "volume": (_logarithmic(dice, 1, 32),) * 3,
    }[form]  # fmt: skip
    dtype, last = dice.choice(_TYPES)
    return _call(
        dice.choice(OPERATIONS), dtype, last, dice, spatial, (1,) * len(spatial), (0,) * len(spatial)
    )


def images(dice: random.Random) -> Convolution:
    """Products an image, of which some take up to 400 bytes besides."""
    while True:
        call = products(dice)
        if not is_single_product(call):
            return call


def layers(dice: random.Random) -> Convolution:
    """Products an image as networks have them, channels and positions multiples of 8, mostly of half precision."""
    while True:
        call = images(dice)
        sizes = *call.w_shape[:2], math.prod(call.x_shape[2:])
        if all(size % 8 == 0 for size in sizes) and (call.dtype != "float32" or dice.random() < 0.3):
            return call


def winograd(dice: random.Random) -> Convolution:
    """Filters of 3 x 3 with strides of one, mostly of float32, in NCHW and for weights."""
    side = _logarithmic(dice, 3, 160)
    spatial = (side, side if dice.random() < 0.8 else _logarithmic(dice, 3, 160))
    dtype, last = dice.choice(_TYPES)
    operation = dice.choice(("forward", "data", "weight", "weight"))
    return _call(operation, dtype, last, dice, spatial, (3, 3), (dice.choice((0, 1, 1, 1, 2)),) * 2)


def transforms(dice: random.Random) -> Convolution:
    """Filters of any size with strides of one, up to the whole image."""
    side = _logarithmic(dice, 2, 256)
    spatial = (side, side if dice.random() < 0.8 else _logarithmic(dice, 2, 256))
    size = min(dice.choice((2, 3, 3, 3, 4, 5, 5, 7, 9, 11, _logarithmic(dice, 2, 64), *spatial)), *spatial)
    padding = dice.choice((0, size // 2, size // 2, 1))
    last = dice.random() < 0.1
    return _call(dice.choice(OPERATIONS), "float32", last, dice, spatial, (size, size), (padding, padding))


def oblong(dice: random.Random) -> Convolution:
    """Filters and paddings that differ by dimension, of sequences too, with strides of one."""
    spatial = (_logarithmic(dice, 1, 200) if dice.random() < 0.7 else 1, _logarithmic(dice, 2, 256))
    kernel = tuple(min(dice.choice((1, 2, 3, 3, 4, 5, 7, 9, 15)), size) for size in spatial)
    padding = tuple(dice.choice((0, 0, 1, size // 2, size // 2, 2)) if length > 1 else 0
                    for size, length in zip(kernel, spatial, strict=True))  # fmt: skip
    return _call(dice.choice(OPERATIONS), "float32", dice.random() < 0.1, dice, spatial, kernel, padding)


def grouped(dice: random.Random) -> Convolution:
    """Filters of several elements in 2 to 16 groups, strides of one."""
    side = _logarithmic(dice, 3, 120)
    spatial = (side, side if dice.random() < 0.7 else _logarithmic(dice, 3, 120))
    size = min(dice.choice((2, 3, 3, 3, 3, 5, 5, 5, 7, 9)), *spatial)
    padding = dice.choice((0, size // 2, size // 2, 1))
    dtype, last = dice.choice(_TYPES)
    groups = dice.choice((2, 2, 2, 3, 4, 4, 8, 16))
    inputs, outputs = (groups * _logarithmic(dice, 1, 256) for _ in range(2))
    batch = _logarithmic(dice, 1, 128)
    return Convolution(
        dice.choice(OPERATIONS), dtype, last, (batch, inputs, *spatial),
        (outputs, inputs // groups, size, size), (padding,) * 2, (1, 1), (1, 1),
    )  # fmt: skip


KINDS: dict[str, Callable[[random.Random], Convolution]] = {
    "products": products, "images": images, "layers": layers, "winograd": winograd, "transforms": transforms,
    "oblong": oblong, "grouped": grouped,
}  # fmt: skip


def drawn(kind: str, part: int) -> Iterator[Convolution]:
    """Convolutions of a kind without end; each part has its own."""
    dice = random.Random(f"{kind} {part}")
    while True:
        call = KINDS[kind](dice)
        if (
            min(call.y_shape) > 0
            and max(map(math.prod, (call.x_shape, call.y_shape, call.w_shape))) < _MOST_ELEMENTS
        ):
            yield call


def _call(
    operation: str, dtype: str, last: bool, dice: random.Random,
    spatial: tuple[int, ...], kernel: tuple[int, ...], padding: tuple[int, ...],
) -> Convolution:  # fmt: skip
    inputs, outputs = _channels(dice), _channels(dice)
    batch = dice.choice((1, 2, 4, 8, 16, 32, 64, 128)) if dice.random() < 0.5 else _logarithmic(dice, 1, 512)
    ones = (1,) * len(spatial)
    return Convolution(
        operation, dtype, last, (batch, inputs, *spatial), (outputs, inputs, *kernel), padding, ones, ones
    )


def _channels(dice: random.Random) -> int:
    """A number of channels: mostly a multiple of 8, mostly of 16 or 32 where there are many."""
    number = _logarithmic(dice, 1, 2300)
    unit = dice.choice((1, 2, 4, 8, 8, 16, 32, 64))
    return -(-number // unit) * unit


def _logarithmic(dice: random.Random, least: int, most: int) -> int:
    return round(math.exp(dice.uniform(math.log(least), math.log(most))))


def up_to_listed(cudnn: Cudnn, call: Convolution, *, plain: bool = False) -> list[tuple[int, ...]]:
    """Engine and bytes of the plans up to the first that is not built on cuBLAS. plain: up to the first of
    these that does without tensor cores, and for each whether it does."""
    found: list[tuple[int, ...]] = []
    for plan in cudnn.plans(Question.of(call)):
        found.append((plan.engine, plan.workspace_bytes, *([int(not plan.tensor_core)] if plain else ())))
        if not is_on_cublas(call.operation, plan) and not (plain and plan.tensor_core):
            break
    return found


@click.command()
@click.argument("gpu")
@click.argument("output", type=Path)
@click.option("--kind", type=click.Choice([*KINDS]), default="products")
@click.option("--part", default=0, help="Which calls: each part has its own.")
@click.option("--calls", default=100_000)
@click.option("--plain", is_flag=True, help="Go on to the first plan without tensor cores.")
@click.option("--until", default=math.inf, help="Seconds since 1970 at which to stop.")
def main(gpu: str, output: Path, kind: str, part: int, calls: int, plain: bool, until: float) -> None:
    """Ask for a GPU's description until the calls or the time are over, behind what the file holds already; GPU
    "handle": for the one that is here."""
    import torch

    torch.zeros(1, device="cuda")
    cudnn = Cudnn(device_json=None if gpu == "handle" else description_of(load(gpu)))
    done = 0
    if output.exists():
        lines = output.read_text()
        done = lines.count("\n") + (not lines.endswith("\n"))
    with output.open("a") as file:
        if done:
            print(file=file)
        for call in islice(drawn(kind, part), done, calls):
            if time.time() > until:
                break
            print(json.dumps(Question.of(call).fields[1:10]), end=" ", file=file, flush=True)
            try:
                plans = up_to_listed(cudnn, call, plain=plain)
            except CudnnError:
                plans = []
            print(json.dumps(plans), file=file)
