"""A step of a measured case (`cases.json`): that of `analyzer/capture/pytorch/module/step.py`.

PyTorch alone is imported: an emulated program runs it too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def stepping(models: ModuleType, case: dict[str, Any], batch: int) -> Callable[[], None]:
    """What runs a step of the case on the GPU, at a batch: a model of `models`, compiled where the case says so ("compile": a mode)."""
    make_model, make_batch, loss = models.M[case["model"]]
    dtype, train, amp = TYPES.get(case.get("dtype", "")), case["mode"] == "train", case.get("amp")
    try:
        with torch.device("cuda"):
            model = make_model()
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        model = make_model()
    model = model.to("cuda").train(train)
    inputs, target = make_batch(batch)
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
    called = model if mode is None else torch.compile(model, mode=None if mode == "default" else mode)

    def under() -> Any:
        return torch.autocast("cuda", dtype=TYPES[amp]) if amp else contextlib.nullcontext()

    def step() -> None:
        xs = [x.to("cuda") for x in inputs]
        if case.get("channels_last"):
            xs = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in xs]
        if optimizer is None:
            with torch.no_grad(), under():
                called(*xs)
            return
        y = target.to("cuda")
        optimizer.zero_grad()
        with under():
            out = called(*xs)
            value = loss(out[0] if isinstance(out, tuple) else out, y)
        value.backward()
        optimizer.step()

    return step
