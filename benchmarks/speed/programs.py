"""What `analyze run` costs: beside the same network analysed as a target, and beside one real step on this CPU.

    python -m benchmarks speed programs [--json OUT]

Each figure is of a process of its own: processor seconds (a busy machine changes them little), and the host memory at its
highest over what the imports alone take. The target is the network of `examples/programs/language_model.py`, with its loss
and optimizer, over as many steps as the program makes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT

PROGRAM = ROOT / "examples" / "programs" / "language_model.py"
SIZES = {
    "small": ["--wide", "256", "--layers", "4", "--words", "4096"],
    "133 M parameters": ["--wide", "1024", "--layers", "8", "--words", "32000"],
}
PARTS = {
    "run": """
import analyzer
import torch.optim.optimizer
measure(lambda: analyzer.run(sys.argv[1], [*sys.argv[2:], "--steps", "3", "--new", "1"], device="h200"))
""",
    "run, 60 steps": """
import analyzer
import torch.optim.optimizer
measure(lambda: analyzer.run(sys.argv[1], [*sys.argv[2:], "--steps", "60", "--new", "1"], device="h200"))
""",
    "target": """
import analyzer, runpy, torch
made = runpy.run_path(sys.argv[1])
wide, layers, words = (int(sys.argv[sys.argv.index(name) + 1]) for name in ("--wide", "--layers", "--words"))
loss = lambda out, y: torch.nn.functional.cross_entropy(out.flatten(0, 1).float(), y.flatten())
def analyse():
    with torch.device("meta"):
        model = made["LanguageModel"](words, wide, layers, 128)
    tokens = analyzer.TensorSpec((8, 128), "int64")
    analyzer.analyze(model, tokens, targets=tokens, mode="train", loss=loss, optimizer="adamw", amp="bf16",
                     grad_accumulation=2, steps=3, device="h200")
measure(analyse)
""",
    "real step on the CPU": """
import runpy, torch
from torch.optim.optimizer import register_optimizer_step_post_hook
ends = []
register_optimizer_step_post_hook(lambda *_: ends.append(time.process_time()))
sys.argv = [*sys.argv[1:], "--steps", "2", "--new", "1"]
runpy.run_path(sys.argv[0], run_name="__main__")
print("@@" + json.dumps({"seconds": ends[1] - ends[0], "bytes": None}))
""",
}
HEAD = """
import json, resource, sys, time
def measure(what):
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    began = time.process_time()
    what()
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print("@@" + json.dumps({"seconds": seconds, "bytes": peak - held}))
"""


def measured(part: str, arguments: list[str]) -> dict[str, Any]:
    """Processor seconds, and bytes of host memory over the imports, of one part in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + PARTS[part], str(PROGRAM), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(next(line for line in done.stdout.splitlines() if line.startswith("@@"))[2:]))


@click.command("programs")
@click.option("--json", "output", type=Path)
def main(output: Path | None) -> None:
    """Measure every part at every size; a table on stdout."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for size, arguments in SIZES.items():
        print(size, flush=True)
        parts = rows[size] = {}
        for part in PARTS:
            found = parts[part] = measured(part, arguments)
            memory = "" if found["bytes"] is None else f"{found['bytes'] / 2**20:8.0f} MiB over the imports"
            print(f"  {part:<22} {found['seconds']:7.1f} s {memory}", flush=True)
        ratio = parts["run"]["seconds"] / parts["target"]["seconds"]
        step = parts["run"]["seconds"] / parts["real step on the CPU"]["seconds"]
        print(f"  run: {ratio:.2f} of the target's analysis, {step:.2f} of a real step", flush=True)
    if output:
        output.write_text(json.dumps(rows, indent=1) + "\n")
