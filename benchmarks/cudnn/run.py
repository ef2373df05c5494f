"""On a GPU: what PyTorch asks its allocator for when it runs convolutions.

    python -m benchmarks cudnn tried OUT.json [--benchmark] [--calls N]
    python -m benchmarks cudnn executed NETWORKS.json OUT.json [--seconds 200]

tried: random convolutions of small networks, by `aten::convolution` and its backward in a process that has run none of them; a line: the call
and the bytes of each request besides the result's. With `--benchmark` (`torch.backends.cudnn.benchmark`) the first is that of the trials, the
second that of the plan that won.

executed: NETWORKS.json is a list of {"name", "dtype", "channels_last", "benchmark", "convolutions": [[x, w, padding, stride, dilation], ...]}.
Every network runs in a process of its own, which is forked before CUDA is initialised, in the order of the list until the time is over: the
forward passes of its convolutions in order, then the gradients of weight and input in the reverse order, each twice. A row of OUT.json is the
network with `calls`: for each call operation, convolution's number, bytes that the first and the second execution took beyond the result, and
what NVML counts for the process beyond the reservation after the first, in bytes; `begin` is what it counted before.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click
import torch

from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES, Convolution
from analyzer_verify.runs import machine
from benchmarks.cudnn.draws import drawn, small
from benchmarks.libraries.measure import Recorded

_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
_BLOCK = 512  # the allocator's


def prepared(call: Convolution) -> Callable[[], Any]:
    """The convolution on tensors that are there."""

    def zeros(shape: tuple[int, ...]) -> torch.Tensor:
        made = torch.zeros(shape, dtype=getattr(torch, call.dtype), device="cuda")
        return made.contiguous(memory_format=_LAST[len(shape)]) if call.channels_last else made

    moves = (call.stride, call.padding, call.dilation, False, [0] * len(call.stride), call.groups)
    x, w = zeros(call.x_shape), zeros(call.w_shape)
    if call.operation == "forward":
        return partial(torch.ops.aten.convolution, x, w, None, *moves)
    wanted = [call.operation == "data", call.operation == "weight", False]
    return partial(torch.ops.aten.convolution_backward, zeros(call.y_shape), x, w, None, *moves, wanted)


def requested(call: Convolution) -> list[int]:
    """Run the convolution; return the bytes PyTorch asks the allocator for besides those of the result."""
    run = prepared(call)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    with Recorded() as requests:
        run()
        torch.cuda.synchronize()
    sizes = [nbytes for nbytes in requests if nbytes > 0]
    made = {"forward": call.y_shape, "data": call.x_shape, "weight": call.w_shape}[call.operation]
    nbytes = math.prod(made) * ELEMENT_BYTES[call.dtype]
    sizes.remove(nbytes if nbytes in sizes else -(-nbytes // _BLOCK) * _BLOCK)
    return sizes


@click.command()
@click.argument("output", type=Path)
@click.option("--benchmark", is_flag=True)
@click.option("--calls", default=750)
@click.option("--seed", default=1)
def tried(output: Path, benchmark: bool, calls: int, seed: int) -> None:
    """Run convolutions of small networks and write what each asks for."""
    torch.backends.cudnn.benchmark = benchmark
    rows = [[call._asdict(), requested(call)] for call in islice(drawn(small, seed), calls)]
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    output.write_text(json.dumps({**about, "calls": rows}))


def outside() -> int:
    """What NVML counts for this process beyond what the allocator has reserved."""
    torch.cuda.synchronize()
    return (machine.process_bytes() or 0) - torch.cuda.memory_reserved()


def taken(run: Callable[[], Any]) -> int:
    """Bytes at the peak of a call beyond what it leaves."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    result = run()
    stats = torch.cuda.memory_stats()
    del result
    return int(stats["requested_bytes.all.peak"]) - int(stats["requested_bytes.all.current"])


def execute(network: dict[str, Any]) -> dict[str, Any]:
    """One network, in this process."""
    torch.backends.cudnn.benchmark = network["benchmark"]
    torch.zeros(1, device="cuda")
    row: dict[str, Any] = {"begin": outside(), "calls": []}
    numbered = list(enumerate(network["convolutions"]))
    calls = [("forward", *each) for each in numbered]
    calls += [(operation, *each) for each in reversed(numbered) for operation in ("weight", "data")]
    for operation, number, shapes in calls:
        try:
            run = prepared(
                Convolution(operation, network["dtype"], network["channels_last"], *map(tuple, shapes))
            )
            first, second = taken(run), taken(run)
        except RuntimeError as error:
            row["calls"].append([operation, number, repr(error)[:100]])
            continue
        row["calls"].append([operation, number, first, second, outside()])
    return row


@click.command()
@click.argument("networks", type=Path)
@click.argument("output", type=Path)
@click.option("--seconds", default=200.0)
def executed(networks: Path, output: Path, seconds: float) -> None:
    """Execute every network's convolutions, each network in a process of its own."""
    begin, rows = time.monotonic(), []
    answer = output.with_suffix(".part")
    for network in json.loads(networks.read_text()):
        if time.monotonic() - begin > seconds:
            break
        answer.unlink(missing_ok=True)
        started = time.monotonic()
        if (child := os.fork()) == 0:
            try:
                answer.write_text(json.dumps(execute(network)))
            except BaseException as error:  # whatever it is, the others go on
                answer.write_text(json.dumps({"error": repr(error)[:300]}))
            os._exit(0)
        os.waitpid(child, 0)
        row = json.loads(answer.read_text()) if answer.exists() else {"error": "the process died"}
        rows.append({**network, **row, "seconds": round(time.monotonic() - started, 2)})
        output.write_text(json.dumps(rows, separators=(",", ":")))
    answer.unlink(missing_ok=True)
    print(f"{len(rows)} networks, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
