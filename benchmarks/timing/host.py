"""What eager PyTorch takes of the host for one call, by kind: forward without and with a gradient, and its part of the backward pass.

Tensors are so small that the device is never behind. Seconds are of `time.perf_counter`, the device waited for before and after,
outside the clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

F = torch.nn.functional
_CALLS, _ROUNDS, _CHAIN = 100, 7, 40


def _waited() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _seconds(call: Callable[[], Any], count: int = _CALLS) -> float:
    """Of one call: the median round's."""
    for _ in range(10):
        call()
    rounds = []
    for _ in range(_ROUNDS):
        _waited()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        rounds.append((time.perf_counter() - begin) / count)
    return statistics.median(rounds)


def _backward(
    step: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, more: list[torch.Tensor]
) -> float:
    """Of one operator's part of the backward pass of a chain, the accumulation into `.grad` of `more` with it."""
    rounds = []
    for _ in range(_ROUNDS):
        y = x
        for _ in range(_CHAIN):
            y = step(y)
        total = y.float().sum()
        for tensor in more:
            tensor.grad = None
        _waited()
        begin = time.perf_counter()
        total.backward()
        rounds.append((time.perf_counter() - begin) / _CHAIN)
    return statistics.median(rounds)


def calls(device: str) -> dict[str, tuple[Callable[[torch.Tensor], Any], torch.Tensor, list[torch.Tensor]]]:
    """Name -> a step from a tensor to one alike, such a tensor, the parameters behind it."""
    x, image = torch.randn(4, 64, device=device), torch.randn(2, 16, 8, 8, device=device)
    text, heads = torch.randn(2, 8, 64, device=device), torch.randn(2, 4, 8, 16, device=device)
    linear, conv, norm = (
        nn.Linear(64, 64, device=device),
        nn.Conv2d(16, 16, 3, padding=1, device=device),
        nn.BatchNorm2d(16, device=device),
    )
    bare = nn.Conv2d(16, 16, 3, padding=1, bias=False, device=device)
    rows, group = nn.LayerNorm(64, device=device), nn.GroupNorm(4, 16, device=device)
    w, b = linear.weight, linear.bias
    square = torch.randn(8, 8, device=device)
    batch = torch.randn(2, 64, 64, device=device)
    p = list
    return {
        "relu": (torch.relu, x, []), "add": (lambda t: t + x, x, []), "mul": (lambda t: t * x, x, []), "mul_scalar": (lambda t: t * 1.5, x, []),
        "gelu": (F.gelu, x, []), "pow": (lambda t: t.pow(2), x, []), "dropout": (lambda t: F.dropout(t, 0.1), x, []), "view": (lambda t: t.view(4, 64), x, []),
        "transpose": (lambda t: t.transpose(0, 1), square, []), "slice": (lambda t: t[:], x, []), "select_stack": (lambda t: torch.stack((t[0], t[1], t[2], t[3])), x, []),
        "contiguous": (lambda t: t.t().contiguous(), square, []), "cat": (lambda t: torch.cat((t[:2], t[2:])), x, []), "sum_keep": (lambda t: t + t.mean(-1, keepdim=True), x, []),
        "softmax": (lambda t: t.softmax(-1), x, []), "matmul": (lambda t: t @ square, square, []), "linear": (lambda t: F.linear(t, w, b), x, [w, b]),
        "linear3": (lambda t: F.linear(t, w, b), text, [w, b]), "linear_module": (linear, x, p(linear.parameters())), "bmm": (lambda t: torch.bmm(t, batch), text, []),
        "conv": (conv, image, p(conv.parameters())), "conv_bare": (bare, image, p(bare.parameters())), "batch_norm": (norm, image, p(norm.parameters())),
        "layer_norm": (rows, text, p(rows.parameters())), "group_norm": (group, image, p(group.parameters())), "identity": (nn.Identity(), x, []),
        "attention": (lambda t: F.scaled_dot_product_attention(t, t, t), heads, []), "max_pool": (lambda t: F.max_pool2d(t, 3, 1, 1), image, []),
        "interpolate": (lambda t: F.interpolate(t, size=(8, 8)), image, []), "to_and_back": (lambda t: t.to(torch.bfloat16).to(torch.float32), x, []),
        "where": (lambda t: torch.where(t > 0, t, x), x, []), "sequential3": (nn.Sequential(nn.Identity(), nn.Identity(), nn.Identity()), x, []),
    }  # fmt: skip


def _optimizers(device: str) -> dict[str, float]:
    found = {}
    for count in (10, 100, 400):
        for name, make in {
            "sgd": lambda ps: torch.optim.SGD(ps, 1e-3), "sgdm": lambda ps: torch.optim.SGD(ps, 1e-3, momentum=0.9), "adamw": torch.optim.AdamW,
            "adamw_fused": lambda ps: torch.optim.AdamW(ps, fused=True), "adamw_forloop": lambda ps: torch.optim.AdamW(ps, foreach=False),
        }.items():  # fmt: skip
            tensors = [nn.Parameter(torch.randn(64, device=device)) for _ in range(count)]
            for tensor in tensors:
                tensor.grad = torch.zeros_like(tensor)
            try:
                optimizer = make(tensors)
                optimizer.step()
                found[f"{name} {count}"] = _seconds(optimizer.step, 3)
            except RuntimeError as error:
                found[f"{name} {count}: {error}"[:80]] = 0.0
    return found


def measured(device: str = "cuda") -> dict[str, Any]:
    """Seconds a call, by name: [no gradient, gradient, backward]; optimizers' steps; autocast; the empty backward pass."""
    found: dict[str, Any] = {}
    for name, (step, x, more) in calls(device).items():
        try:
            with torch.no_grad():
                plain = _seconds(lambda step=step, x=x: step(x))
            wanted = x.clone().requires_grad_()
            found[name] = [
                plain,
                _seconds(lambda step=step, w=wanted: step(w)),
                _backward(step, wanted, more),
            ]
        except RuntimeError as error:
            found[name] = str(error)[:100]
    x = torch.randn(4, 64, device=device)
    linear, rows = nn.Linear(64, 64, device=device), nn.LayerNorm(64, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        wanted = x.clone().requires_grad_()
        found["autocast linear"] = [
            0.0,
            _seconds(lambda: linear(wanted)),
            _backward(linear, wanted, list(linear.parameters())),
        ]
        found["autocast layer_norm"] = [
            0.0,
            _seconds(lambda: rows(wanted)),
            _backward(rows, wanted, list(rows.parameters())),
        ]
    one = torch.randn(1, device=device, requires_grad=True)
    # A new graph for each call: one that has been run backward is gone.
    found["backward of one"] = _seconds(lambda: (one * 1.0).backward(), 20)  # noqa: PLW0108
    found["cross_entropy"] = _seconds(
        lambda: F.cross_entropy(x, torch.zeros(4, dtype=torch.long, device=device))
    )
    found["optimizers"] = _optimizers(device)
    if torch.cuda.is_available():
        found["gap"] = gaps()
    return found


def gaps() -> dict[str, float]:
    """Seconds from one kernel's begin to the next's, of a queue that was full before the first began, by the elements of each."""
    found = {}
    for elements in (64, 2**16, 2**20, 2**22):
        x = torch.zeros(elements, device="cuda")
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(2):
            torch.cuda.synchronize()
            torch.cuda._sleep(40_000_000)
            begin.record()
            for _ in range(500):
                x.relu_()
            end.record()
            torch.cuda.synchronize()
        found[str(elements)] = begin.elapsed_time(end) / 500 / 1e3
    return found
