"""What it takes to analyse a model that would not fit here: Llama-2-7B in bfloat16, AdamW, sequences of 2,048 tokens.

    python -m benchmarks speed llama [--batch 1]

Measured in this process: seconds of `analyzer.analyze` (building the model without weights included), and the
largest resident set the process ever had, torch and all. The aims are 20 s and 1.5 GiB.
"""

from __future__ import annotations

import resource
import sys
import time

import click
from rich.console import Console
from rich.table import Table

from benchmarks import ROOT

MIB, GIB = 2**20, 2**30
SECONDS_AIM, RESIDENT_AIM = 20.0, 1.5 * GIB
MODEL = ROOT / "models" / "llama.py"


def peak_resident_bytes() -> int:
    """The process's largest resident set so far; Linux counts it in KiB, macOS in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@click.command("llama")
@click.option("--batch", default=1)
def main(batch: int) -> int:
    """Seconds and host memory of Llama-2-7B's analysis; 1 if over the aim."""
    import torch

    import analyzer

    imported = peak_resident_bytes()
    start = time.perf_counter()
    estimate = analyzer.analyze(MODEL, batch=batch, mode="train", optimizer="adamw", device="h200")
    elapsed = time.perf_counter() - start
    resident = peak_resident_bytes()

    table = Table(title=f"Llama-2-7B, bfloat16, AdamW, batch {batch}, 2,048 tokens")
    for column in ("", "here", "aim", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("seconds", f"{elapsed:.1f}", f"{SECONDS_AIM:.0f}", f"{elapsed / SECONDS_AIM:.2f}")
    table.add_row(
        "peak resident set, MiB",
        f"{resident / MIB:.0f}",
        f"{RESIDENT_AIM / MIB:.0f}",
        f"{resident / RESIDENT_AIM:.2f}",
    )
    table.add_row("  of which after importing torch", f"{imported / MIB:.0f}", "", "")
    table.add_section()
    table.add_row("predicted: peak allocated, MiB", f"{estimate.peak_allocated / MIB:.0f}", "", "")
    table.add_row("predicted: peak reserved, MiB", f"{estimate.peak_reserved / MIB:.0f}", "", "")
    console = Console()
    console.print(table)
    console.print(f"torch {torch.__version__}, Python {sys.version.split()[0]}")
    return 0 if elapsed <= SECONDS_AIM and resident <= RESIDENT_AIM else 1
