"""Steps of one compiled case (`compiled_cases.py`), as a program: `python -m benchmarks.timing.compiled_step CASE.json [COUNT]`.

It is what `compiled.py` measures on a GPU, and what `analyzer.emulate` is given. A step is that of `programs.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.networks import torchvision_cpu

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
ZOOS = {"development": "development", "held_out_3": "held_out_3"}


def stepping(case: dict[str, Any]) -> Callable[[], None]:
    """What runs a step of the case on the GPU."""
    torchvision_cpu.enable()
    models = importlib.import_module(f"benchmarks.networks.{ZOOS.get(case['zoo'], 'held_out')}")
    make_model, make_batch, loss = models.M[case["model"]]
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = bool(case.get("tf32"))
    dtype, train, amp = TYPES.get(case.get("dtype", "")), case["mode"] == "train", case.get("amp")
    try:
        with torch.device("cuda"):
            model = make_model()
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        model = make_model()
    model = model.to("cuda").train(train)
    inputs, target = make_batch(case["batch"])
    inputs = tuple(x.cpu() for x in inputs)
    if dtype:
        model = model.to(dtype)
        inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    if case.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    target = target.cpu()
    if dtype and target.is_floating_point():
        target = target.to(dtype)
    optimizer = models.OPT[case["opt"]](model.parameters()) if train else None
    mode = case.get("compile")
    compiled = model if mode is None else torch.compile(model, mode=None if mode == "default" else mode)

    def under() -> Any:
        return torch.autocast("cuda", dtype=TYPES[amp]) if amp else contextlib.nullcontext()

    def step() -> None:
        xs = [x.to("cuda") for x in inputs]
        if case.get("channels_last"):
            xs = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in xs]
        if optimizer is None:
            with torch.no_grad(), under():
                compiled(*xs)
            return
        y = target.to("cuda")
        optimizer.zero_grad()
        with under():
            out = compiled(*xs)
            value = loss(out[0] if isinstance(out, tuple) else out, y)
        value.backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    run = stepping(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 5):
        run()
