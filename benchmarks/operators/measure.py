"""Record what single ATen operators allocate on a GPU: python -m benchmarks operators measure OUT.json.gz [GROUP ...]

Runs forward and backward of small, varied cases under a dispatch mode, each twice (the second time without first-use
workspaces), and writes for every ATen call of the second run: the allocator's own sequence of requests and frees
during the call, its arguments, and its results with device and storage.
`tests/runtimes/pytorch/scratch/test_recorded.py` compares the scratch rules with it. Needs PyTorch with CUDA; a case that fails is recorded with its error.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

D = "cuda"
CASES: dict[str, Callable[[], Any]] = {}


def describe(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [
            "T",
            list(value.shape),
            str(value.dtype)[6:],
            list(value.stride()),
            value.storage_offset(),
            value.device.type,
        ]
    if isinstance(value, (list, tuple)):
        return [describe(part) for part in value]
    if isinstance(value, (int, float, bool, str, type(None))):
        return value
    return str(value)


def trace() -> list[dict[str, Any]]:
    return torch.cuda.memory._snapshot()["device_traces"][0]


class Record(TorchDispatchMode):
    """Rows: of every call, or, where `distinct`, of each call of the same arguments once."""

    def __init__(self, distinct: bool) -> None:
        super().__init__()
        self.rows: list[Any] = []
        self.on = False
        self.seen: set[str] | None = set() if distinct else None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.on:
            return func(*args, **(kwargs or {}))
        described = describe(args), {key: describe(value) for key, value in (kwargs or {}).items()}
        if self.seen is not None:
            call = json.dumps([str(func), *described])
            if call in self.seen:
                return func(*args, **(kwargs or {}))
            self.seen.add(call)
        inputs = {
            t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)
        }
        start = len(trace())
        result = func(*args, **(kwargs or {}))
        events = [
            (1 if entry["action"] == "alloc" else -1) * entry["size"]
            for entry in trace()[start:]
            if entry["action"] in ("alloc", "free_completed")
        ]
        flat = result if isinstance(result, (tuple, list)) else (result,)
        outs = [
            [
                *describe(out),
                out.untyped_storage().nbytes(),
                int(out.untyped_storage().data_ptr() not in inputs),
            ]
            if isinstance(out, torch.Tensor)
            else None
            for out in flat
        ]
        self.rows.append([str(func), events, *described, outs])
        return result


def t(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = True) -> torch.Tensor:
    return torch.randn(*shape, device=D, dtype=dtype).requires_grad_(grad)


def case(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        CASES[name] = function
        return function

    return register


def both(name: str, make: Callable[[], tuple[Any, ...]], f: Callable[..., Any]) -> None:
    """Forward, then backward from ones."""

    def run() -> None:
        inputs = make()
        out = f(*inputs)
        out = out[0] if isinstance(out, tuple) else out
        if out.requires_grad:
            out.backward(torch.ones_like(out))

    CASES[name] = run


BF, HF = torch.bfloat16, torch.float16


def reductions() -> None:
    shapes = [
        ((8, 1000), (1,)),
        ((4096, 1024), (0,)),
        ((4096, 1024), (1,)),
        ((64, 96, 56, 56), (0, 2, 3)),
        ((64, 96, 56, 56), (2, 3)),
        ((3, 5, 7), (0, 2)),
        ((1 << 22,), (0,)),
        ((33, 77, 129), (1,)),
        ((512, 31, 65), (0,)),
        ((16, 1, 300000), (2,)),
        ((100003, 3), (0,)),
        ((2, 12, 197, 64), (0, 1, 2)),
    ]
    for dtype in (torch.float32, BF, torch.float64):
        for shape, dims in shapes:

            def run(shape: Any = shape, dims: Any = dims, dtype: Any = dtype) -> None:
                x = torch.zeros(shape, device=D, dtype=dtype)
                (
                    x.sum(dims),
                    x.mean(dims, keepdim=True),
                    x.var(dims),
                    torch.var_mean(x, dims, correction=0),
                    x.amax(dims),
                )
                torch.linalg.vector_norm(x, 2, dims)
                x.transpose(0, -1).sum(tuple(len(shape) - 1 - d for d in dims))

            CASES[f"reduce {shape} {dims} {dtype}"] = run

    def whole() -> None:
        for n in (1000, 100000, 1 << 24):
            x = torch.zeros(n, device=D)
            (
                x.sum(),
                x.mean(),
                x.max(),
                x.min(),
                x.argmax(),
                x.std(),
                x.norm(),
                x.prod(),
                x.any(),
                (x > 0).sum(),
                x.abs().max(),
                torch.aminmax(x),
                x.var(),
            )
            (
                x.bfloat16().sum(dtype=torch.float32),
                x.half().mean(),
                x.int().sum(),
                torch.all(x == 0),
                x.isfinite().all(),
                torch.count_nonzero(x),
            )

    CASES["reduce all"] = whole

    def dims() -> None:
        x = torch.zeros(2048, 4097, device=D)
        for d in (0, 1):
            (
                x.max(d),
                x.argmax(d),
                x.any(d),
                x.all(d),
                x.prod(d),
                (x > 0).sum(d),
                x.logsumexp(d),
                x.std(d),
                x.min(d),
                x.bfloat16().amax(d),
                x.bfloat16().argmax(d),
                x.half().sum(d),
                x.median(d),
            )

    CASES["reduce dims"] = dims

    def huge() -> None:
        x = torch.zeros(3, 1 << 28, device=D, dtype=BF)
        x.sum(1), x.sum(0), x.float().sum(1), x.float().sum(0)

    CASES["reduce huge"] = huge


def norms() -> None:
    for rows, cols in (
        (64, 768),
        (4096, 1024),
        (70000, 96),
        (300000, 64),
        (100352, 192),
        (66000, 2048),
        (66000, 4352),
    ):
        for dtype in (torch.float32, BF):
            both(
                f"layer_norm {rows}x{cols} {dtype}",
                lambda r=rows, c=cols, d=dtype: (t(r, c, dtype=d), t(c, dtype=d), t(c, dtype=d)),
                lambda x, w, b: F.layer_norm(x, w.shape, w, b),
            )
            both(
                f"rms_norm {rows}x{cols} {dtype}",
                lambda r=rows, c=cols, d=dtype: (t(r, c, dtype=d), t(c, dtype=d)),
                lambda x, w: F.rms_norm(x, w.shape, w),
            )
    both("layer_norm no affine", lambda: (t(8, 512, 768),), lambda x: F.layer_norm(x, (768,)))
    both("layer_norm weight only", lambda: (t(8, 512, 768), t(768)), lambda x, w: F.layer_norm(x, (768,), w))
    for dtype in (torch.float32, BF):
        both(
            f"group_norm {dtype}",
            lambda d=dtype: (t(4, 64, 32, 32, dtype=d), t(64, dtype=d), t(64, dtype=d)),
            lambda x, w, b: F.group_norm(x, 8, w, b),
        )
        both(
            f"group_norm cl {dtype}",
            lambda d=dtype: (
                t(4, 64, 32, 32, dtype=d, grad=False).to(memory_format=torch.channels_last).requires_grad_(),
                t(64, dtype=d),
                t(64, dtype=d),
            ),
            lambda x, w, b: F.group_norm(x, 8, w, b),
        )
        both(
            f"group_norm 1d {dtype}",
            lambda d=dtype: (t(512, 64, dtype=d), t(64, dtype=d), t(64, dtype=d)),
            lambda x, w, b: F.group_norm(x, 8, w, b),
        )
        both(
            f"group_norm plain {dtype}",
            lambda d=dtype: (t(4, 64, 32, 32, dtype=d),),
            lambda x: F.group_norm(x, 8),
        )
        both(
            f"instance_norm {dtype}",
            lambda d=dtype: (t(2, 16, 24, 24, 24, dtype=d), t(16, dtype=d), t(16, dtype=d)),
            lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        )
        both(
            f"instance_norm plain {dtype}",
            lambda d=dtype: (t(2, 16, 24, 24, 24, dtype=d),),
            F.instance_norm,
        )
    for dtype in (torch.float32, HF, BF):
        for shape in (
            (8, 24, 56, 56),
            (32, 64, 28, 28),
            (2, 3, 100, 100),
            (16, 1280, 7, 7),
            (4, 32, 16, 24, 24),
            (8, 256, 100),
            (128, 512),
        ):
            for cl in (False, True):
                if cl and len(shape) not in (4, 5):
                    continue

                def make(s: Any = shape, d: Any = dtype, c: Any = cl) -> Any:
                    x = t(*s, dtype=d, grad=False)
                    if c:
                        x = x.to(memory_format=torch.channels_last if len(s) == 4 else torch.channels_last_3d)
                    return (
                        x.requires_grad_(),
                        nn.BatchNorm1d(s[1], device=D)
                        if len(s) < 4
                        else (nn.BatchNorm2d if len(s) == 4 else nn.BatchNorm3d)(s[1], device=D),
                    )

                both(f"batch_norm {shape} {dtype} cl={cl}", make, lambda x, m: m(x))
                both(f"batch_norm eval {shape} {dtype} cl={cl}", make, lambda x, m: m.eval()(x))


def attention() -> None:
    E, FL, CU, M = (
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.MATH,
    )
    shapes = [
        (2, 8, 8, 197, 197, 64),
        (4, 12, 12, 128, 128, 64),
        (1, 4, 4, 1024, 1024, 32),
        (2, 8, 8, 500, 500, 80),
        (2, 8, 8, 384, 384, 96),
        (2, 8, 8, 512, 512, 128),
        (1, 4, 4, 300, 300, 160),
        (1, 2, 2, 256, 256, 256),
        (2, 8, 2, 256, 256, 64),
        (2, 8, 2, 512, 512, 128),
        (2, 4, 4, 64, 1000, 64),
        (64, 3, 3, 49, 49, 32),
        (1, 32, 8, 2048, 2048, 128),
        (1, 1, 1, 4096, 4096, 40),
        (2, 16, 16, 77, 77, 64),
        (1, 12, 12, 1, 700, 64),
    ]
    for back, dtypes in ((E, (torch.float32, BF)), (FL, (BF,)), (CU, (BF, HF)), (M, (torch.float32, BF))):
        for dtype in dtypes:
            for b, h, hk, s, sk, d in shapes:
                for causal, p in ((False, 0.0), (True, 0.0), (False, 0.1)):
                    if (back is M and (s > 1024 or p)) or (causal and s != sk) or (p and s > 600):
                        continue

                    def run(a: Any = (b, h, hk, s, sk, d, dtype, causal, p, back)) -> None:
                        b, h, hk, s, sk, d, dtype, causal, p, back = a
                        q = t(b, s, h, d, dtype=dtype).transpose(1, 2)
                        k, v = (t(b, sk, hk, d, dtype=dtype).transpose(1, 2) for _ in range(2))
                        if h != hk and back is E:
                            k, v = (x.repeat_interleave(h // hk, 1) for x in (k, v))
                        with sdpa_kernel(back):
                            o = F.scaled_dot_product_attention(
                                q, k, v, is_causal=causal, dropout_p=p, enable_gqa=(h != hk and back is not E)
                            )
                            o.transpose(1, 2).reshape(b, s, h * d).backward(
                                torch.ones(b, s, h * d, device=D, dtype=dtype)
                            )

                    CASES[f"sdpa {back.name} {dtype} {b}x{h}/{hk}x{s}/{sk}x{d} causal={causal} p={p}"] = run
    for dtype in (torch.float32, BF):
        for kind in ("bool", "float"):
            for s in (128, 197):

                def masked(dtype: Any = dtype, kind: Any = kind, s: Any = s) -> None:
                    q, k, v = (t(4, 8, s, 64, dtype=dtype) for _ in range(3))
                    m = (
                        torch.ones(4, 1, s, s, device=D, dtype=torch.bool)
                        if kind == "bool"
                        else torch.zeros(4, 1, s, s, device=D, dtype=dtype)
                    )
                    F.scaled_dot_product_attention(q, k, v, attn_mask=m).sum().backward()

                CASES[f"sdpa default mask {kind} {dtype} {s}"] = masked

    def mha() -> None:
        m = nn.MultiheadAttention(256, 8, batch_first=True, device=D)
        x = t(4, 60, 256)
        m(x, x, x)[0].sum().backward()
        m(x, x, x, need_weights=False)[0].sum().backward()
        m.eval()
        with torch.no_grad():
            m(x, x, x, need_weights=False), m(x, x, x)

    CASES["mha"] = mha

    def encoder() -> None:
        m = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 8, 512, batch_first=True), 2).to(D).eval()
        with torch.no_grad():
            m(torch.zeros(4, 60, 256, device=D)), m(torch.zeros(3, 128, 256, device=D))

    CASES["encoder eval"] = encoder


def indexing() -> None:
    for n in (100, 2000, 2401, 3073, 4096, 5000, 8192, 16384, 50000, 200000):
        for w in (50, 5000, 60000):
            both(
                f"embedding {n} {w}",
                lambda n=n, w=w: (torch.randint(0, w, (1, n), device=D), t(w, 48)),
                F.embedding,
            )
        both(
            f"embedding bf16 {n}",
            lambda n=n: (torch.randint(0, 3000, (1, n), device=D), t(3000, 64, dtype=BF)),
            F.embedding,
        )
        both(
            f"index rows {n}",
            lambda n=n: (t(1000, 16), torch.randint(0, 1000, (n,), device=D)),
            lambda x, i: x[i],
        )

        def misc(n: int = n) -> None:
            x = torch.randn(n, device=D)
            i = torch.randint(0, 100, (n,), device=D)
            (
                x.cumsum(0),
                i.cumsum(0),
                (i > 3).cumsum(0),
                x.sort(),
                i.sort(stable=True),
                x.argsort(),
                x.topk(min(n, 10)),
                torch.unique(i),
                torch.unique(i, return_inverse=True, return_counts=True),
                torch.bincount(i),
            )
            (
                x.nonzero(),
                x[x > 0],
                torch.histc(x),
                torch.searchsorted(x, x),
                torch.randperm(n, device=D),
                x.flip(0),
                torch.multinomial(x.abs(), 4),
                torch.cummax(x, 0),
                x.cumprod(0),
                x.unique_consecutive(),
                x.logcumsumexp(0),
            )

        CASES[f"1d {n}"] = misc

    def two() -> None:
        for shape in ((64, 100), (64, 1000), (64, 5000), (8, 50257), (4096, 64), (4096, 8), (2, 200000)):
            x = torch.randn(shape, device=D)
            (
                x.sort(1),
                x.topk(5, 1),
                x.topk(min(300, shape[1]), 1),
                x.cumsum(1),
                x.cumsum(0),
                x.argsort(0),
                x.t().topk(2, 0),
                x.bfloat16().topk(2, 1),
                torch.multinomial(x.softmax(1), 1),
                x.kthvalue(2, 1),
                x.mode(1),
            )
            x.cumsum(1, dtype=torch.float64), x.bfloat16().cumsum(1), x.t().cumsum(1)

    CASES["2d sorts"] = two
    both(
        "gather",
        lambda: (t(64, 1000), torch.randint(0, 1000, (64, 10), device=D)),
        lambda x, i: x.gather(1, i),
    )
    both(
        "index_select",
        lambda: (t(500, 64), torch.randint(0, 500, (700,), device=D)),
        lambda x, i: x.index_select(0, i),
    )
    both(
        "index 2",
        lambda: (t(30, 40, 50), torch.randint(0, 30, (7, 1), device=D), torch.randint(0, 40, (5,), device=D)),
        lambda x, i, j: x[i, j],
    )
    both(
        "index middle", lambda: (t(30, 40, 50), torch.randint(0, 40, (333,), device=D)), lambda x, i: x[:, i]
    )
    both("index mask", lambda: (t(64, 64), torch.ones(64, 64, device=D, dtype=torch.bool)), lambda x, m: x[m])
    both("roll1", lambda: (t(8, 14, 14, 96),), lambda x: x.roll(3, 1))
    both("roll2", lambda: (t(8, 14, 14, 96),), lambda x: x.transpose(1, 3).roll((3, 2), (1, 2)))
    both("roll flat", lambda: (t(8, 14),), lambda x: x.roll(3))
    both(
        "embedding_bag",
        lambda: (torch.randint(0, 500, (64, 20), device=D), t(500, 32)),
        F.embedding_bag,
    )
    both(
        "scatter_add",
        lambda: (t(100, 32), torch.randint(0, 100, (500, 32), device=D), t(500, 32)),
        lambda x, i, s: x.scatter_add(0, i, s),
    )
    both(
        "index_add",
        lambda: (t(100, 32), torch.randint(0, 100, (500,), device=D), t(500, 32)),
        lambda x, i, s: x.index_add(0, i, s),
    )
    both(
        "masked_fill",
        lambda: (t(64, 64), torch.ones(64, 64, device=D, dtype=torch.bool)),
        lambda x, m: x.masked_fill(m, 0.0),
    )
    both(
        "where",
        lambda: (t(64, 64), torch.ones(64, 64, device=D, dtype=torch.bool)),
        lambda x, m: torch.where(m, x, 0.0),
    )
    both("one_hot", lambda: (torch.randint(0, 100, (500,), device=D),), lambda i: F.one_hot(i, 100))
    both("cdist", lambda: (t(100, 32), t(200, 32)), torch.cdist)
    both("repeat_interleave", lambda: (t(4, 8, 16),), lambda x: x.repeat_interleave(3, 1))
    both("repeat", lambda: (t(4, 8, 16),), lambda x: x.repeat(2, 1, 3))
    both("tril", lambda: (t(64, 64),), lambda x: x.tril())
    both(
        "cat",
        lambda: (t(64, 64), t(64, 32, dtype=BF), t(32, 64)),
        lambda x, y, z: torch.cat([x, y, z.t()], 1),
    )
    both("stack", lambda: (t(64, 64), t(64, 64)), lambda x, y: torch.stack([x, y.t()], 1))


def losses() -> None:
    for dtype in (torch.float32, BF):

        def x2(d=dtype):
            return (t(300, 1000, dtype=d), torch.rand(300, 1000, device=D, dtype=d))

        for name in (
            "mse_loss",
            "smooth_l1_loss",
            "huber_loss",
            "l1_loss",
            "binary_cross_entropy_with_logits",
            "kl_div",
            "poisson_nll_loss",
            "soft_margin_loss",
        ):
            function = getattr(F, name)
            both(f"{name} {dtype}", x2, function)
            both(f"{name} sum {dtype}", x2, lambda x, y, f=function: f(x, y, reduction="sum"))
        both(
            f"bce {dtype}",
            lambda d=dtype: (
                torch.rand(300, 1000, device=D, dtype=d).requires_grad_(),
                torch.rand(300, 1000, device=D, dtype=d),
            ),
            F.binary_cross_entropy,
        )
        both(
            f"ce {dtype}",
            lambda d=dtype: (t(300, 1000, dtype=d), torch.randint(0, 1000, (300,), device=D)),
            F.cross_entropy,
        )
        both(
            f"ce smooth {dtype}",
            lambda d=dtype: (t(300, 1000, dtype=d), torch.randint(0, 1000, (300,), device=D)),
            lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
        )
        both(
            f"ce weight {dtype}",
            lambda d=dtype: (
                t(300, 1000, dtype=d),
                torch.randint(0, 1000, (300,), device=D),
                torch.rand(1000, device=D, dtype=d),
            ),
            F.cross_entropy,
        )
        both(
            f"ce soft {dtype}",
            lambda d=dtype: (t(300, 1000, dtype=d), torch.rand(300, 1000, device=D, dtype=d)),
            F.cross_entropy,
        )
        both(
            f"ce 2d {dtype}",
            lambda d=dtype: (t(4, 21, 64, 64, dtype=d), torch.randint(0, 21, (4, 64, 64), device=D)),
            F.cross_entropy,
        )
    both(
        "ce 2d cl",
        lambda: (
            t(4, 21, 64, 64, grad=False).to(memory_format=torch.channels_last).requires_grad_(),
            torch.randint(0, 21, (4, 64, 64), device=D),
        ),
        F.cross_entropy,
    )
    both("cosine", lambda: (t(300, 1000), t(300, 1000)), F.cosine_similarity)
    both("normalize", lambda: (t(300, 1000),), F.normalize)
    both(
        "ctc",
        lambda: (t(50, 4, 20), torch.randint(1, 20, (4, 10), device=D)),
        lambda x, y: F.ctc_loss(x.log_softmax(2), y, torch.full((4,), 50), torch.full((4,), 10)),
    )
    both("softmax last", lambda: (t(8, 12, 128, 128),), lambda x: x.softmax(-1))
    both("softmax mid", lambda: (t(8, 12, 128, 128),), lambda x: x.softmax(1))
    both("softmax strided", lambda: (t(8, 128, 12, 64),), lambda x: x.transpose(1, 2).softmax(-1))
    both("softmax to float", lambda: (t(8, 12, 128, dtype=BF),), lambda x: x.softmax(-1, dtype=torch.float32))
    both("log_softmax strided", lambda: (t(64, 1000),), lambda x: x.t().log_softmax(-1))
    both("dropout", lambda: (t(64, 1000),), lambda x: F.dropout(x, 0.1))
    both("dropout2d", lambda: (t(8, 64, 16, 16),), lambda x: F.dropout2d(x, 0.1))
    both("glu", lambda: (t(64, 1000),), F.glu)
    both("prelu", lambda: (t(64, 100, 8, 8), t(100)), F.prelu)
    both("logsigmoid", lambda: (t(64, 1000),), F.logsigmoid)


def blas() -> None:
    for dtype in (torch.float32, BF):
        for m, k, n in (
            (1, 256, 250),
            (2, 256, 250),
            (64, 1, 32),
            (64, 32, 1),
            (64, 512, 128),
            (100, 784, 10),
        ):
            both(
                f"linear {m}x{k}x{n} {dtype}",
                lambda a=(m, k, n, dtype): (
                    t(a[0], a[1], dtype=a[3]),
                    t(a[2], a[1], dtype=a[3]),
                    t(a[2], dtype=a[3]),
                ),
                F.linear,
            )
        both(
            f"linear 3d {dtype}",
            lambda d=dtype: (t(4, 50, 64, dtype=d), t(32, 64, dtype=d), t(32, dtype=d)),
            F.linear,
        )
        both(
            f"linear 3d strided {dtype}",
            lambda d=dtype: (t(50, 4, 64, dtype=d), t(32, 64, dtype=d), t(32, dtype=d)),
            lambda x, w, b: F.linear(x.transpose(0, 1), w, b),
        )
        both(f"bmm {dtype}", lambda d=dtype: (t(8, 50, 64, dtype=d), t(8, 64, 30, dtype=d)), torch.bmm)
        both(
            f"bmm strided {dtype}",
            lambda d=dtype: (t(50, 64, 8, dtype=d), t(8, 30, 64, dtype=d)),
            lambda x, y: torch.bmm(x.permute(2, 0, 1), y.transpose(1, 2)),
        )
        both(
            f"mm strided {dtype}",
            lambda d=dtype: (t(50, 64, 2, dtype=d), t(64, 30, dtype=d)),
            lambda x, y: x[:, :, 0] @ y,
        )
        both(
            f"mm slice {dtype}",
            lambda d=dtype: (t(50, 128, dtype=d), t(64, 30, dtype=d)),
            lambda x, y: x[:, :64] @ y,
        )
        both(
            f"baddbmm {dtype}",
            lambda d=dtype: (t(8, 50, 30, dtype=d), t(8, 50, 64, dtype=d), t(8, 64, 30, dtype=d)),
            torch.baddbmm,
        )
        both(
            f"einsum {dtype}",
            lambda d=dtype: (t(4, 6, 50, 32, dtype=d), t(4, 6, 70, 32, dtype=d)),
            lambda x, y: torch.einsum("bhid,bhjd->bhij", x, y),
        )
        both(f"mv {dtype}", lambda d=dtype: (t(64, 32, dtype=d), t(32, dtype=d)), torch.mv)
        both(
            f"matmul bcast {dtype}",
            lambda d=dtype: (t(4, 6, 50, 32, dtype=d), t(32, 16, dtype=d)),
            torch.matmul,
        )
    both("addmm 2d bias", lambda: (t(64, 32), t(64, 16), t(16, 32)), torch.addmm)
    both("bilinear", lambda: (t(16, 20), t(16, 30), t(10, 20, 30)), F.bilinear)


def spatial() -> None:
    for cl in (False, True):
        fm = torch.channels_last if cl else torch.contiguous_format

        def x(*s, fm=fm):
            return t(*s, grad=False).to(memory_format=fm).requires_grad_()

        fs = {
            "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
            "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
            "adaptive7": lambda x: F.adaptive_avg_pool2d(x, 7),
            "adaptive1": lambda x: F.adaptive_avg_pool2d(x, 1),
            "adaptive_max": lambda x: F.adaptive_max_pool2d(x, 5),
            "nearest": lambda x: F.interpolate(x, scale_factor=2),
            "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
            "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
            "bilinear aa": lambda x: F.interpolate(x, size=(13, 13), mode="bilinear", antialias=True),
            "pad": lambda x: F.pad(x, (1, 1, 1, 1)),
            "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
            "replicate": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
            "shuffle": lambda x: F.pixel_shuffle(x, 2),
            "unfold": lambda x: F.unfold(x, 3),
            "grid": lambda x: F.grid_sample(
                x, torch.zeros(x.shape[0], 9, 9, 2, device=D, requires_grad=True), align_corners=False
            ),
            "lrn": lambda x: F.local_response_norm(x, 5),
            "permuted pool": lambda x: F.max_pool2d(x.transpose(2, 3), 2),
            "permuted avg": lambda x: F.avg_pool2d(x.transpose(2, 3), 2),
            "permuted adaptive": lambda x: F.adaptive_avg_pool2d(x.transpose(2, 3), 3),
        }
        for name, f in fs.items():
            both(f"{name} cl={cl}", lambda x=x: (x(4, 32, 28, 28),), f)
    for name, f in {
        "max_pool3d": lambda x: F.max_pool3d(x, 2),
        "avg_pool3d": lambda x: F.avg_pool3d(x, 2),
        "adaptive3d": lambda x: F.adaptive_avg_pool3d(x, 3),
        "trilinear": lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"),
        "nearest3d": lambda x: F.interpolate(x, scale_factor=2),
    }.items():
        both(name, lambda: (t(2, 16, 12, 12, 12),), f)
    for name, f in {
        "max_pool1d": lambda x: F.max_pool1d(x, 2),
        "avg_pool1d": lambda x: F.avg_pool1d(x, 2),
        "adaptive1d": lambda x: F.adaptive_avg_pool1d(x, 3),
        "linear1d": lambda x: F.interpolate(x, scale_factor=2, mode="linear"),
        "nearest1d": lambda x: F.interpolate(x, scale_factor=2),
    }.items():
        both(name, lambda: (t(2, 16, 120),), f)


def training() -> None:
    def params() -> list[torch.Tensor]:
        ps = [t(1000, 300), t(300), t(70000), t(64, 3, 7, 7), t(1)]
        for p in ps:
            p.grad = torch.ones_like(p)
        return ps

    o = torch.optim
    makers = {
        "sgd": lambda p: o.SGD(p, 0.1),
        "sgdm": lambda p: o.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
        "adam": o.Adam,
        "adam l2 ams": lambda p: o.Adam(p, weight_decay=0.1, amsgrad=True),
        "adamw": o.AdamW,
        "adamw fused": lambda p: o.AdamW(p, fused=True),
        "adamax": o.Adamax,
        "nadam": o.NAdam,
        "radam": o.RAdam,
        "rmsprop": lambda p: o.RMSprop(p, momentum=0.9, centered=True),
        "adagrad": o.Adagrad,
        "adadelta": o.Adadelta,
        "asgd": o.ASGD,
        "rprop": o.Rprop,
        "adafactor": o.Adafactor,
    }
    for name, make in makers.items():

        def run(make: Any = make) -> None:
            opt = make(params())
            opt.step(), opt.step()

        CASES[f"optim {name}"] = run

    def clip() -> None:
        ps = params()
        (
            torch.nn.utils.clip_grad_norm_(ps, 1.0),
            torch.nn.utils.clip_grad_norm_(ps, 1.0, norm_type=float("inf")),
            torch.nn.utils.clip_grad_value_(ps, 0.5),
        )
        qs = [p.detach().bfloat16().requires_grad_() for p in ps]
        for q in qs:
            q.grad = torch.ones_like(q)
        torch.nn.utils.clip_grad_norm_(qs, 1.0)

    CASES["clip"] = clip

    def scaler() -> None:
        ps = params()
        opt, s = o.SGD(ps, 0.1), torch.amp.GradScaler("cuda")
        s.scale((ps[0] * 2).sum()).backward()
        s.step(opt), s.update()

    CASES["scaler"] = scaler
    both(
        "weight_norm",
        lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(64, 32, device=D)), t(8, 64)),
        lambda m, x: m(x),
    )
    both(
        "spectral_norm",
        lambda: (nn.utils.parametrizations.spectral_norm(nn.Linear(64, 32, device=D)), t(8, 64)),
        lambda m, x: m(x),
    )
    both("fft", lambda: (t(8, 64, 64),), lambda x: torch.fft.rfft2(x).abs())
    both(
        "stft",
        lambda: (t(4, 4000),),
        lambda x: torch.stft(x, 256, 64, window=torch.hann_window(256, device=D), return_complex=True).abs(),
    )
    both("inverse", lambda: (t(8, 16, 16),), lambda x: torch.linalg.inv(x + 20 * torch.eye(16, device=D)))
    both(
        "cholesky",
        lambda: (t(8, 16, 16),),
        lambda x: torch.linalg.cholesky(x @ x.mT + 20 * torch.eye(16, device=D)),
    )
    both("svd", lambda: (t(8, 16, 12),), lambda x: torch.linalg.svd(x, full_matrices=False)[1])


def masks() -> None:
    """Results whose size is data: where something is not zero, selection by masks, and what is written through them."""
    counts = (
        1,
        10,
        500,
        1000,
        2048,
        3000,
        5000,
        8192,
        16384,
        40000,
        100_000,
        131_072,
        300_000,
        1_000_000,
        3_000_000,
    )
    shapes = [(n,) for n in counts] + [(128, 100), (1000, 1000), (64, 64, 64), (2, 3, 32, 32), (0,), ()]
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.float32, HF):
        for shape in shapes:
            for every in (1, 2, 5):

                def where(shape: Any = shape, dtype: Any = dtype, every: int = every) -> None:
                    n = math.prod(shape)
                    x = (torch.arange(n, device=D) % every == 0).to(dtype).reshape(shape)
                    x.nonzero()
                    if x.dim() == 2:
                        x.t().nonzero()
                        torch.where(x)

                CASES[f"nonzero {dtype} {shape} {every}"] = where
    for shape, rest in (
        ((5000,), ()),
        ((5000,), (16,)),
        ((200_000,), (3,)),
        ((100, 60), ()),
        ((100, 60), (8,)),
    ):
        for every in (1, 3, 10**9):
            for dtype in (torch.float32, BF, torch.int64):

                def chosen(
                    shape: Any = shape, rest: Any = rest, every: int = every, dtype: Any = dtype
                ) -> None:
                    n = math.prod(shape)
                    mask = ((torch.arange(n, device=D) + 1) % every == 0).reshape(shape)
                    x = torch.zeros(*shape, *rest, device=D, dtype=dtype)
                    y = torch.ones(*shape, *rest, device=D, dtype=dtype)
                    one = torch.ones((), device=D, dtype=dtype)
                    x[mask] = y[mask]
                    x[mask] = 0
                    x[mask] = one
                    x[mask, ...] = 3.0 if dtype.is_floating_point else 3
                    x[mask] += 1
                    x.index_put((mask,), one)
                    x.index_put_((mask,), one, accumulate=True)
                    x.index_put_((mask,), y[mask], accumulate=True)
                    if rest:
                        x[mask, 1] = 2
                        x[mask, 1] = y[mask, 0]
                        x[mask, :2]
                        x.transpose(0, -1)[..., mask] if len(shape) == 1 else x[0, mask[0]]
                    else:
                        x.masked_select(mask)
                        x.masked_scatter(mask, y)
                        x.masked_fill(mask, one)
                        x[~mask].sum()
                        x[0 if len(shape) == 2 else slice(None, None, 2)][
                            mask[0 if len(shape) == 2 else slice(None, None, 2)]
                        ]

                CASES[f"mask {shape} {rest} {every} {dtype}"] = chosen
            both(
                f"mask gradient {shape} {rest} {every}",
                lambda shape=shape, rest=rest, every=every: (
                    t(*shape, *rest),
                    ((torch.arange(math.prod(shape), device=D) + 1) % every == 0).reshape(shape),
                ),
                lambda x, mask: x[mask] * 2,
            )
    both(
        "masked_select gradient",
        lambda: (t(64, 100), torch.arange(6400, device=D).reshape(64, 100) % 3 == 0),
        lambda x, m: x.masked_select(m),
    )
    both(
        "masked_scatter gradient",
        lambda: (t(64, 100), torch.arange(6400, device=D).reshape(64, 100) % 3 == 0, t(6400)),
        lambda x, m, y: x.masked_scatter(m, y),
    )

    def from_host() -> None:
        x, i = torch.zeros(5000, 8, device=D), torch.arange(100)
        mask, j = torch.arange(5000) % 2 == 0, torch.arange(100, device=D)
        both_ways = torch.arange(40000).reshape(5000, 8) % 3 == 0
        x[i], x[mask], x[both_ways], x[i, i % 8], x[i, j % 8], x[:, i % 8]
        x[i] = 0
        x[j] = 0
        x[mask] = 0
        x[both_ways] = 0
        x[both_ways.to(D)] = 0
        x[j, j % 8] = 1
        x[j] = torch.ones(8, device=D)
        x[mask] = torch.ones(8, device=D)
        x[mask.to(D)] = torch.ones(8, device=D)
        x[mask, 1] = 2
        x[mask.to(D), 1] = 2
        x[mask.to(D), j[:1]] = 2
        x[mask.to(D), 2:4] = 2
        x.index_put_((i,), torch.ones(8, device=D), accumulate=True)
        x.index_put_((j,), torch.ones((), device=D), accumulate=True)

    CASES["indices on the host"] = from_host
    for dtype in (torch.float32, HF, torch.float64, torch.int64):
        x, n = (
            torch.ones(300, 70, device=D, dtype=dtype),
            torch.ones(300, 70, device=D, dtype=torch.int64),
        )
        calls: dict[str, Callable[[Any, Any], Any]] = {
            "isinf": lambda x, n: (x.isinf(), x.isnan(), x.isfinite(), x.isposinf()),
            "nan_to_num": lambda x, n: (x.nan_to_num(), torch.isclose(x, x), torch.equal(x, x)),
            "ldexp": lambda x, n: (x.ldexp(n), torch.allclose(x, x)),
            "unique": lambda x, n: (x.unique(), x.unique(return_inverse=True, return_counts=True)),
            "unique dim": lambda x, n: (x.unique(dim=0), x.unique_consecutive()),
            "bincount": lambda x, n: (n.flatten().bincount(), n.flatten().bincount(minlength=40)),
            "bincount weighted": lambda x, n: n.flatten().bincount(x.flatten()),
            "repeat": lambda x, n: (x.repeat_interleave(2), x.repeat_interleave(n[:, 0], 0)),
            "repeat sized": lambda x, n: x.repeat_interleave(n[:, 0], 0, output_size=300),
            "isin": lambda x, n: (torch.isin(x, x[:3, 0]), x.count_nonzero()),
            "median": lambda x, n: (x.median(), x.median(1), x.kthvalue(3, 1)),
            "mode": lambda x, n: x.mode(1),
            "quantile": lambda x, n: (x.flatten().histc(10), x.quantile(0.3), x.nanmedian(1)),
            "mvlgamma": lambda x, n: (x + 9).mvlgamma(3),
        }
        for name, call in calls.items():
            CASES[f"{name} {dtype}"] = lambda call=call, x=x, n=n: call(x, n)


def tiles() -> None:
    """Where CUB's temporaries grow by a tile: counts of elements in small steps."""

    def sweep(call: Callable[[Any], Any], dtype: torch.dtype, counts: Iterable[int]) -> Callable[[], None]:
        def run() -> None:
            for n in counts:
                call(torch.ones(n, device=D, dtype=dtype))

        return run

    CASES["tiles nonzero"] = sweep(torch.nonzero, torch.bool, range(131_072, 137_000, 64))
    CASES["tiles count"] = sweep(torch.nonzero, torch.bool, (*range(3_900, 4_200, 4), 4_095, 4_097))
    for dtype in (torch.uint8, HF, torch.float32, torch.int32, torch.float64):
        CASES[f"tiles unique {dtype}"] = sweep(torch.unique, dtype, range(30_000, 90_000, 384))
        CASES[f"tiles consecutive {dtype}"] = sweep(
            torch.unique_consecutive, dtype, range(65_000, 200_000, 1024)
        )
        CASES[f"tiles inverse {dtype}"] = sweep(
            lambda x: x.unique(return_inverse=True), dtype, range(30_000, 60_000, 384)
        )
        CASES[f"tiles counts {dtype}"] = sweep(
            lambda x: x.unique_consecutive(return_counts=True), dtype, range(30_000, 120_000, 512)
        )


def layouts() -> None:
    """PyTorch's own list of operators, on tensors that lie otherwise."""
    from benchmarks.operators import layouts as lying

    CASES.update(lying.layouts(D))


GROUPS = {
    fill.__name__: fill
    for fill in (reductions, norms, attention, indexing, losses, blas, spatial, training, masks, tiles)
} | {"layouts": layouts}


@click.command("measure")
@click.argument("out", type=Path)
@click.argument("groups", nargs=-1)
def main(out: Path, groups: tuple[str, ...]) -> None:
    """Record the cases of these groups of `GROUPS`; of all but the last, where none is named."""
    for name in groups or list(GROUPS)[:-1]:
        GROUPS[name]()
    mode, results = Record("layouts" in groups), {}
    for name, run in CASES.items():
        try:
            run()
            torch.cuda.synchronize()
            torch.cuda.memory._record_memory_history(enabled=None)
            torch.cuda.memory._record_memory_history(
                enabled="all", context=None, max_entries=100000, clear_history=True
            )
            mode.rows, mode.on = [], True
            with mode:
                run()
            mode.on = False
            results[name] = mode.rows
        except Exception as error:
            mode.on = False
            results[name] = repr(error)[:200]
    about = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "gpu": torch.cuda.get_device_name(),
    }
    with gzip.open(out, "wt") as stream:
        json.dump({"about": about, "cases": results}, stream, separators=(",", ":"))
    failed = [name for name, rows in results.items() if isinstance(rows, str)]
    print(
        len(results), "cases,", len(failed), "failed:", *(f"{n}: {results[n]}" for n in failed[:40]), sep="\n"
    )
