"""How long an analysis takes beside the thing it analyses: ResNet-50, one training step on this machine's CPU.

    python -m benchmarks speed step [--batch 32] [--repeat 5]

Both run in this process after all imports and one warm-up, in turn, so that the machine is equally busy for both.
The analysis is the whole of `analyzer.analyze` on a model that is built already: capture of three iterations (the
default), liveness, events, allocator, attribution. The step is forward, loss, backward and SGD in float32, with as
many threads as PyTorch takes by default. The aim is an analysis in at most a tenth of the step.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import click
import torch
from rich.console import Console
from rich.table import Table

import analyzer
from models import resnet50

AIM = 1 / 10


def seconds(function: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@click.command("step")
@click.option("--batch", default=32)
@click.option("--repeat", default=5, help="analyses and steps timed")
def main(batch: int, repeat: int) -> int:
    """Time both in turn; 1 if the analysis takes more than a tenth of the step."""
    model = resnet50.make_model().train()
    inputs, targets = resnet50.make_batch(batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def analysis() -> analyzer.Estimate:
        return analyzer.analyze(
            model, inputs, targets=targets, loss=resnet50.loss, mode="train", optimizer="sgd", device="h200"
        )

    def step() -> None:
        optimizer.zero_grad()
        resnet50.loss(model(*inputs), *targets).backward()
        optimizer.step()

    analysis()
    step()
    times = [(seconds(analysis), seconds(step)) for _ in range(repeat)]

    table = Table(title=f"ResNet-50, batch {batch}, one training step")
    for column in ("", "median s", "least s", "most s"):
        table.add_column(column, justify="left" if not column else "right")
    for name, values in zip(("analysis", "real step on the CPU"), zip(*times, strict=True), strict=True):
        figures = statistics.median(values), min(values), max(values)
        table.add_row(name, *(f"{value:.3f}" for value in figures))
    ratio = statistics.median(a / b for a, b in times)
    table.add_section()
    table.add_row("analysis / step (aim 0.100)", f"{ratio:.3f}", "", "")
    console = Console()
    console.print(table)
    console.print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, Python {sys.version.split()[0]}"
    )
    return 0 if ratio <= AIM else 1
