"""Ask cuDNN on this machine's GPU for every plan of a network's convolutions, and write the table of ladders.

    python -m benchmarks cudnn ladders list TARGET... --batches 110:125,64 -o CALLS.json [--mode infer] [--amp bf16]
    python -m benchmarks cudnn ladders ask CALLS.json -o LADDERS.json.gz [--seconds 60] [--processes 14]   # on the GPU
    python -m benchmarks cudnn ladders merge LADDERS.json.gz... -o analyzer/devices/profiles/h200.ladders.npz

`list` captures each target (as `analyze` takes it, or "torchvision:NAME") at one batch, with its backward pass, and lists its
convolutions at all of `--batches`. `ask` builds the plans in PyTorch's order (`analyzer/runs/cudnn.py`; nothing is executed) and
keeps what each takes; calls are asked in the order of the list until the time is over. `merge` adds them to the table that
is there: where a call was asked before, the new answer stands.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import click

from analyzer.libraries.cudnn import ladders
from analyzer.libraries.cudnn.table import OPERATIONS, Convolution, convolution_of
from analyzer.runs.cudnn import Cudnn, CudnnError
from benchmarks.harness.processes import in_parts

_CAPTURED_BATCH = 4


def read_batches(text: str) -> list[int]:
    """Batches of "110:125,64": both ends of a range are in it."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition(":")
        found += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(found))


def convolutions_of(target: Any, **options: Any) -> list[Convolution]:
    """The convolutions whose workspace the rules ask for in a target's captured steps, each once."""
    from analyzer.options import Options
    from analyzer.planning.subject import Subject
    from analyzer.runtimes.pytorch.scratch import convolution, kernel_allocations

    subject = Subject(target, Options.of({"device": "h200", **options}))
    captured = subject.captured(_CAPTURED_BATCH)
    with mock.patch.object(convolution, "workspace", wraps=convolution.workspace) as asked:
        for operator in captured.source.graph.operators:
            if "convolution" in operator.name:
                kernel_allocations(operator, captured.profile)
    return list(dict.fromkeys(one.args[0] for one in asked.call_args_list))


def at_batch(call: Convolution, batch: int) -> Convolution:
    """The same convolution for another number of samples: several images a sample stay as many."""
    images = call.x_shape[0] * batch // _CAPTURED_BATCH
    return dataclasses.replace(call, x_shape=(images, *call.x_shape[1:]))


def answers(part: int, parts: int, calls: list[list[Any]], seconds: float) -> list[list[Any]]:
    """Every `parts`-th call with its plans' workspaces in bytes, as far as the time goes."""
    import torch

    torch.zeros(1, device="cuda")
    begin, cudnn, found = time.monotonic(), Cudnn(), []
    for fields in calls[part::parts]:
        if time.monotonic() - begin > seconds:
            break
        try:
            plans = [plan.workspace_bytes for plan in cudnn.plans(read_call(fields))]
        except CudnnError:
            plans = []
        found.append([fields, plans])
    return found


def read_call(fields: Iterable[Any]) -> Convolution:
    """A call from JSON."""
    return Convolution(*[tuple(value) if isinstance(value, list) else value for value in fields])


def known() -> Iterator[tuple[Convolution, tuple[int, ...]]]:
    """The table that is there, as `ladders.write` takes it."""
    import numpy as np

    for (operation, dtype, channels_last, family), batches in ladders.ladders().items():
        like = Convolution(
            OPERATIONS[operation], ladders.DTYPES[dtype], channels_last, (1, 1), (1, 1), (), (), ()
        )
        for batch, steps in batches.items():
            yield convolution_of(np.array(family), batch, like), steps


@click.group("ladders")
def main() -> None:
    """Every plan of a network's convolutions, and the table of them."""


@main.command("list")
@click.argument("targets", nargs=-1, required=True)
@click.option("--batches", required=True, type=read_batches)
@click.option("--mode", default="train")
@click.option("--amp")
@click.option("--channels-last", is_flag=True)
@click.option("--image", default=224)
@click.option("-o", "--output", required=True, type=Path)
def write_list(
    targets: tuple[str, ...],
    batches: list[int],
    mode: str,
    amp: str | None,
    channels_last: bool,
    image: int,
    output: Path,
) -> None:
    """List these targets' convolutions at all batches, added to the calls the file has already."""
    import torch

    calls: dict[str, list[Any]] = {}
    if output.exists():
        calls = {json.dumps(fields): fields for fields in json.loads(output.read_text())}
    for name in targets:
        target, inputs = name, None
        if name.startswith("torchvision:"):
            from benchmarks.networks import torchvision_cpu

            torchvision_cpu.enable()
            import torchvision

            with torch.device("meta"):
                target = getattr(torchvision.models, name.partition(":")[2])()

            def inputs(batch: int) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
                images = torch.empty(batch, 3, image, image)
                return (images,), (torch.empty(batch, dtype=torch.int64),)

        found = convolutions_of(
            target, inputs=inputs, mode=mode, amp=amp, channels_last=channels_last,
            loss="cross_entropy" if inputs and mode == "train" else None,
        )  # fmt: skip
        for batch in batches:
            for call in found:
                fields = json.loads(json.dumps(dataclasses.astuple(at_batch(call, batch))))
                calls.setdefault(json.dumps(fields), fields)
        print(f"{name}: {len(found)} convolutions")
    output.write_text(json.dumps(list(calls.values())))


@main.command()
@click.argument("calls", type=Path)
@click.option("--seconds", default=60.0)
@click.option("--processes", default=14)
@click.option("-o", "--output", required=True, type=Path)
def ask(calls: Path, seconds: float, processes: int, output: Path) -> None:
    """Ask for every plan of these calls, on a GPU."""
    listed = json.loads(calls.read_text())
    found = [answer for part in in_parts(answers, processes, listed, seconds) for answer in part]
    with gzip.open(output, "wt") as file:
        json.dump(found, file)
    print(f"{len(found):,} answers to {len(listed):,} calls")


@main.command()
@click.argument("answers", nargs=-1, required=True, type=Path)
@click.option("-o", "--output", required=True, type=Path)
def merge(answers: tuple[Path, ...], output: Path) -> None:
    """Add what was asked to the table; where a call was asked before, the new answer stands."""
    import numpy as np

    table: dict[Convolution, tuple[int, ...]] = dict(known())
    before = len(table)
    for path in answers:
        with gzip.open(path, "rt") as file:
            table |= {read_call(fields): tuple(plans) for fields, plans in json.load(file) if plans}
    about = ""
    if output.exists():
        with np.load(output) as there:
            about = str(there["about"])
    ladders.write(output, table.items(), about)
    print(f"{len(table):,} calls, {len(table) - before:,} of them new")
