"""Steps of one compiled case (`cases.json`), as a program: `python -m benchmarks.timing.compiled_step CASE.json [COUNT]`.

It is what `compiled.py` measures on a GPU, and what `analyzer.emulate` is given. A step is that of `steps.py`.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.subjects.networks import torchvision_cpu
from benchmarks.timing import steps

ZOOS = {"development": "development", "held_out_3": "held_out_3"}


def stepping(
    case: dict[str, Any], copied: Callable[[torch.Tensor], torch.Tensor] = steps.to_gpu
) -> Callable[[], None]:
    """What runs a step of the case on the GPU. copied: as `steps.stepping` has it."""
    torchvision_cpu.enable()
    models = importlib.import_module(f"benchmarks.subjects.networks.{ZOOS.get(case['zoo'], 'held_out')}")
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = bool(case.get("tf32"))
    return steps.stepping(models, case, case["batch"], copied)


if __name__ == "__main__":
    run = stepping(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 5):
        run()
