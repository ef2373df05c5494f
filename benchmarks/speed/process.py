"""A whole `analyze` process beside the least any tool does, both started alternately.

    python -m benchmarks speed process [MODEL.py] [--batch 32] [--repeat 7]        # beside `import torch`
    python -m benchmarks speed onnx [MODEL.onnx ...] [--batch 64] [--repeat 7]     # beside `onnx.load` and `infer_shapes`

Start-up, imports and printing are in both. The fastest of each counts, because everything else on the machine only ever adds time. A
first run of each is not counted: it compiles to bytecode what is not compiled yet, as pip does when it installs. The aim is a ratio
of 2 at most for resnet50.py, of 3 for resnet50.onnx.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks import ROOT

_LEAST = (
    "import sys, onnx; onnx.shape_inference.infer_shapes(onnx.load(sys.argv[1], load_external_data=False))"
)
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def seconds(command: list[str]) -> float:
    """Wall-clock seconds a process takes. Raises CalledProcessError if it fails."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_ENVIRONMENT)
    elapsed = time.perf_counter() - start
    if done.returncode not in (0, 1):  # 1: the model does not fit this machine's device
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return elapsed


def compared(
    least: str, models: Sequence[Path], options: Sequence[str], batch: int, repeat: int, aim: float
) -> int:
    """A table of `analyze` on these models beside `python -c LEAST MODEL`; 1 if one's ratio is over the aim."""
    table = Table(title=f"Seconds of a process, fastest of {repeat}, batch {batch}")
    for column in ("model", "the least", "analyze", "ratio", "aim"):
        table.add_column(column, justify="left" if column == "model" else "right")
    worst = 0.0
    for model in models:
        theirs = [sys.executable, "-c", least, str(model)]
        ours = [
            sys.executable,
            "-m",
            "analyzer.cli",
            str(model),
            "--batch",
            str(batch),
            *options,
            "--device",
            "h200",
        ]
        pairs = [(seconds(theirs), seconds(ours)) for _ in range(1 + repeat)]
        first, second = (min(column) for column in zip(*pairs[1:], strict=True))
        worst = max(worst, second / first)
        table.add_row(model.name, f"{first:.3f}", f"{second:.3f}", f"{second / first:.2f}", f"{aim:.0f}")
    console = Console()
    console.print(table)
    console.print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", style="dim")
    return int(worst > aim)


@click.command("process")
@click.argument("model", type=Path, default=ROOT / "models/resnet50.py")
@click.option("--batch", default=32)
@click.option("--repeat", default=7)
def pytorch(model: Path, batch: int, repeat: int) -> int:
    """A training step's analysis beside `import torch`; 1 if over the aim."""
    return compared("import torch", [model], ["--mode", "train"], batch, repeat, 2.0)


@click.command("onnx")
@click.argument("models", nargs=-1, type=Path)
@click.option("--batch", default=64)
@click.option("--repeat", default=7)
def onnx(models: tuple[Path, ...], batch: int, repeat: int) -> int:
    """ONNX files' analysis beside loading them and inferring their shapes; 1 if over the aim."""
    return compared(_LEAST, models or [ROOT / "models/resnet50.onnx"], [], batch, repeat, 3.0)
