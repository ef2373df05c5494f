"""On a GPU: random convolutions asked of cuDNN, by a handle and by a GPU's description.

    for part in $(seq 0 13); do timeout 90 python -m benchmarks cudnn both_ways OUT.$part.jsonl --part $part & done; wait
    python -m benchmarks cudnn bounds OUT.*.jsonl
    while ! python -m benchmarks cudnn unlisted rtx4090 products.rtx4090.jsonl --kind products; do :; done
    python -m benchmarks cudnn grow sm89 products.rtx4090.jsonl winograd.rtx4090.jsonl transforms.rtx4090.jsonl

both_ways: where the two differ, `analyzer/libraries/cudnn/splits.py` has rules. A line: the call, and of each plan engine, knobs and bytes, by a
handle and by a description (null: it cannot be built). Plans that are compiled at run time take tens of milliseconds by a handle and are left out.

unlisted: engines built on cuBLAS stand in a description's list in a process that has a GPU of any model, as a handle lists
them; the order depends on the compute capability alone (H100, 26 November 2026: of 3,000 convolutions asked for an L4, an
RTX 4060 and an RTX 4090 all the same, likewise an RTX 3060 and an RTX 3090; of 6,400 by an H100's handle and description
none differs in what is first). A line: the question, and engines and bytes of the list up to the first plan that is listed
everywhere. A call at which the library crashes (9.19 for a B200, nearly every one) is a line without answer; the command,
begun again, goes on behind the last line.
"""

from __future__ import annotations

import json
import math
import time
from itertools import islice
from pathlib import Path

import click

from analyzer.devices import load
from analyzer.libraries.cudnn.backend import Cudnn, CudnnError
from analyzer.libraries.cudnn.choices import most_bytes
from analyzer.libraries.cudnn.convolution import Convolution, Question
from analyzer.libraries.cudnn.description import description_of
from analyzer.libraries.cudnn.on_cublas import is_on_cublas
from benchmarks.subjects.convolutions import KINDS, drawn, of_all_kinds, of_kind, strided

# Engines compiled at run time, which a description cannot build.
_COMPILED = {"forward": {5}, "data": {6, 78}, "weight": {16, 19, 70}}


@click.command()
@click.argument("output", type=Path)
@click.option("--part", default=0, help="Which random calls: each part has its own.")
@click.option("--seconds", default=60.0)
@click.option("--strided", "larger", is_flag=True, help="Gradients of the input with strides above one.")
def both_ways(output: Path, part: int, seconds: float, larger: bool) -> None:
    """Ask for random calls both ways until the time is over."""
    import torch

    torch.zeros(1, device="cuda")
    handle = Cudnn()
    described = Cudnn(device_json=handle.device_json())
    end = time.monotonic() + seconds
    with output.open("w") as file:
        for call in drawn(strided if larger else of_all_kinds, part):
            if time.monotonic() > end:
                break
            question, unbuilt = Question.of(call), _COMPILED[call.operation]
            both = [list(each.candidates(question, unbuilt)) for each in (handle, described)]
            print(json.dumps((call._asdict(), *both)), file=file, flush=True)


@click.command()
@click.argument("files", type=click.Path(exists=True, path_type=Path), nargs=-1)
def bounds(files: tuple[Path, ...]) -> None:
    """Print in what share of the calls asked both ways the most is as `choices.py` says, dense and grouped."""
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


def up_to_listed(cudnn: Cudnn, call: Convolution, plain: bool) -> list[tuple[int, ...]]:
    """Engine and bytes of the plans up to the first that is not built on cuBLAS. plain: up to the first of
    these that does without tensor cores, and for each whether it does."""
    found: list[tuple[int, ...]] = []
    try:
        for plan in cudnn.plans(Question.of(call)):
            found.append((plan.engine, plan.workspace_bytes, *([int(not plan.tensor_core)] if plain else ())))
            if not is_on_cublas(call.operation, plan) and not (plain and plan.tensor_core):
                break
    except CudnnError:
        return []
    return found


@click.command()
@click.argument("gpu")
@click.argument("output", type=Path)
@click.option("--kind", type=click.Choice([*KINDS]), default="products")
@click.option("--part", default=0, help="Which calls: each part has its own.")
@click.option("--calls", default=100_000)
@click.option("--plain", is_flag=True, help="Go on to the first plan without tensor cores.")
@click.option("--until", default=math.inf, help="Seconds since 1970 at which to stop.")
def unlisted(gpu: str, output: Path, kind: str, part: int, calls: int, plain: bool, until: float) -> None:
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
        for call in islice(of_kind(kind, part), done, calls):
            if time.time() > until:
                break
            print(json.dumps(Question.of(call).fields[1:10]), end=" ", file=file, flush=True)
            print(json.dumps(up_to_listed(cudnn, call, plain)), file=file)
