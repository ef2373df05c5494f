"""What is measured for the table of operators: one specification a call, drawn with a fixed seed.

1. A specification names a call (`kind`) and everything its time depends on. The cases of `cases.py` are other shapes: none of
   these is taken from them.
2. Matrix products: each dimension is a power of two times 1, 1.25, 1.5 or 1.75, or a size of language and vision models, now and
   then one more (an odd size changes the kernel: loads need 16 bytes that lie together).
3. Convolutions are those of the usual networks' stages: channels, planes, kernels, strides, groups.
4. Of what moves bytes, sizes go from 1 KiB to 512 MiB in steps of four.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

Spec = dict[str, Any]
_STEPS = (1.0, 1.25, 1.5, 1.75)
_USUAL = (
    96,
    100,
    192,
    197,
    384,
    577,
    768,
    1000,
    1280,
    2304,
    3072,
    3136,
    5120,
    8000,
    11008,
    14336,
    30522,
    32000,
    50257,
    50304,
)
_LAYOUTS = ("nn", "nt", "tn")
_TYPES = ("bfloat16", "tf32", "float32")


def _size(rng: random.Random, least: int, most: int) -> int:
    """One dimension of a matrix."""
    if rng.random() < 0.2 and (usual := [n for n in _USUAL if least <= n <= most]):
        return rng.choice(usual)
    exponent = rng.uniform(0, 1) * (most.bit_length() - least.bit_length()) + least.bit_length() - 1
    size = int(2 ** int(exponent) * rng.choice(_STEPS))
    if rng.random() < 0.12:
        size += rng.choice((-1, 1, 2, 4))
    return max(least, min(size, most))


def _mm(dtype: str, layout: str, m: int, n: int, k: int, b: int = 1) -> Spec:
    return {"kind": "mm", "dtype": dtype, "layout": layout, "m": m, "n": n, "k": k, "b": b}


def _parts(dtype: str, layout: str, convolution: Spec) -> Iterator[Spec]:
    """A convolution and its two gradients."""
    for part in ("forward", "input", "weight"):
        yield {"kind": "conv", "part": part, "dtype": dtype, "layout": layout, **convolution}


def products(seed: int = 1, count: int = 2200) -> Iterator[Spec]:
    """mm of (m, k) by (k, n), by type and layout ("nt": the second is a transposed view, as in a linear layer)."""
    rng = random.Random(seed)
    for dtype in _TYPES:
        most = {"bfloat16": 3e12, "tf32": 1.5e12, "float32": 2e11}[dtype]
        made = 0
        while made < count:
            m, n, k = _size(rng, 1, 65536), _size(rng, 1, 65536), _size(rng, 1, 32768)
            if 2 * m * n * k > most or m * n > 2**28 or m * k > 2**28 or n * k > 2**28 or m * n * k < 4096:
                continue
            made += 1
            yield _mm(dtype, rng.choice(_LAYOUTS), m, n, k)


def batched(seed: int = 2, count: int = 700) -> Iterator[Spec]:
    """bmm, most of them of attention's sizes."""
    rng = random.Random(seed)
    for dtype in _TYPES:
        most = {"bfloat16": 1e12, "tf32": 5e11, "float32": 1e11}[dtype]
        made = 0
        while made < count:
            b = _size(rng, 2, 4096)
            m, n, k = _size(rng, 1, 4096), _size(rng, 1, 4096), _size(rng, 1, 4096)
            if rng.random() < 0.5:
                length, width = (
                    rng.choice((16, 49, 64, 128, 197, 256, 512, 1024)),
                    rng.choice((32, 64, 80, 96, 128)),
                )
                m, n, k = rng.choice(
                    ((length, length, width), (length, width, length), (width, length, length))
                )
            if 2 * b * m * n * k > most or b * max(m * n, m * k, n * k) > 2**28:
                continue
            made += 1
            yield _mm(dtype, rng.choice(_LAYOUTS), m, n, k, b)


def others_of_products(seed: int = 3) -> Iterator[Spec]:
    """What a bias, fp16 instead of bf16, and grouped products change."""
    rng = random.Random(seed)
    pool = list(products(seed=7, count=160))
    for spec in rng.sample(pool, 240):
        yield {**spec, "kind": "addmm"}
    for spec in [s for s in pool if s["dtype"] == "bfloat16"][:80]:
        yield {**spec, "dtype": "float16"}
        yield spec
    for experts in (4, 8, 32, 64):
        for rows in (512, 4096, 16384):
            for n, k in ((768, 2048), (4096, 1024), (1536, 384), (14336, 4096)):
                yield {
                    "kind": "grouped_mm",
                    "dtype": "bfloat16",
                    "b": experts,
                    "m": rows,
                    "n": n,
                    "k": k,
                    "layout": "nt",
                }


def convolutions(seed: int = 4, count: int = 420) -> Iterator[Spec]:
    """A convolution and its two gradients, by type and memory format."""
    rng = random.Random(seed)
    variants = (("tf32", "nchw"), ("bfloat16", "nchw"), ("bfloat16", "nhwc"), ("tf32", "nhwc"))
    made = 0
    while made < count:
        spec = _convolution(rng)
        if spec is None:
            continue
        made += 1
        for dtype, layout in variants:
            if layout == "nhwc" and (rng.random() < 0.4 or spec["d"] == 3 or spec["transposed"]):
                continue
            yield from _parts(dtype, layout, spec)


def _convolution(rng: random.Random) -> Spec | None:
    family = rng.random()
    plane = rng.choice((7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224, 12, 24, 48, 96, 20, 40, 80))
    n = rng.choice((1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128))
    widths = (
        16,
        24,
        32,
        40,
        48,
        64,
        80,
        96,
        112,
        128,
        160,
        192,
        240,
        256,
        320,
        384,
        512,
        640,
        768,
        960,
        1024,
        1280,
        2048,
    )
    c, k = rng.choice(widths), rng.choice(widths)
    size, stride, groups, d, dilation, transposed = 3, 1, 1, 2, 1, 0
    if family < 0.36:
        size, stride = rng.choice((1, 1, 1, 3, 3)), rng.choice((1, 1, 1, 2))
    elif family < 0.52:
        k = c if rng.random() < 0.7 else 2 * c
        stride = rng.choice((1, 1, 2))
    elif family < 0.60:
        c, plane = rng.choice((1, 3, 3, 4)), rng.choice((32, 64, 128, 192, 224, 256, 299, 384))
        k = rng.choice((16, 24, 32, 64, 96, 128, 192, 384, 768))
        size, stride = rng.choice(((3, 1), (3, 2), (7, 2), (4, 4), (16, 16), (8, 8), (7, 4), (5, 1)))
    elif family < 0.78:
        groups = k = c
        size, stride = rng.choice((3, 3, 3, 5, 7, 9, 11)), rng.choice((1, 1, 1, 2))
    elif family < 0.84:
        groups = rng.choice((2, 4, 8, 16, 32))
        c, k = groups * rng.choice((4, 8, 16, 32)), 0
        k, stride = c, rng.choice((1, 1, 2))
    elif family < 0.91:
        d, plane, n = 3, rng.choice((8, 16, 28, 32, 48, 56, 64, 96)), rng.choice((1, 2, 4, 8))
        c, k, size = (
            rng.choice((1, 3, 16, 32, 64, 128, 256)),
            rng.choice((16, 32, 64, 128, 256)),
            rng.choice((1, 3, 3)),
        )
        stride = rng.choice((1, 1, 2))
    elif family < 0.96:
        transposed, size, stride = 1, *rng.choice(((2, 2), (4, 2), (3, 2)))
    else:
        size, dilation = 3, rng.choice((2, 4, 6, 12))
    out = plane * stride if transposed else max(plane // stride, 1)
    work = 2 * n * out**d * c * k * size**d / groups
    elements = n * max(c * plane**d, k * out**d)
    if work > 6e11 or elements > 2**27 or elements < 2**13:
        return None
    return {
        "n": n, "c": c, "p": plane, "k": k, "r": size, "stride": stride, "groups": groups, "d": d, "dilation": dilation,
        "transposed": transposed,
    }  # fmt: skip


def attentions(seed: int = 5, count: int = 150) -> Iterator[Spec]:
    """Fused attention by kernel, and its gradient."""
    rng = random.Random(seed)
    for kernel, dtype in (
        ("flash", "bfloat16"),
        ("efficient", "float32"),
        ("efficient", "bfloat16"),
        ("cudnn", "bfloat16"),
    ):
        made = 0
        while made < count // (1 if kernel == "flash" or dtype == "float32" else 2):
            b, h = rng.choice((1, 2, 4, 8, 12, 16, 32, 64)), rng.choice((3, 4, 6, 8, 12, 16, 32))
            length, width = (
                rng.choice((49, 64, 128, 197, 256, 384, 512, 577, 1024, 2048, 4096)),
                rng.choice((32, 64, 64, 80, 96, 128)),
            )
            queries = length if rng.random() < 0.85 else rng.choice((1, 77, 128, 512))
            if (
                4 * b * h * queries * length * width > (2e11 if dtype == "float32" else 8e11)
                or b * h * length * width > 2**27
            ):
                continue
            made += 1
            causal = int(rng.random() < 0.4 and queries == length)
            base = {
                "kind": "attention",
                "kernel": kernel,
                "dtype": dtype,
                "b": b,
                "h": h,
                "q": queries,
                "l": length,
                "w": width,
            }
            for part in ("forward", "backward"):
                yield {**base, "causal": causal, "part": part}


def stages(seed: int = 8, count: int = 2400) -> Iterator[Spec]:
    """Convolutions as the stages of networks have them: the smaller the plane, the more channels."""
    rng = random.Random(seed)
    variants = (
        ("tf32", "nchw", 0.8),
        ("bfloat16", "nchw", 0.65),
        ("bfloat16", "nhwc", 0.65),
        ("tf32", "nhwc", 0.3),
    )
    made = 0
    while made < count:
        spec = _stage(rng)
        if spec is None:
            continue
        made += 1
        for dtype, layout, share in variants:
            if rng.random() > share or (layout == "nhwc" and (spec["d"] != 2 or spec["transposed"])):
                continue
            yield from _parts(dtype, layout, spec)


def _stage(rng: random.Random) -> Spec | None:
    family = rng.random()
    plane = rng.choice(
        (192, 160, 128, 112, 112, 96, 80, 64, 56, 56, 48, 40, 32, 28, 28, 24, 20, 16, 14, 14, 12, 10, 8, 7, 7)
    )
    n = rng.choice((1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128))
    c = _channels(rng, 64 * 56 / plane * 2 ** rng.uniform(-1.6, 2.0))
    k, size, stride, groups, d, dilation, transposed = c, 3, 1, 1, 2, 1, 0
    if family < 0.34:
        k, size = _channels(rng, c * rng.choice((0.25, 0.25, 0.5, 0.5, 1, 1, 2, 4, 4, 6, 1 / 6))), 1
        stride = rng.choice((1,) * 6 + (2,))
    elif family < 0.58:
        k, stride = _channels(rng, c * rng.choice((1, 1, 1, 1, 2, 0.5, 0.25))), rng.choice((1, 1, 1, 2))
        dilation = rng.choice((1,) * 12 + (2, 4)) if stride == 1 else 1
    elif family < 0.65:
        c, plane, k = (
            rng.choice((1, 3, 3, 3, 4)),
            rng.choice((64, 128, 160, 224, 224, 256, 299, 384)),
            rng.choice((16, 24, 32, 48, 64, 96, 128)),
        )
        size, stride = rng.choice(((3, 1), (3, 2), (3, 2), (7, 2), (7, 4)))
    elif family < 0.71:
        size = stride = rng.choice((2, 2, 4, 8, 14, 16, 16, 32))
        c, plane = (
            (c, plane // size * size)
            if size == 2
            else (3, rng.choice((128, 224, 224, 256, 384)) // size * size)
        )
        k = 2 * c if size == 2 else rng.choice((64, 96, 128, 192, 384, 768, 1024))
    elif family < 0.83:
        groups = k = c
        size, stride = rng.choice((3, 3, 3, 5, 7, 7)), rng.choice((1, 1, 1, 2))
    elif family < 0.89:
        each = rng.choice((4, 8, 16, 24, 32, 48, 64))
        groups = max(c // each, 2)
        c = k = groups * each
        stride = rng.choice((1, 1, 2))
    elif family < 0.94:
        d, plane, n = 3, rng.choice((7, 8, 14, 16, 28, 32, 56, 64)), rng.choice((1, 2, 4, 8))
        c = _channels(rng, 64 * 56 / plane * 2 ** rng.uniform(-2, 1))
        k, size, stride = (
            _channels(rng, c * rng.choice((0.5, 1, 1, 2))),
            rng.choice((1, 3, 3)),
            rng.choice((1, 1, 2)),
        )
    elif family < 0.97:
        transposed, (size, stride) = 1, rng.choice(((2, 2), (4, 2), (3, 2)))
        k = _channels(rng, c / 2)
    else:
        d, plane, c = (
            1,
            rng.choice((49, 196, 499, 998, 1024, 3000, 8000)),
            rng.choice((80, 128, 256, 384, 512, 768)),
        )
        k, size, stride = rng.choice((c, 512, 768)), rng.choice((1, 2, 3, 3, 5)), rng.choice((1, 1, 2))
    out = plane * stride if transposed else max(plane // stride, 1)
    work, elements = 2 * n * out**d * c * k * size**d / groups, n * max(c * plane**d, k * out**d)
    if work > 6e11 or elements > 2**27 or elements < 2**14 or plane < size:
        return None
    return {
        "n": n, "c": c, "p": plane, "k": k, "r": size, "stride": stride, "groups": groups, "d": d, "dilation": dilation,
        "transposed": transposed,
    }  # fmt: skip


def _channels(rng: random.Random, about: float) -> int:
    """A count near one: of 8, mostly of 16 or 32, now and then not."""
    step = rng.choice((8, 16, 16, 32, 32)) if rng.random() < 0.96 else 2
    return min(max(int(about / step + 0.5), 1) * step, 2560)


def aligned(seed: int = 9, count: int = 3400) -> Iterator[Spec]:
    """Products whose rows all begin at 16 bytes, as layers mostly have them; some rows of any count."""
    rng = random.Random(seed)
    for dtype in _TYPES:
        most, step = {"bfloat16": 2e12, "tf32": 1e12, "float32": 2e11}[dtype], 8 if dtype == "bfloat16" else 4
        made = 0
        while made < count:
            layout = rng.choice(_LAYOUTS)
            m, n, k = (int(2 ** rng.uniform(least, 16)) for least in (3, 4, 4))
            n, k = n // step * step, k // step * step
            n, k = (v // 64 * 64 if v >= 128 and rng.random() < 0.7 else v for v in (n, k))
            m = m // step * step if layout == "tn" or rng.random() < 0.7 else m
            m = m // 64 * 64 if m >= 128 and rng.random() < 0.6 else m
            if min(m, n, k) < 1 or 2 * m * n * k > most or m * n > 2**27 or m * k > 2**27 or n * k > 2**27:
                continue
            made += 1
            yield _mm(dtype, layout, m, n, k)


BYTES = [2**e for e in range(10, 30, 2)]
_POINTWISE = (
    "clone", "add", "add_", "mul", "mul_", "mul.Scalar", "relu", "relu_", "threshold_backward", "gelu", "gelu_backward", "silu",
    "silu_backward", "sigmoid", "tanh", "exp", "pow2", "pow3", "rsqrt", "div", "where", "masked_fill", "native_dropout", "native_dropout_backward",
    "bernoulli_", "fill_", "zero_", "addcmul", "lerp_", "hardswish", "hardswish_backward", "leaky_relu", "sub", "neg", "eq", "normal_", "sin",
)  # fmt: skip
_MOVED = (
    "bias_add", "channel_mul", "row_mul", "head_permute", "nchw_nhwc", "transpose", "cat2", "cat_last", "slice_copy", "flip", "roll",
    "pad", "repeat_kv", "interleave", "stride2",
)  # fmt: skip
_REDUCED = (
    "sum_last",
    "sum_first",
    "sum_all",
    "sum_plane",
    "sum_bias",
    "mean_last",
    "mean_plane",
    "amax_last",
    "argmax_last",
    "norm_all",
    "var_last",
    "cumsum_last",
)
_FOREACH = (
    "_foreach_add_", "_foreach_mul_", "_foreach_lerp_", "_foreach_addcmul_", "_foreach_addcdiv_", "_foreach_sqrt", "_foreach_div_", "_foreach_norm",
    "_foreach_add", "_foreach_zero_", "_fused_adamw_", "_fused_sgd_", "_foreach_maximum_", "_foreach_copy_",
)  # fmt: skip


def moved(seed: int = 6) -> Iterator[Spec]:  # noqa: ARG001
    """Everything that moves bytes."""
    for dtype in ("float32", "bfloat16"):
        for name in (*_POINTWISE, *_MOVED):
            for nbytes in BYTES:
                yield {"kind": "moved", "name": name, "dtype": dtype, "nbytes": nbytes}
        for name in ("to_bfloat16", "to_float32", "to_float16"):
            for nbytes in BYTES:
                yield {"kind": "moved", "name": name, "dtype": dtype, "nbytes": nbytes}
        for name in _REDUCED:
            for nbytes in BYTES:
                for width in (
                    (64, 1024, 8192)
                    if name.endswith("last") or name in ("sum_first", "sum_bias")
                    else (196, 3136)
                ):
                    if nbytes >= 4 * width:
                        yield {
                            "kind": "reduced",
                            "name": name,
                            "dtype": dtype,
                            "nbytes": nbytes,
                            "width": width,
                        }
    for name in _FOREACH:
        for tensors in (1, 4, 30, 150, 600):
            for each in (256, 4096, 65536, 1 << 20, 1 << 24):
                if tensors * each <= 1 << 28:
                    yield {
                        "kind": "foreach",
                        "name": name,
                        "dtype": "float32",
                        "tensors": tensors,
                        "each": each,
                    }


def normalized() -> Iterator[Spec]:
    """Normalization, softmax, losses: rows of a width."""
    names = ("native_layer_norm", "native_layer_norm_backward", "_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data",
             "_fused_rms_norm", "_fused_rms_norm_backward", "nll_loss_forward", "nll_loss_backward")  # fmt: skip
    for dtype in ("float32", "bfloat16"):
        for name in names:
            for width in (32, 64, 197, 256, 768, 1000, 1024, 4096, 32000, 50257):
                for rows in (16, 128, 1024, 4096, 16384, 65536, 262144):
                    if 2**12 <= rows * width <= 2**27 and (width < 5000 or "layer" not in name):
                        yield {"kind": "rows", "name": name, "dtype": dtype, "rows": rows, "width": width}
        for name in (
            "batch_norm",
            "batch_norm_backward",
            "batch_norm_eval",
            "native_group_norm",
            "native_group_norm_backward",
        ):
            for layout in ("nchw", "nhwc"):
                for n in (2, 16, 64):
                    for c in (16, 64, 256, 1024):
                        for plane in (7, 14, 28, 56, 112):
                            if 2**13 <= n * c * plane * plane <= 2**26 and not (
                                layout == "nhwc" and "group" in name and n == 16
                            ):
                                yield {
                                    "kind": "planes",
                                    "name": name,
                                    "dtype": dtype,
                                    "layout": layout,
                                    "n": n,
                                    "c": c,
                                    "p": plane,
                                }
        for name in ("max_pool", "max_pool_backward", "avg_pool", "avg_pool_backward", "adaptive", "adaptive_backward", "nearest", "nearest_backward",
                     "bilinear", "bilinear_backward"):  # fmt: skip
            for layout in ("nchw", "nhwc"):
                for n, c, plane in (
                    (2, 64, 56),
                    (16, 64, 56),
                    (16, 64, 112),
                    (32, 256, 28),
                    (64, 512, 14),
                    (8, 1024, 7),
                    (4, 32, 224),
                    (64, 64, 112),
                ):
                    yield {
                        "kind": "planes",
                        "name": name,
                        "dtype": dtype,
                        "layout": layout,
                        "n": n,
                        "c": c,
                        "p": plane,
                    }


def looked_up() -> Iterator[Spec]:
    """Embeddings, indexing, sorting, recurrent layers."""
    for dtype in ("float32", "bfloat16"):
        for vocabulary in (1000, 32000, 50257):
            for width in (128, 768, 2048):
                for rows in (128, 1024, 4096, 16384):
                    for name in (
                        "embedding",
                        "embedding_dense_backward",
                        "index",
                        "index_put_accumulate",
                        "gather",
                        "scatter_add_",
                        "index_add_",
                    ):
                        yield {
                            "kind": "lookup",
                            "name": name,
                            "dtype": dtype,
                            "vocabulary": vocabulary,
                            "width": width,
                            "rows": rows,
                        }
    for name in ("topk", "sort", "cumsum", "one_hot", "nonzero", "argsort"):
        for rows, width in ((1, 1024), (1, 65536), (512, 64), (4096, 64), (4096, 1024), (64, 32000)):
            yield {"kind": "sorted", "name": name, "dtype": "float32", "rows": rows, "width": width}
    for dtype in ("float32", "bfloat16"):
        for mode in ("lstm", "gru"):
            for layers in (1, 2):
                for length in (16, 64, 256):
                    for b in (8, 32, 128):
                        for width in (128, 512, 1024):
                            for part in ("forward", "backward"):
                                yield {
                                    "kind": "recurrent",
                                    "name": mode,
                                    "dtype": dtype,
                                    "layers": layers,
                                    "t": length,
                                    "b": b,
                                    "w": width,
                                    "part": part,
                                }


SECTIONS = {
    "products": products, "moved": moved, "convolutions": convolutions, "attentions": attentions, "normalized": normalized, "batched": batched,
    "looked_up": looked_up, "others_of_products": others_of_products,
}  # fmt: skip


def mixed() -> Iterator[Spec]:
    """What mixed precision and channels-last networks run besides: batch norm in half with weights of float32, group norm, copies
    from the host."""
    for dtype in ("bfloat16", "float16"):
        for name in ("mixed_batch_norm", "mixed_batch_norm_backward", "mixed_batch_norm_eval"):
            for layout in ("nchw", "nhwc"):
                for n in (2, 16, 64):
                    for c in (16, 64, 256, 1024):
                        for plane in (7, 14, 28, 56, 112):
                            if 2**13 <= n * c * plane * plane <= 2**26 and (dtype == "bfloat16" or n == 16):
                                yield {
                                    "kind": "planes",
                                    "name": name,
                                    "dtype": dtype,
                                    "layout": layout,
                                    "n": n,
                                    "c": c,
                                    "p": plane,
                                }
    for nbytes in BYTES[2:]:
        yield {"kind": "moved", "name": "from_host", "dtype": "float32", "nbytes": nbytes}


SECTIONS |= {"mixed": mixed, "aligned": aligned, "stages": stages}
