"""A whole `analyze model.py --mode train` process beside the least any PyTorch tool does: `import torch` as a process.

    python -m benchmarks speed process [MODEL.py] [--batch 32] [--repeat 7]

Start-up, imports and printing are in both. The aim is a ratio of 2 at most for resnet50.py.
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

AIM = 2.0
MODELS = ROOT / "models"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", type=Path, default=MODELS / "resnet50.py")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()

    ours = [sys.executable, "-m", "analyzer.cli", str(arguments.model), "--batch", str(arguments.batch)]
    ours += ["--mode", "train", "--device", "h200"]
    first, second = fastest([sys.executable, "-c", "import torch"], ours, arguments.repeat)
    table = Table(title=f"Seconds of a process, fastest of {arguments.repeat}, batch {arguments.batch}")
    for column in ("model", "import torch", "analyze", "ratio", "aim"):
        table.add_column(column, justify="left" if column == "model" else "right")
    table.add_row(
        arguments.model.name, f"{first:.3f}", f"{second:.3f}", f"{second / first:.2f}", f"{AIM:.0f}"
    )
    console = Console()
    console.print(table)
    console.print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", style="dim")
    return 0 if second / first <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
