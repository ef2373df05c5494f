"""What a release of torch takes for the programs of `release_programs.py`, observed where it runs: a row a program, as JSON.

    python benchmarks/releases/observe.py tests/data/releases/torch_2.15.json h200 [NAME ...]

Needs torch alone, a CUDA build of it, and a GPU, or a CUDA runtime that answers for one without computing anything. The second
word is the profile of that GPU; what the file knows of others stays. Three steps each, as `analyzer` follows them: inputs to the
device, gradients gone, forward, loss, backward, optimizer; nothing deleted between them. Every program runs in a process of its own.

Of each program: the peaks of what is allocated, reserved and requested, how many blocks were asked for, and how many bytes in
all. Programs that ask cuDNN of the GPU (attention in half precision on compute capability 9) need the GPU itself, and are left out.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from release_programs import OPTIMIZERS, PROGRAMS

STEPS = 3
FIGURES = (
    "allocated_bytes.all.peak",
    "reserved_bytes.all.peak",
    "requested_bytes.all.peak",
    "allocation.all.allocated",
    "requested_bytes.all.allocated",
)


def observe(name: str) -> list[int]:
    """One program in this process: its `FIGURES`."""
    program = PROGRAMS[name]
    torch.zeros(1, device="cuda")
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
        loss.backward()
        optimizer.step()
    found = torch.cuda.memory_stats()
    return [found[name] for name in FIGURES]


def main() -> None:
    if sys.argv[1] == "--one":
        print("\n@" + json.dumps(observe(sys.argv[2])))
        return
    path, device = Path(sys.argv[1]), sys.argv[2]
    asks_cudnn = torch.cuda.get_device_capability()[0] in (9, 10)
    names = sys.argv[3:] or [n for n, program in PROGRAMS.items() if not (program.amp and asks_cudnn)]
    rows: dict[str, list[int]] = {}
    for name in names:
        one = [sys.executable, __file__, "--one", name]
        run = subprocess.run(one, capture_output=True, text=True, check=False)
        last = (run.stdout.strip() or "?").splitlines()[-1]
        if not last.startswith("@"):
            print(f"{name}: left out, exit code {run.returncode}: {run.stderr[:200]}", file=sys.stderr)
            continue
        rows[name] = json.loads(last[1:])
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
