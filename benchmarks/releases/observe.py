"""What a release of torch takes for the programs of `programs.py`, observed where it runs: a row a program, as JSON.

    python -m benchmarks.releases.observe tests/data/releases/torch_2.15.json h200 [NAME ...]

Needs torch alone, a CUDA build of it, and a GPU, or a CUDA runtime that answers for one without computing anything. The second
word is the profile of that GPU; what the file knows already stays. Three steps each, as `analyzer` follows them: inputs to the
device, gradients gone, forward, loss, backward, optimizer (in float16 through a scaler); nothing deleted between them. Every program runs in a process of its own.

Of each program: the peaks of what is allocated, reserved and requested, how many blocks were asked for, and how many bytes in
all. `python -m benchmarks releases matrix` runs this file under the emulated runtime, one release and one GPU after the other.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.subjects.releases import OPTIMIZERS, PROGRAMS

STEPS = 3
FIGURES = (
    "allocated_bytes.all.peak",
    "reserved_bytes.all.peak",
    "requested_bytes.all.peak",
    "allocation.all.allocated",
    "requested_bytes.all.allocated",
)


class _Scaler(torch.amp.GradScaler):
    """One whose gradients are finite: a runtime that computes nothing cannot say so."""

    def _maybe_opt_step(self, optimizer: Any, *_: Any, **__: Any) -> Any:
        return optimizer.step()


def first_kernel() -> None:
    """The first kernel, whose threads need memory of their own: where segments lie afterwards depends on it. A runtime that answers for a GPU
    sees a kernel, not what it needs, and has a function to be told (`process_launches`, extensions/analyzer_emulation/native/memory.c)."""
    torch.zeros(1, device="cuda")
    runtime = ctypes.CDLL(None)
    if hasattr(runtime, "emulated_launches"):
        runtime.emulated_launches(2)


def observe(name: str) -> list[int]:
    """One program in this process: its `FIGURES`."""
    program = PROGRAMS[name]
    first_kernel()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    train = program.optimizer is not None
    model = program.make_model().to("cuda").train(train)
    optimizer = OPTIMIZERS[program.optimizer](model.parameters()) if program.optimizer else None
    host_inputs, host_target = program.make_batch()
    cast: Any = contextlib.nullcontext
    if program.amp is not None:
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[program.amp]
        cast = lambda: torch.autocast("cuda", dtype=dtype)  # noqa: E731
    scaler = _Scaler("cuda", enabled=program.amp == "fp16")
    for _ in range(STEPS):
        inputs = [x.to("cuda") for x in host_inputs]
        target = host_target.to("cuda")
        if optimizer is None or program.loss is None:
            with torch.no_grad(), cast():
                out = model(*inputs)
            continue
        optimizer.zero_grad()
        with cast():
            out = model(*inputs)
            loss = program.loss(out, target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    found = torch.cuda.memory_stats()
    return [found[name] for name in FIGURES]


def one(name: str) -> list[int] | None:
    """A program in a process of its own, which has torch already and no CUDA yet; None where it fails there."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(write, json.dumps(observe(name)).encode())
            code = 0
        except BaseException as problem:
            print(f"{name}: left out: {problem}"[:300], file=sys.stderr, flush=True)
        os._exit(code)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def main() -> None:
    path, device = Path(sys.argv[1]), sys.argv[2]
    rows = {name: found for name in sys.argv[3:] or PROGRAMS if (found := one(name)) is not None}
    known = json.loads(path.read_text())["devices"] if path.exists() else {}
    devices = {**known, device: {**known.get(device, {}), **rows}}
    written = ",\n".join(
        f'  "{name}": {{\n' + ",\n".join(f"   {json.dumps(n)}: {r}" for n, r in of.items()) + "\n  }"
        for name, of in devices.items()
    )
    about = f'"torch": "{torch.__version__}",\n "cuda": "{torch.version.cuda}",\n "figures": {json.dumps(FIGURES)}'
    path.write_text(f'{{\n {about},\n "devices": {{\n{written}\n }}\n}}\n')


if __name__ == "__main__":
    main()
