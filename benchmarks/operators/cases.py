"""What `python -m benchmarks operators measure` records: small, varied calls of single operators, in groups.

A group is a function that adds its cases to `CASES`: a name, and what to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

D = "cuda"
CASES: dict[str, Callable[[], Any]] = {}
BF, HF = torch.bfloat16, torch.float16
# An input: the shape of random numbers whose gradient is wanted, or what makes it of a type.
Given = tuple[int, ...] | Callable[[torch.dtype], Any]


def t(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = True) -> torch.Tensor:
    return torch.randn(*shape, device=D, dtype=dtype).requires_grad_(grad)


def numbers(least: int, most: int, *shape: int) -> Given:
    """Whole numbers of that range."""
    return lambda _: torch.randint(least, most, shape, device=D)


def uniform(*shape: int, grad: bool = False) -> Given:
    """Numbers between 0 and 1."""
    return lambda dtype: torch.rand(*shape, device=D, dtype=dtype).requires_grad_(grad)


def lying(memory_format: torch.memory_format, *shape: int) -> Given:
    """Random numbers whose gradient is wanted, in that memory format."""
    return lambda dtype: t(*shape, dtype=dtype, grad=False).to(memory_format=memory_format).requires_grad_()


def ones(*shape: int) -> Given:
    """A mask in which every element is set."""
    return lambda _: torch.ones(*shape, device=D, dtype=torch.bool)


def both(
    name: str, given: Iterable[Given], f: Callable[..., Any], dtype: torch.dtype = torch.float32
) -> None:
    """A case: forward, then backward from ones."""

    def run() -> None:
        inputs = [t(*one, dtype=dtype) if isinstance(one, tuple) else one(dtype) for one in given]
        out = f(*inputs)
        out = out[0] if isinstance(out, tuple) else out
        if out.requires_grad:
            out.backward(torch.ones_like(out))

    CASES[name] = run


def methods(x: torch.Tensor, names: str, *args: Any, **kwargs: Any) -> None:
    """Each of these methods of a tensor, with the same arguments."""
    for name in names.split():
        getattr(x, name)(*args, **kwargs)


def reductions() -> None:
    shapes = [
        ((8, 1000), (1,)), ((4096, 1024), (0,)), ((4096, 1024), (1,)), ((64, 96, 56, 56), (0, 2, 3)), ((64, 96, 56, 56), (2, 3)),
        ((3, 5, 7), (0, 2)), ((1 << 22,), (0,)), ((33, 77, 129), (1,)), ((512, 31, 65), (0,)), ((16, 1, 300000), (2,)), ((100003, 3), (0,)),
        ((2, 12, 197, 64), (0, 1, 2)),
    ]  # fmt: skip
    for dtype in (torch.float32, BF, torch.float64):
        for shape, dims in shapes:

            def run(shape: Any = shape, dims: Any = dims, dtype: Any = dtype) -> None:
                x = torch.zeros(shape, device=D, dtype=dtype)
                x.sum(dims), x.mean(dims, keepdim=True), x.var(dims)
                torch.var_mean(x, dims, correction=0), x.amax(dims)
                torch.linalg.vector_norm(x, 2, dims)
                x.transpose(0, -1).sum(tuple(len(shape) - 1 - d for d in dims))

            CASES[f"reduce {shape} {dims} {dtype}"] = run

    def whole() -> None:
        for n in (1000, 100000, 1 << 24):
            x = torch.zeros(n, device=D)
            methods(x, "sum mean max min argmax std norm prod any")
            (x > 0).sum(), x.abs().max(), torch.aminmax(x), x.var()
            x.bfloat16().sum(dtype=torch.float32), x.half().mean(), x.int().sum()
            torch.all(x == 0), x.isfinite().all(), torch.count_nonzero(x)

    CASES["reduce all"] = whole

    def dims() -> None:
        x = torch.zeros(2048, 4097, device=D)
        for d in (0, 1):
            methods(x, "max argmax any all prod", d)
            (x > 0).sum(d)
            methods(x, "logsumexp std min", d)
            x.bfloat16().amax(d), x.bfloat16().argmax(d), x.half().sum(d), x.median(d)

    CASES["reduce dims"] = dims

    def huge() -> None:
        x = torch.zeros(3, 1 << 28, device=D, dtype=BF)
        x.sum(1), x.sum(0), x.float().sum(1), x.float().sum(0)

    CASES["reduce huge"] = huge


def norms() -> None:
    rows = ((64, 768), (4096, 1024), (70000, 96), (300000, 64), (100352, 192), (66000, 2048), (66000, 4352))
    for r, c in rows:
        for dtype in (torch.float32, BF):
            told = f"{r}x{c} {dtype}"
            given = ((r, c), (c,), (c,))
            both(f"layer_norm {told}", given, lambda x, w, b: F.layer_norm(x, w.shape, w, b), dtype)
            both(f"rms_norm {told}", given[:2], lambda x, w: F.rms_norm(x, w.shape, w), dtype)
    both("layer_norm no affine", ((8, 512, 768),), lambda x: F.layer_norm(x, (768,)))
    both("layer_norm weight only", ((8, 512, 768), (768,)), lambda x, w: F.layer_norm(x, (768,), w))

    def group_norm(x: Any, w: Any = None, b: Any = None) -> Any:
        return F.group_norm(x, 8, w, b)

    def instance_norm(x: Any, w: Any, b: Any) -> Any:
        return F.instance_norm(x, weight=w, bias=b)

    image, volume = (4, 64, 32, 32), (2, 16, 24, 24, 24)
    for dtype in (torch.float32, BF):
        both(f"group_norm {dtype}", (image, (64,), (64,)), group_norm, dtype)
        last = lying(torch.channels_last, *image)
        both(f"group_norm cl {dtype}", (last, (64,), (64,)), group_norm, dtype)
        both(f"group_norm 1d {dtype}", ((512, 64), (64,), (64,)), group_norm, dtype)
        both(f"group_norm plain {dtype}", (image,), group_norm, dtype)
        both(f"instance_norm {dtype}", (volume, (16,), (16,)), instance_norm, dtype)
        both(f"instance_norm plain {dtype}", (volume,), F.instance_norm, dtype)
    kinds = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    shapes = (
        (8, 24, 56, 56), (32, 64, 28, 28), (2, 3, 100, 100), (16, 1280, 7, 7), (4, 32, 16, 24, 24), (8, 256, 100), (128, 512),
    )  # fmt: skip
    for dtype in (torch.float32, HF, BF):
        for shape in shapes:
            module = kinds[len(shape)]
            for cl in (False, True)[: 1 + (len(shape) in formats)]:
                x: Given = lying(formats[len(shape)], *shape) if cl else shape
                given = (x, lambda _, module=module, shape=shape: module(shape[1], device=D))
                told = f"{shape} {dtype} cl={cl}"
                both(f"batch_norm {told}", given, lambda x, m: m(x), dtype)
                both(f"batch_norm eval {told}", given, lambda x, m: m.eval()(x), dtype)


def attention() -> None:
    E, FL, CU, M = (
        SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH
    )  # fmt: skip
    shapes = [
        (2, 8, 8, 197, 197, 64), (4, 12, 12, 128, 128, 64), (1, 4, 4, 1024, 1024, 32), (2, 8, 8, 500, 500, 80), (2, 8, 8, 384, 384, 96),
        (2, 8, 8, 512, 512, 128), (1, 4, 4, 300, 300, 160), (1, 2, 2, 256, 256, 256), (2, 8, 2, 256, 256, 64), (2, 8, 2, 512, 512, 128),
        (2, 4, 4, 64, 1000, 64), (64, 3, 3, 49, 49, 32), (1, 32, 8, 2048, 2048, 128), (1, 1, 1, 4096, 4096, 40), (2, 16, 16, 77, 77, 64),
        (1, 12, 12, 1, 700, 64),
    ]  # fmt: skip
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
                    make, of = (torch.ones, torch.bool) if kind == "bool" else (torch.zeros, dtype)
                    m = make(4, 1, s, s, device=D, dtype=of)
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
            both(f"embedding {n} {w}", (numbers(0, w, 1, n), (w, 48)), F.embedding)
        both(f"embedding bf16 {n}", (numbers(0, 3000, 1, n), (3000, 64)), F.embedding, BF)
        both(f"index rows {n}", ((1000, 16), numbers(0, 1000, n)), lambda x, i: x[i])

        def misc(n: int = n) -> None:
            x = torch.randn(n, device=D)
            i = torch.randint(0, 100, (n,), device=D)
            x.cumsum(0), i.cumsum(0), (i > 3).cumsum(0), x.sort(), i.sort(stable=True), x.argsort()
            x.topk(min(n, 10)), torch.unique(i), torch.unique(i, return_inverse=True, return_counts=True)
            torch.bincount(i), x.nonzero(), x[x > 0], torch.histc(x), torch.searchsorted(x, x)
            torch.randperm(n, device=D), x.flip(0), torch.multinomial(x.abs(), 4), torch.cummax(x, 0)
            x.cumprod(0), x.unique_consecutive(), x.logcumsumexp(0)

        CASES[f"1d {n}"] = misc

    def two() -> None:
        for shape in ((64, 100), (64, 1000), (64, 5000), (8, 50257), (4096, 64), (4096, 8), (2, 200000)):
            x = torch.randn(shape, device=D)
            x.sort(1), x.topk(5, 1), x.topk(min(300, shape[1]), 1), x.cumsum(1), x.cumsum(0), x.argsort(0)
            x.t().topk(2, 0), x.bfloat16().topk(2, 1), torch.multinomial(x.softmax(1), 1)
            x.kthvalue(2, 1), x.mode(1)
            x.cumsum(1, dtype=torch.float64), x.bfloat16().cumsum(1), x.t().cumsum(1)

    CASES["2d sorts"] = two
    cube, square = (30, 40, 50), (64, 64)
    both("gather", ((64, 1000), numbers(0, 1000, 64, 10)), lambda x, i: x.gather(1, i))
    both("index_select", ((500, 64), numbers(0, 500, 700)), lambda x, i: x.index_select(0, i))
    both("index 2", (cube, numbers(0, 30, 7, 1), numbers(0, 40, 5)), lambda x, i, j: x[i, j])
    both("index middle", (cube, numbers(0, 40, 333)), lambda x, i: x[:, i])
    both("index mask", (square, ones(*square)), lambda x, m: x[m])
    both("roll1", ((8, 14, 14, 96),), lambda x: x.roll(3, 1))
    both("roll2", ((8, 14, 14, 96),), lambda x: x.transpose(1, 3).roll((3, 2), (1, 2)))
    both("roll flat", ((8, 14),), lambda x: x.roll(3))
    both("embedding_bag", (numbers(0, 500, 64, 20), (500, 32)), F.embedding_bag)
    rows, added = (100, 32), (500, 32)
    both("scatter_add", (rows, numbers(0, 100, *added), added), lambda x, i, s: x.scatter_add(0, i, s))
    both("index_add", (rows, numbers(0, 100, 500), added), lambda x, i, s: x.index_add(0, i, s))
    both("masked_fill", (square, ones(*square)), lambda x, m: x.masked_fill(m, 0.0))
    both("where", (square, ones(*square)), lambda x, m: torch.where(m, x, 0.0))
    both("one_hot", (numbers(0, 100, 500),), lambda i: F.one_hot(i, 100))
    both("cdist", ((100, 32), (200, 32)), torch.cdist)
    both("repeat_interleave", ((4, 8, 16),), lambda x: x.repeat_interleave(3, 1))
    both("repeat", ((4, 8, 16),), lambda x: x.repeat(2, 1, 3))
    both("tril", (square,), lambda x: x.tril())
    both(
        "cat", (square, lambda _: t(64, 32, dtype=BF), (32, 64)), lambda x, y, z: torch.cat([x, y, z.t()], 1)
    )
    both("stack", (square, square), lambda x, y: torch.stack([x, y.t()], 1))


def losses() -> None:
    many, labels = (300, 1000), numbers(0, 1000, 300)
    pixels, classes = (4, 21, 64, 64), numbers(0, 21, 4, 64, 64)
    for dtype in (torch.float32, BF):
        for name in (
            "mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss", "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss",
            "soft_margin_loss",
        ):  # fmt: skip
            function = getattr(F, name)
            both(f"{name} {dtype}", (many, uniform(*many)), function, dtype)
            summed = lambda x, y, f=function: f(x, y, reduction="sum")  # noqa: E731
            both(f"{name} sum {dtype}", (many, uniform(*many)), summed, dtype)
        both(f"bce {dtype}", (uniform(*many, grad=True), uniform(*many)), F.binary_cross_entropy, dtype)
        both(f"ce {dtype}", (many, labels), F.cross_entropy, dtype)
        smooth = lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)  # noqa: E731
        both(f"ce smooth {dtype}", (many, labels), smooth, dtype)
        both(f"ce weight {dtype}", (many, labels, uniform(1000)), F.cross_entropy, dtype)
        both(f"ce soft {dtype}", (many, uniform(*many)), F.cross_entropy, dtype)
        both(f"ce 2d {dtype}", (pixels, classes), F.cross_entropy, dtype)
    both("ce 2d cl", (lying(torch.channels_last, *pixels), classes), F.cross_entropy)
    both("cosine", (many, many), F.cosine_similarity)
    both("normalize", (many,), F.normalize)
    both(
        "ctc",
        ((50, 4, 20), numbers(1, 20, 4, 10)),
        lambda x, y: F.ctc_loss(x.log_softmax(2), y, torch.full((4,), 50), torch.full((4,), 10)),
    )
    both("softmax last", ((8, 12, 128, 128),), lambda x: x.softmax(-1))
    both("softmax mid", ((8, 12, 128, 128),), lambda x: x.softmax(1))
    both("softmax strided", ((8, 128, 12, 64),), lambda x: x.transpose(1, 2).softmax(-1))
    both("softmax to float", ((8, 12, 128),), lambda x: x.softmax(-1, dtype=torch.float32), BF)
    both("log_softmax strided", ((64, 1000),), lambda x: x.t().log_softmax(-1))
    both("dropout", ((64, 1000),), lambda x: F.dropout(x, 0.1))
    both("dropout2d", ((8, 64, 16, 16),), lambda x: F.dropout2d(x, 0.1))
    both("glu", ((64, 1000),), F.glu)
    both("prelu", ((64, 100, 8, 8), (100,)), F.prelu)
    both("logsigmoid", ((64, 1000),), F.logsigmoid)


def blas() -> None:
    for dtype in (torch.float32, BF):
        for m, k, n in (
            (1, 256, 250), (2, 256, 250), (64, 1, 32), (64, 32, 1), (64, 512, 128), (100, 784, 10)
        ):  # fmt: skip
            both(f"linear {m}x{k}x{n} {dtype}", ((m, k), (n, k), (n,)), F.linear, dtype)
        weights = ((32, 64), (32,))
        both(f"linear 3d {dtype}", ((4, 50, 64), *weights), F.linear, dtype)
        strided = lambda x, w, b: F.linear(x.transpose(0, 1), w, b)  # noqa: E731
        both(f"linear 3d strided {dtype}", ((50, 4, 64), *weights), strided, dtype)
        both(f"bmm {dtype}", ((8, 50, 64), (8, 64, 30)), torch.bmm, dtype)
        permuted = lambda x, y: torch.bmm(x.permute(2, 0, 1), y.transpose(1, 2))  # noqa: E731
        both(f"bmm strided {dtype}", ((50, 64, 8), (8, 30, 64)), permuted, dtype)
        both(f"mm strided {dtype}", ((50, 64, 2), (64, 30)), lambda x, y: x[:, :, 0] @ y, dtype)
        both(f"mm slice {dtype}", ((50, 128), (64, 30)), lambda x, y: x[:, :64] @ y, dtype)
        both(f"baddbmm {dtype}", ((8, 50, 30), (8, 50, 64), (8, 64, 30)), torch.baddbmm, dtype)
        heads = lambda x, y: torch.einsum("bhid,bhjd->bhij", x, y)  # noqa: E731
        both(f"einsum {dtype}", ((4, 6, 50, 32), (4, 6, 70, 32)), heads, dtype)
        both(f"mv {dtype}", ((64, 32), (32,)), torch.mv, dtype)
        both(f"matmul bcast {dtype}", ((4, 6, 50, 32), (32, 16)), torch.matmul, dtype)
    both("addmm 2d bias", ((64, 32), (64, 16), (16, 32)), torch.addmm)
    both("bilinear", ((16, 20), (16, 30), (10, 20, 30)), F.bilinear)


def spatial() -> None:
    def grid(x: Any) -> Any:
        places = torch.zeros(x.shape[0], 9, 9, 2, device=D, requires_grad=True)
        return F.grid_sample(x, places, align_corners=False)

    def resized(mode: str, **more: Any) -> Callable[[Any], Any]:
        return lambda x: F.interpolate(x, mode=mode, **({"scale_factor": 2} | more))

    functions = {
        "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
        "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
        "adaptive7": lambda x: F.adaptive_avg_pool2d(x, 7),
        "adaptive1": lambda x: F.adaptive_avg_pool2d(x, 1),
        "adaptive_max": lambda x: F.adaptive_max_pool2d(x, 5),
        "nearest": resized("nearest"),
        "bilinear": resized("bilinear"),
        "bicubic": resized("bicubic"),
        "bilinear aa": resized("bilinear", size=(13, 13), scale_factor=None, antialias=True),
        "pad": lambda x: F.pad(x, (1, 1, 1, 1)),
        "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
        "replicate": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
        "shuffle": lambda x: F.pixel_shuffle(x, 2),
        "unfold": lambda x: F.unfold(x, 3),
        "grid": grid,
        "lrn": lambda x: F.local_response_norm(x, 5),
        "permuted pool": lambda x: F.max_pool2d(x.transpose(2, 3), 2),
        "permuted avg": lambda x: F.avg_pool2d(x.transpose(2, 3), 2),
        "permuted adaptive": lambda x: F.adaptive_avg_pool2d(x.transpose(2, 3), 3),
    }
    for cl in (False, True):
        image = lying(torch.channels_last if cl else torch.contiguous_format, 4, 32, 28, 28)
        for name, f in functions.items():
            both(f"{name} cl={cl}", (image,), f)
    volume, line = (2, 16, 12, 12, 12), (2, 16, 120)
    both("max_pool3d", (volume,), lambda x: F.max_pool3d(x, 2))
    both("avg_pool3d", (volume,), lambda x: F.avg_pool3d(x, 2))
    both("adaptive3d", (volume,), lambda x: F.adaptive_avg_pool3d(x, 3))
    both("trilinear", (volume,), resized("trilinear"))
    both("nearest3d", (volume,), resized("nearest"))
    both("max_pool1d", (line,), lambda x: F.max_pool1d(x, 2))
    both("avg_pool1d", (line,), lambda x: F.avg_pool1d(x, 2))
    both("adaptive1d", (line,), lambda x: F.adaptive_avg_pool1d(x, 3))
    both("linear1d", (line,), resized("linear"))
    both("nearest1d", (line,), resized("nearest"))


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
        ps, utils = params(), torch.nn.utils
        utils.clip_grad_norm_(ps, 1.0), utils.clip_grad_norm_(ps, 1.0, norm_type=float("inf"))
        utils.clip_grad_value_(ps, 0.5)
        qs = [p.detach().bfloat16().requires_grad_() for p in ps]
        for q in qs:
            q.grad = torch.ones_like(q)
        utils.clip_grad_norm_(qs, 1.0)

    CASES["clip"] = clip

    def scaler() -> None:
        ps = params()
        opt, s = o.SGD(ps, 0.1), torch.amp.GradScaler("cuda")
        s.scale((ps[0] * 2).sum()).backward()
        s.step(opt), s.update()

    CASES["scaler"] = scaler
    for name in ("weight_norm", "spectral_norm"):
        norm = getattr(nn.utils.parametrizations, name)
        both(name, (lambda _, norm=norm: norm(nn.Linear(64, 32, device=D)), (8, 64)), lambda m, x: m(x))
    both("fft", ((8, 64, 64),), lambda x: torch.fft.rfft2(x).abs())

    def stft(x: Any) -> Any:
        return torch.stft(x, 256, 64, window=torch.hann_window(256, device=D), return_complex=True).abs()

    both("stft", ((4, 4000),), stft)
    square = (8, 16, 16)
    both("inverse", (square,), lambda x: torch.linalg.inv(x + 20 * torch.eye(16, device=D)))
    both("cholesky", (square,), lambda x: torch.linalg.cholesky(x @ x.mT + 20 * torch.eye(16, device=D)))
    both("svd", ((8, 16, 12),), lambda x: torch.linalg.svd(x, full_matrices=False)[1])
