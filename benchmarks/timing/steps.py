"""A step of a measured case (`cases.json`): that of `analyzer/capture/pytorch/module/step.py`.

PyTorch alone is imported: an emulated program runs it too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Copies:
    """Copies a batch to the GPU, and adds up what that took of the host."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy on the GPU."""
        begin = time.perf_counter()
        copied = tensor.to("cuda")
        self.seconds += time.perf_counter() - begin
        return copied


def to_gpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy on the GPU."""
    return tensor.to("cuda")


def stepping(
    models: ModuleType,
    case: dict[str, Any],
    batch: int,
    copied: Callable[[torch.Tensor], torch.Tensor] = to_gpu,
) -> Callable[[], None]:
    """What runs a step of the case on the GPU, at a batch: a model of `models`, compiled where the case says so ("compile": a mode;
    "budget": its `activation_memory_budget`; "micro": micro-batches of a step, among which the batch is divided). copied: what copies
    a tensor of the batch."""
    micro = case.get("micro", 1)
    batch //= micro
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
    if "budget" in case:
        from torch._functorch import config

        config.activation_memory_budget = case["budget"]
    mode = case.get("compile")
    called = model if mode is None else torch.compile(model, mode=None if mode == "default" else mode)

    def under() -> Any:
        return torch.autocast("cuda", dtype=TYPES[amp]) if amp else contextlib.nullcontext()

    def prepared() -> list[torch.Tensor]:
        xs = [copied(x) for x in inputs]
        if case.get("channels_last"):
            xs = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in xs]
        return xs

    def step() -> None:
        if optimizer is None:
            xs = prepared()
            with torch.no_grad(), under():
                called(*xs)
            return
        for number in range(micro):
            xs, y = prepared(), copied(target)
            if not number:
                optimizer.zero_grad()
            with under():
                out = called(*xs)
                value = loss(out[0] if isinstance(out, tuple) else out, y)
            (value if micro == 1 else value / micro).backward()
        optimizer.step()

    return step
