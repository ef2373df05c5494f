"""What further GPUs cost a `fit` that looks at several: python -m benchmarks speed fit [MODEL.py] [--device A,B,...] [--times 3]

Runs `analyze fit` for the first GPU alone and for all, in turn, and prints the processor time of each process and of the processes it
starts, and the ratio of their medians. A first run of all is not counted: it asks cuDNN, where one is within reach, what nobody
asked before, and compiles to bytecode what is not compiled yet.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import click

from benchmarks import ROOT

_GPUS = "h200,h100,a100-80gb,b200,l4,l40s,rtx4090,rtx3090,a10,t4,v100"
_AIM = 2.0
_OPTIONS = ("--mode", "train", "--optimizer", "adamw", "--format", "json", "-q", "-o", os.devnull)


def seconds(model: Path, devices: str) -> float:
    """Processor time of one `analyze fit` for these GPUs. Raises CalledProcessError."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [sys.executable, "-m", "analyzer", "fit", str(model), "--device", devices, *_OPTIONS],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@click.command("fit")
@click.argument("model", type=Path, default=ROOT / "models/resnet50.py")
@click.option("--device", default=_GPUS, help="GPUs, with commas between.")
@click.option("--times", default=3)
def main(model: Path, device: str, times: int) -> int:
    """1: all GPUs took more than twice the processor time of the first."""
    first = device.partition(",")[0]
    seconds(model, device)
    pairs = []
    for _ in range(times):
        load = os.getloadavg()[0]
        pairs.append((seconds(model, first), seconds(model, device)))
        one, every = pairs[-1]
        print(f"load {load:.1f}: {first} {one:.1f} s, all {every:.1f} s: {every / one:.2f} times", flush=True)
    one, every = map(statistics.median, zip(*pairs, strict=True))
    count = device.count(",") + 1
    print(f"{count} GPUs {every:.1f} s of processor time, {first} alone {one:.1f} s: {every / one:.2f} times")
    return int(every > _AIM * one)
