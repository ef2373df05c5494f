"""How much faster two processes work on a grid than one: python -m benchmarks speed grid [--jobs 200] [--times 3]

Runs `analyze grid` on the same jobs with one worker and with two, in turn, and prints the seconds, their ratio, and the load of
the machine. The tables must be the same, byte for byte. Where other work shares the machine the seconds mean little: the
processor time of both runs tells then how evenly two could divide the work, beginning and end included.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from benchmarks import ROOT

_GRID = """targets: [{models}/resnet50.py, {models}/feedforward.py, {models}/linear_mnist.py, {models}/cnn.py]
batches: [{batches}]
devices: [h200, rtx4090]
strategies: {{as it is: {{}}, mixed: {{amp: bf16}}}}
options: {{mode: train, optimizer: adamw}}
"""


def once(folder: Path, workers: int) -> tuple[float, float]:
    """Seconds by the clock, and of processor time, of `analyze grid` with that many workers."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "analyzer", "grid", "grid.yaml", "--workers", str(workers), "-q"]
    subprocess.run(
        [*command, "-o", f"{workers}.csv"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, sum(
        getattr(after, kind) - getattr(before, kind) for kind in ("ru_utime", "ru_stime")
    )


@click.command("grid")
@click.option("--jobs", default=200, help="a multiple of 16")
@click.option("--times", default=3)
def main(jobs: int, times: int) -> int:
    """1: two workers were less than 1.8 times as fast as one in the median, or gave another table."""
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batches = ", ".join(str(1 + number) for number in range(-(-jobs // 16)))
        (folder / "grid.yaml").write_text(_GRID.format(models=ROOT / "models", batches=batches))
        for _ in range(times):
            load = os.getloadavg()[0]
            (one, cpu_one), (two, cpu_two) = once(folder, 1), once(folder, 2)
            same = (folder / "1.csv").read_bytes() == (folder / "2.csv").read_bytes()
            count = len((folder / "1.csv").read_text().splitlines()) - 1
            ratios.append(one / two)
            print(
                f"{count} jobs, load {load:.1f}: one worker {one:.1f} s ({cpu_one:.1f} s of processor time), two {two:.1f} s "
                f"({cpu_two:.1f} s): {one / two:.2f} times as fast; tables {'the same' if same else 'DIFFER'}",
                flush=True,
            )
            if not same:
                return 1
    return int(statistics.median(ratios) < 1.8)
