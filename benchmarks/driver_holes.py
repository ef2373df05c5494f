"""Which addresses CUDA's driver has left, step by step: `python -m benchmarks driver_holes measure OUT.json.gz [--workers N]` on a GPU.

A step is a line of Python. For every program below and every number of its steps, a fresh process runs that many and then
asks the driver for 2 MiB after 2 MiB: since a request goes into the lowest hole that has room, the answers are the holes, and
what follows lies in new chunks. A row: program, count (of steps run), segments (PyTorch's own) and holes, both (address, bytes).

The rules made of it are `analyzer/allocators/process.py`.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from benchmarks.harness.pages import MIB
from benchmarks.harness.processes import ProcessError, answer

PAGE_BYTES = 2 * MIB
# Requests beyond the holes there were: each goes into a new chunk's next page.
BEYOND = 300


def _steps(text: str) -> tuple[str, ...]:
    """The steps of a text, which stand between bars and ends of lines."""
    return tuple(step.strip() for line in text.strip().splitlines() for step in line.split(" | "))


_BASICS = _steps("""
    k = kept.setdefault('s', empty(256)); k.fill_(1) | k.relu_() | F.gelu(k) | F.layer_norm(k, (256,)) | F.softmax(k, 0) | k.sum()
    k.normal_() | F.dropout(k, 0.5) | a = ones(64, 64); kept['a'] = a; a @ a | b = a.bfloat16(); b @ b
    F.conv2d(ones(2, 3, 16, 16), ones(4, 3, 3, 3)) | w = ones(64, 64).requires_grad_(); (a @ w).sum().backward()
    F.conv2d(ones(2, 8, 16, 16).requires_grad_(), ones(4, 8, 3, 3).requires_grad_()).sum().backward()
""")
# Names are kept in `kept`: what dies would be PyTorch's again, not the driver's, but would be reused.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "nothing": ("torch.cuda.init()", "torch.cuda.current_stream()"),
    "a small tensor first": (
        *_steps(
            "kept['s'] = empty(256) | kept['s'].copy_(torch.ones(256)) | kept['l'] = empty(MIB) | kept['l'].copy_(torch.ones(MIB))"
        ),
        *_BASICS,
    ),
    "zeros first": ("kept['s'] = torch.zeros(256, device='cuda')", *_BASICS),
    "zeros and gone": ("torch.zeros(1, device='cuda'); torch.cuda.empty_cache()", *_BASICS),
    "40 MiB first": ("kept['g'] = room(40)", "kept['s'] = empty(256)", "kept['h'] = room(70)", *_BASICS),
    "20 MiB first": ("kept['g'] = empty(MIB)", "kept['s'] = empty(256)", "kept['h'] = room(70)", *_BASICS),
    "22 MiB first": ("kept['g'] = room(22)", "kept['s'] = empty(256)", "kept['h'] = room(70)", *_BASICS),
    "24 MiB first": ("kept['g'] = room(24)", "kept['s'] = empty(256)", "kept['h'] = room(70)", *_BASICS),
    "500 MiB first": ("kept['g'] = room(500)", "kept['s'] = empty(256)", "kept['h'] = room(500)", *_BASICS),
    "a model": (
        *_steps("""
            kept['s'] = empty(256) | kept['1'] = empty(MIB) | kept['2'] = empty(MIB) | kept['3'] = room(13) | kept['4'] = room(38)
            kept['5'] = [room(4) for _ in range(20)] | kept['6'] = [empty(100 << 10) for _ in range(300)]
            kept['7'] = [room(12) for _ in range(10)]
        """),
        *_BASICS,
    ),
    "a product first": ("kept['a'] = a = empty(64, 64); kept['s'] = empty(256)", "a @ a", "a.fill_(1)"),
    "a convolution first": (
        "kept['a'] = a = empty(2, 3, 16, 16); w = empty(4, 3, 3, 3)",
        "F.conv2d(a, w)",
        "a.fill_(1)",
    ),
}
_UNARY = "relu tanh sigmoid exp log sin cos sqrt rsqrt abs neg erf reciprocal floor round sign log1p expm1 erfinv digamma lgamma"
_OPTIMIZERS = (
    ("SGD", ""), ("SGD", ", momentum=0.9"), ("Adam", ""), ("Adam", ", foreach=False"), ("AdamW", ", fused=True"), ("Adagrad", ""),
    ("RMSprop", ""),
)  # fmt: skip
# Each the second step of a program whose first is one kernel.
ALONE = (
    *_steps("""
        ones(256) + 0 | whole(256) + 1 | half(256) + 1 | ones(4, 4).t().contiguous() | ones(256).bfloat16() | ones(256).pow(2)
    """),
    *(f"torch.{name}(ones(256))" for name in _UNARY.split()),
    *(
        f"F.{name}(ones(256))"
        for name in _steps("gelu | silu | softplus | mish | hardswish | elu | leaky_relu")
    ),
    *(
        f"ones(8, 16).{call}"
        for call in _steps("sum() | sum(1) | mean() | mean(0) | norm() | var(1) | std() | max() | max(1)")
    ),
    *(
        f"ones(8, 16).{call}"
        for call in _steps("argmax(1) | amax(1) | prod() | logsumexp(1) | cumsum(1) | sort(1) | topk(3)")
    ),
    *_steps("""
        (ones(8, 16) > 0).any() | (ones(8, 16) > 0).all() | half(8, 16).sum() | whole(8, 16).sum() | torch.isfinite(ones(8)).all()
        ones(256).cumprod(0) | whole(256).cumsum(0) | ones(256).sort() | ones(256).unique() | ones(256).nonzero()
        torch.randperm(1000, device='cuda') | torch.randn(256, device='cuda') | torch.rand(256, device='cuda')
        torch.randint(0, 9, (256,), device='cuda') | torch.bernoulli(ones(256)) | ones(256).uniform_() | torch.multinomial(ones(4, 16), 1)
        F.dropout(ones(256), 0.5) | torch.arange(100, device='cuda') | torch.linspace(0, 1, 100, device='cuda') | ones(3, 3).tril()
        F.softmax(ones(8, 16), 1) | F.log_softmax(ones(8, 16), 1) | F.softmax(ones(8, 4096), 1) | back(lambda x: F.softmax(x, 1), ones(8, 16))
        F.layer_norm(ones(8, 64), (64,)) | back(lambda x, w, b: F.layer_norm(x, (64,), w, b), ones(8, 64), ones(64), ones(64))
        F.group_norm(ones(2, 8, 4, 4), 4) | back(lambda x, w, b: F.group_norm(x, 4, w, b), ones(2, 8, 4, 4), ones(8), ones(8))
        F.batch_norm(ones(2, 8, 4, 4), ones(8), ones(8), ones(8), ones(8), training=True) | F.rms_norm(ones(8, 64), (64,))
        back(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), ones(2, 8, 4, 4), ones(8), ones(8))
        F.batch_norm(ones(2, 8, 4, 4), ones(8), ones(8), ones(8), ones(8), training=False) | F.embedding(whole(8), ones(10, 16))
        back(lambda w: F.embedding(whole(8), w), ones(10, 16)) | back(lambda w: F.embedding(whole(4000), w), ones(10, 16))
        F.cross_entropy(ones(8, 10), whole(8)) | back(lambda x: F.cross_entropy(x, whole(8)), ones(8, 10)) | F.mse_loss(ones(8), ones(8))
        F.binary_cross_entropy_with_logits(ones(8), ones(8)) | torch.cat([ones(8), ones(8)]) | ones(8, 4)[whole(2)]
        ones(8, 4).index_select(0, whole(2)) | ones(8, 4).gather(0, whole(2, 4)) | ones(8, 4).scatter_add_(0, whole(2, 4), ones(2, 4))
        ones(8, 4).index_add_(0, whole(2), ones(2, 4)) | back(lambda x: x[whole(3)], ones(8, 4)) | torch.where(ones(8) > 0, ones(8), ones(8))
        ones(8).masked_fill_(ones(8) > 0, 1) | ones(8, 4).repeat(2, 2) | ones(8, 4).flip(0) | ones(8, 4).roll(1, 0)
        F.pad(ones(2, 3, 4, 4), (1, 1, 1, 1)) | F.interpolate(ones(2, 3, 8, 8), scale_factor=2, mode='bilinear')
        F.max_pool2d(ones(2, 3, 8, 8), 2) | F.avg_pool2d(ones(2, 3, 8, 8), 2) | F.adaptive_avg_pool2d(ones(2, 3, 8, 8), 3)
        ones(64, 64) @ ones(64, 64) | half(64, 64) @ half(64, 64) | half(1024, 1024) @ half(1024, 1024) | ones(512, 512) @ ones(512, 512)
        torch.bmm(ones(4, 64, 64), ones(4, 64, 64)) | F.linear(ones(8, 64), ones(32, 64), ones(32))
        F.linear(half(8, 64), half(32, 64), half(32)) | back(lambda x, w, b: F.linear(x, w, b), ones(8, 64), ones(32, 64), ones(32))
        F.scaled_dot_product_attention(half(2, 4, 32, 16), half(2, 4, 32, 16), half(2, 4, 32, 16))
        F.scaled_dot_product_attention(ones(2, 4, 32, 16), ones(2, 4, 32, 16), ones(2, 4, 32, 16))
        back(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), half(2, 4, 32, 16))
        torch.linalg.inv(torch.eye(8, device='cuda')) | torch.linalg.svd(ones(8, 8)) | torch.fft.fft(ones(64)) | torch.bincount(whole(64))
        F.ctc_loss(ones(20, 2, 5).log_softmax(2), whole(2, 3), whole(2) * 20, whole(2) * 3) | torch.nn.LSTM(8, 8).cuda()(ones(4, 2, 8))
        torch.nn.GRU(8, 8).cuda()(ones(4, 2, 8)) | F.conv2d(ones(2, 3, 32, 32), ones(16, 3, 3, 3))
        F.conv2d(ones(2, 16, 32, 32), ones(16, 16, 3, 3), ones(16), padding=1) | F.conv2d(ones(2, 16, 32, 32), ones(32, 16, 1, 1))
        F.conv2d(ones(2, 16, 32, 32), ones(16, 1, 3, 3), groups=16) | F.conv2d(half(2, 16, 32, 32), half(16, 16, 3, 3))
        F.conv2d(half(2, 64, 32, 32), half(64, 64, 3, 3), padding=1) | F.conv1d(ones(2, 16, 32), ones(16, 16, 3))
        F.conv3d(ones(2, 4, 8, 8, 8), ones(4, 4, 3, 3, 3)) | F.conv_transpose2d(ones(2, 16, 8, 8), ones(16, 8, 2, 2), stride=2)
        back(lambda x, w: F.conv2d(x, w), ones(2, 3, 32, 32), ones(16, 3, 3, 3))
        back(lambda x, w: F.conv2d(x, w), ones(2, 16, 32, 32), ones(32, 16, 1, 1))
        back(lambda x, w: F.conv2d(x, w, padding=1), half(2, 16, 32, 32), half(16, 16, 3, 3))
        back(lambda x, w: F.conv2d(x, w, groups=16), ones(2, 16, 32, 32), ones(16, 1, 3, 3))
        [F.conv2d(ones(2, 16, 32, 32), ones(32, 16, k, k)) for k in (1, 3, 5, 7)]
        [F.conv2d(ones(2, 16, s, s), ones(16, 16, 3, 3)) for s in (8, 16, 32, 64)]
    """),
    *(
        f"p = [ones(100).requires_grad_() for _ in range(3)]; [setattr(q, 'grad', torch.ones_like(q)) for q in p]; torch.optim.{name}(p{rest}).step()"
        for name, rest in _OPTIMIZERS
    ),
    *_steps("""
        torch._foreach_norm([ones(10), ones(20)]) | torch._foreach_add_([ones(10), ones(20)], 1.0) | ones(1).item() | ones(3).cuda().double()
        ones(8, 16).sum(); torch.sin(ones(256)) | torch.sin(ones(256)); ones(8, 16).sum() | ones(256).cumsum(0); ones(8, 16).sum()
        ones(64, 64) @ ones(64, 64); F.conv2d(ones(2, 3, 32, 32), ones(16, 3, 3, 3))
        F.conv2d(ones(2, 3, 32, 32), ones(16, 3, 3, 3)); ones(64, 64) @ ones(64, 64) | torch.ones(MIB).cuda()
        torch.ones(MIB).pin_memory().cuda(non_blocking=True) | torch.amp.GradScaler().scale(ones(1))
    """),
)
# Each the first kernel of a program that has one small tensor.
FIRST = _steps("""
    torch.randn(256, device='cuda') | torch.rand(256, device='cuda') | torch.randint(0, 9, (256,), device='cuda')
    torch.arange(100, device='cuda') | torch.linspace(0, 1, 100, device='cuda') | torch.zeros(9, device='cuda') | empty(256) + 0
    empty(256) + empty(256) | empty(256).relu_() | empty(256).mul_(2) | empty(256).bfloat16() | empty(256).exp() | empty(256).uniform_()
    empty(256).normal_() | empty(4, 4).t().contiguous() | torch.cat([empty(8), empty(8)]) | empty(8, 16).sum() | F.softmax(empty(8, 16), 1)
    F.layer_norm(empty(8, 64), (64,)) | F.embedding(torch.zeros(8).long().cuda(), empty(10, 16)) | empty(8, 4)[torch.zeros(2).long().cuda()]
    empty(8, 16).cumsum(1) | empty(256).sort() | empty(8, 16).topk(3) | empty(8, 16).argmax(1) | F.dropout(empty(256), 0.5)
    F.max_pool2d(empty(2, 3, 8, 8), 2) | empty(3, 3).tril() | torch.where(empty(8) > 0, empty(8), empty(8))
    F.batch_norm(empty(2, 8, 4, 4), empty(8), empty(8), empty(8), empty(8), training=True) | torch._foreach_add_([empty(8)], 1.0)
    F.scaled_dot_product_attention(empty(2, 4, 32, 16), empty(2, 4, 32, 16), empty(2, 4, 32, 16))
    torch.zeros((), dtype=torch.long).cuda().add_(1) | torch.randn(256, device='cuda'); empty(256).fill_(1)
    torch.randint(0, 9, (256,), device='cuda'); empty(256).fill_(1) | torch.randn(256, device='cuda'); empty(256).relu_()
    torch.randn(256, device='cuda'); torch.zeros((), dtype=torch.long).cuda().add_(1) | torch.randn(256, device='cuda'); empty(8, 16).sum()
    torch.randn(256, device='cuda'); F.conv2d(empty(2, 3, 16, 16), empty(4, 3, 3, 3))
    torch.randn(256, device='cuda'); F.embedding(torch.zeros(8).long().cuda(), empty(10, 16)) | empty(64, 64) @ empty(64, 64)
    F.linear(empty(8, 64), empty(32, 64), empty(32)) | torch.bernoulli(empty(256).cpu().fill_(0.5).cuda()) | empty(9).cpu()
    empty(1).item() | torch.randperm(1000, device='cuda') | torch.nn.Linear(8, 8, device='cuda')
    torch.nn.LSTM(8, 8).cuda()(torch.zeros(4, 2, 8).cuda())
""")
PROGRAMS |= {f"alone: {step}": ("kept['s'] = torch.zeros(256, device='cuda')", step) for step in ALONE}
PROGRAMS |= {f"alone first: {step}": ("kept['s'] = empty(256)", step) for step in FIRST}


def run(program: str, count: int) -> dict[str, Any]:
    """The first `count` steps in this process, and the holes after them."""
    import torch
    import torch.nn.functional as F

    def ones(*shape: int, dtype: Any = None) -> Any:
        return torch.empty(*shape, dtype=dtype, device="cuda").fill_(1)

    def back(function: Any, *given: Any) -> None:
        function(*[tensor.requires_grad_() for tensor in given]).sum().backward()

    names = {
        "torch": torch,
        "F": F,
        "kept": {},
        "MIB": MIB,
        "ones": ones,
        "back": back,
        "empty": lambda *shape: torch.empty(*shape, device="cuda"),
        "room": lambda mib: torch.empty(mib * MIB, dtype=torch.uint8, device="cuda"),
        "half": lambda *shape: ones(*shape, dtype=torch.bfloat16),
        "whole": lambda *shape: ones(*shape, dtype=torch.long),
    }
    torch.cuda.init()
    for step in PROGRAMS[program][:count]:
        exec(step, names)
    torch.cuda.synchronize()
    segments = [(segment["address"], segment["total_size"]) for segment in torch.cuda.memory_snapshot()]
    cuda = ctypes.CDLL("libcuda.so.1")
    holes: list[list[int]] = []
    for _ in range(BEYOND):
        address = ctypes.c_uint64()
        if cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(PAGE_BYTES)):
            raise SystemExit("the driver gives nothing any more")
        if holes and sum(holes[-1]) == address.value:
            holes[-1][1] += PAGE_BYTES
        else:
            holes.append([address.value, PAGE_BYTES])
    versions = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    return {"program": program, "count": count, "segments": segments, "holes": holes, **versions}


@click.command("measure")
@click.argument("out", type=Path)
@click.option("--workers", default=8)
@click.option("--only", default="", help="programs whose names begin so")
def main(out: Path, workers: int, only: str) -> int:
    """Record all programs, each in a process of its own; 1 where one gave no answer."""
    wanted = [
        (name, count)
        for name, steps in PROGRAMS.items()
        if name.startswith(only)
        for count in range(len(steps) * ("alone" in name), len(steps) + 1)
    ]

    def record(one: tuple[str, int]) -> Any:
        try:
            return answer("benchmarks.driver_holes:run", *one)
        except ProcessError as error:
            print(one, error, file=sys.stderr)
            return None

    with ThreadPoolExecutor(workers) as pool:
        rows = [row for row in pool.map(record, wanted) if row is not None]
    out.write_bytes(gzip.compress(json.dumps(rows).encode(), mtime=0))
    return int(len(rows) < len(wanted))
