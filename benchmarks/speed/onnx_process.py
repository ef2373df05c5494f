"""A whole `analyze model.onnx` process beside the least any tool does: `onnx.load` and `infer_shapes` as a process.

    python -m benchmarks speed onnx [MODEL.onnx ...] [--batch 64] [--repeat 7]

Both are started alternately in this one run, and the fastest of each counts, because everything else on the machine
only ever adds time. Start-up, imports and printing are in both. A first run of each is not counted: it compiles to
bytecode what is not compiled yet, as pip does when it installs. The aim is a ratio of 3 at most for resnet50.onnx.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import ROOT
from benchmarks.speed.processes import fastest

AIM = 3.0
MODELS = ROOT / "models"
LEAST = (
    "import sys, onnx; onnx.shape_inference.infer_shapes(onnx.load(sys.argv[1], load_external_data=False))"
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path, default=[MODELS / "resnet50.onnx"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()

    table = Table(title=f"Seconds of a process, fastest of {arguments.repeat}, batch {arguments.batch}")
    for column in ("model", "load + infer_shapes", "analyze", "ratio", "aim"):
        table.add_column(column, justify="left" if column == "model" else "right")
    worst = 0.0
    for model in arguments.models:
        least = [sys.executable, "-c", LEAST, str(model)]
        ours = [
            sys.executable,
            "-m",
            "analyzer.cli",
            str(model),
            "--batch",
            str(arguments.batch),
            "--device",
            "h200",
        ]
        first, second = fastest(least, ours, arguments.repeat)
        worst = max(worst, second / first)
        table.add_row(model.name, f"{first:.3f}", f"{second:.3f}", f"{second / first:.2f}", f"{AIM:.0f}")
    console = Console()
    console.print(table)
    console.print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", style="dim")
    return 0 if worst <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
