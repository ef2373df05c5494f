"""Execute convolutions of networks on this machine's GPU, in benchmark mode or not, and record what each takes.

Run: `python -m benchmarks cudnn executed NETWORKS.json OUT.json [--seconds 200]`. NETWORKS.json: a list of {"name", "dtype",
"channels_last", "benchmark", "convolutions": [[x, w, padding, stride, dilation], ...]}. Every network runs in a process of its own,
which is forked before CUDA is initialised, in the order of the list until the time is over: the forward passes of its
convolutions in order, then the gradients of weight and input in the reverse order, each twice.

A row of OUT.json is the network with `calls`: for each call operation, convolution's number, bytes that the first and
the second execution took beyond the result, and what NVML counts for the process beyond the reservation after the first,
in bytes; `begin` is what it counted before.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import pynvml
import torch

_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def outside(handle: Any) -> int:
    """What NVML counts for this process beyond what the allocator has reserved."""
    torch.cuda.synchronize()
    rows = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    used = next((row.usedGpuMemory for row in rows if row.pid == os.getpid()), 0)
    return int(used) - torch.cuda.memory_reserved()


def taken(run: Any) -> int:
    """Bytes at the peak of a call beyond what it leaves."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    result = run()
    stats = torch.cuda.memory_stats()
    del result
    return int(stats["requested_bytes.all.peak"]) - int(stats["requested_bytes.all.current"])


def execute(network: dict[str, Any]) -> dict[str, Any]:
    """One network, in this process."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    torch.backends.cudnn.benchmark = network["benchmark"]
    dtype = getattr(torch, network["dtype"])
    torch.zeros(1, device="cuda")
    row: dict[str, Any] = {"begin": outside(handle), "calls": []}

    def tensor(shape: list[int]) -> torch.Tensor:
        made = torch.zeros(shape, device="cuda", dtype=dtype)
        return made.contiguous(memory_format=_LAST[len(shape)]) if network["channels_last"] else made

    def each(number: int, convolution: list[list[int]], operations: tuple[str, ...]) -> None:
        x_shape, w_shape, padding, stride, dilation = convolution
        groups = x_shape[1] // w_shape[1]
        numbers = (stride, padding, dilation, False, [0] * len(stride), groups)
        x, w = tensor(x_shape), tensor(w_shape)
        for operation in operations:
            run = partial(torch.ops.aten.convolution, x, w, None, *numbers)
            if operation != "forward":
                y = torch.ops.aten.convolution(x.to("meta"), w.to("meta"), None, *numbers)
                mask = [operation == "data", operation == "weight", False]
                backward = torch.ops.aten.convolution_backward
                run = partial(backward, tensor(list(y.shape)), x, w, None, *numbers, mask)
            try:
                first, second = taken(run), taken(run)
            except RuntimeError as error:
                row["calls"].append([operation, number, repr(error)[:100]])
                continue
            row["calls"].append([operation, number, first, second, outside(handle)])

    for number, convolution in enumerate(network["convolutions"]):
        each(number, convolution, ("forward",))
    for number, convolution in reversed(list(enumerate(network["convolutions"]))):
        each(number, convolution, ("weight", "data"))
    return row


@click.command("executed")
@click.argument("networks", type=Path)
@click.argument("output", type=Path)
@click.option("--seconds", default=200.0)
def main(networks: Path, output: Path, seconds: float) -> None:
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
