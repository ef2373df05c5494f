"""On a GPU: cuDNN asked by a handle and by the GPU's description, plan by plan; and how much its plans take at most.

    for part in $(seq 0 13); do timeout 90 python -m benchmarks cudnn both_ways OUT.$part.jsonl --part $part & done; wait
    python -m benchmarks cudnn bounds OUT.*.jsonl

Where the two differ is what `analyzer/libraries/cudnn/splits.py` has rules for. Random convolutions of all kinds, every operation, type and
layout; a line: the call, and of each plan the engine, its knobs and its bytes, by a handle and by a description (null: it cannot be built). Plans
that are compiled at run time take tens of milliseconds by a handle and are left out. `bounds` says in what share of the calls the first plan takes
no more than `analyzer/libraries/cudnn/choices.py` says is the most.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import click

from analyzer.libraries.cudnn.backend import Cudnn
from analyzer.libraries.cudnn.choices import most_bytes
from analyzer.libraries.cudnn.convolution import OPERATIONS, Convolution, Question

# Engines compiled at run time, which a description cannot build.
_COMPILED = {"forward": {5}, "data": {6, 78}, "weight": {16, 19, 70}}
_KINDS = (
    ("float32", False),
    ("float32", True),
    ("float16", False),
    ("float16", True),
    ("bfloat16", True),
    ("bfloat16", False),
)


def drawn(seed: int) -> Iterator[Convolution]:
    """Random convolutions, each in one operation, type and layout."""
    dice = random.Random(seed)
    while True:
        dims = dice.choice((1, 2, 2, 2, 3))
        groups = dice.choice((1, 1, 1, 1, 2, 4, 8))
        c, k = (
            groups * dice.choice((1, 2, 3, 5, 8, 11, 16, 24, 32, 48, 64, 96, 127, 128, 256)) for _ in "ck"
        )
        kernel = [dice.choice((1, 1, 2, 3, 3, 3, 4, 5, 7)) for _ in range(dims)]
        if dice.random() < 0.6:
            kernel = [kernel[0]] * dims
        stride, dilation = ([dice.choice((1, 1, 1, 2, 3))] * dims for _ in "sd")
        padding = [dice.choice((0, 1, 1, 2, 3))] * dims
        top = {1: 4000, 2: 150, 3: 40}[dims]
        spatial = [dice.randint(1, top) for _ in range(dims)]
        if dims == 1:
            spatial, kernel, stride, dilation, padding = (
                [1, *spatial],
                [1, *kernel],
                [1, *stride],
                [1, *dilation],
                [0, *padding],
            )
        dtype, last = dice.choice(_KINDS)
        call = Convolution(
            dice.choice(OPERATIONS), dtype, last, (dice.choice((1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 64)), c, *spatial),
            (k, c // groups, *kernel), tuple(padding), tuple(stride), tuple(dilation),
        )  # fmt: skip
        if min(call.y_shape) > 0 and max(call.x_shape[0] * c, call.y_shape[0] * k) * max(spatial) < 2**28:
            yield call


@click.command()
@click.argument("output", type=Path)
@click.option("--part", default=0, help="Which random calls: each part has its own.")
@click.option("--seconds", default=60.0)
def main(output: Path, part: int, seconds: float) -> None:
    """Ask both ways until the time is over."""
    import torch

    torch.zeros(1, device="cuda")
    handle = Cudnn()
    described = Cudnn(device_json=handle.device_json())
    end = time.monotonic() + seconds
    with output.open("w") as file:
        for call in drawn(part):
            if time.monotonic() > end:
                break
            question, unbuilt = Question.of(call), _COMPILED[call.operation]
            both = [list(each.candidates(question, unbuilt)) for each in (handle, described)]
            print(json.dumps((call._asdict(), *both)), file=file, flush=True)


@click.command()
@click.argument("files", type=click.Path(exists=True, path_type=Path), nargs=-1)
def bounds(files: tuple[Path, ...]) -> None:
    """Print in what share of the calls the bound holds, by operation, dense and grouped."""
    held: dict[str, list[bool]] = {}
    for line in (line for path in files for line in path.read_text().splitlines()):
        fields, by_handle, _ = json.loads(line)
        call = Convolution.read(fields)
        nbytes = next((nbytes for *_, nbytes in by_handle if nbytes is not None), None)
        if nbytes is not None:
            kind = f"{call.operation}, {'grouped' if call.groups > 1 else 'dense'}"
            held.setdefault(kind, []).append(nbytes <= most_bytes(call))
    for kind, answers in sorted(held.items()):
        print(f"{kind}: {sum(answers)} of {len(answers)} ({100 * sum(answers) / len(answers):.2f} %)")
