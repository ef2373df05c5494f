"""Operators whose own memory the scratch rules predict, as one program that runs under capture and on a GPU.

Each case is an iteration of its own: its inputs are made, the mark "N.input" is set, the operator runs (and
its backward pass), the mark "N.NAME" is set. The peak at the second mark is what is compared. "N.over" is set
when everything is deleted, so that the next iteration's peak starts from nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from analyzer.graph import Phase

if TYPE_CHECKING:
    from analyzer.capture.pytorch.module.step import Watcher

Case = tuple[Callable[[], tuple[Any, ...]], Callable[..., Any]]


def _zeros(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device="cuda", requires_grad=grad)


def _heads(dtype: torch.dtype, length: int) -> tuple[torch.Tensor, ...]:
    return tuple(_zeros(4, 12, length, 64, dtype=dtype, grad=True) for _ in range(3))


CASES: dict[str, Case] = {
    "sum of columns": (lambda: (_zeros(16384, 1024),), lambda x: x.sum(0)),
    "sum of rows": (lambda: (_zeros(64, 1 << 18),), lambda x: x.sum(1)),
    "sum of all": (lambda: (_zeros(1 << 24),), lambda x: x.sum()),
    "mean over space": (lambda: (_zeros(32, 256, 56, 56),), lambda x: x.mean((2, 3))),
    "sum over batch and space": (lambda: (_zeros(32, 256, 56, 56),), lambda x: x.sum((0, 2, 3))),
    "sum of columns, bfloat16": (lambda: (_zeros(16384, 1024, dtype=torch.bfloat16),), lambda x: x.sum(0)),
    "largest of rows": (lambda: (_zeros(64, 1 << 18),), lambda x: x.amax(1)),
    "norm of all": (lambda: (_zeros(1 << 24),), torch.linalg.vector_norm),
    "attention, float32": (lambda: _heads(torch.float32, 512), functional.scaled_dot_product_attention),
    "attention, bfloat16": (lambda: _heads(torch.bfloat16, 512), functional.scaled_dot_product_attention),
    "attention, bfloat16, causal": (
        lambda: _heads(torch.bfloat16, 1024),
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
    "layer norm": (
        lambda: (_zeros(8192, 1024, grad=True), _zeros(1024, grad=True), _zeros(1024, grad=True)),
        lambda x, w, b: functional.layer_norm(x, (1024,), w, b),
    ),
    "layer norm, transposed": (
        lambda: (_zeros(8, 1024, 1024, grad=True), _zeros(1024, grad=True), _zeros(1024, grad=True)),
        lambda x, w, b: functional.layer_norm(x.transpose(1, 2), (1024,), w, b),
    ),
    "softmax, transposed": (
        lambda: (_zeros(8, 1024, 1024, grad=True),),
        lambda x: functional.softmax(x.transpose(1, 2), -1),
    ),
    "embedding": (
        lambda: (_zeros(8192, dtype=torch.int64), _zeros(50257, 256, grad=True)),
        functional.embedding,
    ),
    "sort": (lambda: (_zeros(1 << 20),), lambda x: torch.sort(x)[0]),
    "top k": (lambda: (_zeros(64, 1 << 16),), lambda x: torch.topk(x, 5)[0]),
    "cumulative sum": (lambda: (_zeros(1 << 20),), lambda x: torch.cumsum(x, 0)),
}


def script(watcher: Watcher) -> None:
    """Run every case (module docstring)."""
    for number, (name, (make, operator)) in enumerate(CASES.items()):
        watcher.step = number
        watcher.phase = Phase.INPUT
        inputs = make()
        watcher.mark(f"{number}.input")
        watcher.phase = Phase.FORWARD
        result = operator(*inputs)
        if result.requires_grad:
            gradient = torch.ones_like(result)
            watcher.phase = Phase.BACKWARD
            result.backward(gradient)
            del gradient
        watcher.mark(f"{number}.{name}")
        del inputs, result
        watcher.mark(f"{number}.over")
