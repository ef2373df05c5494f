"""What is measured for the table besides `shapes.py`: the sizes between its steps, and what its families leave out.

1. Rows of a width, planes and reductions by draws of what layers have, where `shapes.normalized` and `shapes.moved` go in steps of four.
2. Copies between two orders in memory by what stays together: elements that lie side by side on both sides, or a side's own row.
   Joined tensors by how many there are and how much each gives to a row; broadcast operands by the length of the piece they repeat over.
3. Products whose rows do not begin at 16 bytes, as vocabularies of an odd size have them.
4. Convolutions in groups, of one dimension, and of few channels; pooling and resizing by the sizes of both sides.

A specification is one of `shapes.py`'s, drawn with a fixed seed; none is taken from the cases (`cases.json`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from benchmarks.timing.shapes import Spec

_DTYPES = ("float32", "bfloat16")
_WIDTHS = (32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640, 768, 896, 1024, 1152, 1280, 1536, 1792, 2048, 2304,
           2560, 3072, 4096)  # fmt: skip
_LENGTHS = (
    16,
    25,
    32,
    48,
    49,
    64,
    77,
    96,
    100,
    128,
    144,
    160,
    196,
    197,
    256,
    257,
    320,
    384,
    400,
    512,
    577,
    768,
    1024,
    1500,
    2048,
)
_PLANES = (1, 4, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224)
_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)
_MOST = 2**26


def _about(rng: random.Random, least: int, most: int) -> int:
    """A number between two powers of two, its logarithm drawn evenly."""
    return int(2 ** rng.uniform(least, most))


def rows(seed: int = 11, count: int = 110) -> Iterator[Spec]:
    """Normalization and softmax."""
    rng = random.Random(seed)
    norms = ("native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward")
    softmaxes = (
        "_softmax",
        "_softmax_backward_data",
        "_log_softmax",
        "_log_softmax_backward_data",
        "nll_loss_forward",
        "nll_loss_backward",
    )
    for dtype in _DTYPES:
        for name in (*norms, *softmaxes):
            for _ in range(count * (2 if name.startswith("native") else 1)):
                width = rng.choice(_WIDTHS if name in norms else _LENGTHS)
                if name not in norms and rng.random() < 0.3:
                    width = rng.choice((1000, 1024, 8192, 21128, 30522, 32000, 50257))
                many = min(_about(rng, 4, 18), _MOST // width)
                yield {"kind": "rows", "name": name, "dtype": dtype, "rows": many, "width": width}


def reductions(seed: int = 12, count: int = 150) -> Iterator[Spec]:
    """Sums of rows, of columns, and of a channel's planes (`sum_mid`: outer, kept, inner)."""
    rng = random.Random(seed)
    for dtype in _DTYPES:
        itemsize = 4 if dtype == "float32" else 2
        for name in ("sum_first", "sum_last", "mean_last", "amax_last", "var_last"):
            for _ in range(2 * count if name == "sum_first" else count // 2):
                width = rng.choice(_WIDTHS if name == "sum_first" else (*_WIDTHS, *_LENGTHS))
                many = max(min(_about(rng, 3, 19), _MOST // width), 2)
                nbytes = many * width * itemsize
                yield {"kind": "reduced", "name": name, "dtype": dtype, "nbytes": nbytes, "width": width}
        for _ in range(3 * count):
            n, kept, inner = rng.choice(_BATCHES), rng.choice(_WIDTHS), rng.choice(_PLANES[1:]) ** 2
            if 2**10 <= n * kept * inner <= _MOST:
                yield {
                    "kind": "sum_mid",
                    "name": "sum_mid",
                    "dtype": dtype,
                    "n": n,
                    "kept": kept,
                    "inner": inner,
                }


def copies(seed: int = 13, count: int = 420) -> Iterator[Spec]:
    """Copies between orders: "runs" (a, b, c, run) with the middle two exchanged, or a part of each row (b = 1: of c runs one);
    "turned" (a, b, c) with the last two exchanged; "joined" tensors; "cast" is of another type besides."""
    rng = random.Random(seed)
    for dtype in _DTYPES:
        for _ in range(count):
            run = rng.choice((4, 8, 16, 24, 32, 48, 64, 80, 96, 128, 196, 256, 512, 768, 1024, 3072))
            b, c = rng.choice((2, 3, 4, 6, 8, 12, 16, 24, 32)), rng.choice(_LENGTHS)
            a = max(_about(rng, 10, 26) // (b * c * run), 1)
            if a * b * c * run <= _MOST:
                cast = int(rng.random() < 0.15)
                yield {"kind": "runs", "dtype": dtype, "a": a, "b": b, "c": c, "run": run, "cast": cast}
        for _ in range(count // 2):
            run, parts = rng.choice(_WIDTHS), rng.choice((2, 3, 4))
            a = max(_about(rng, 10, 26) // run, 1)
            if a * run * parts <= _MOST:
                yield {"kind": "part", "dtype": dtype, "a": a, "b": parts, "run": run}
        for _ in range(count):
            b, c = rng.choice((*_LENGTHS, 784, 1024, 3136)), rng.choice(_WIDTHS)
            a = max(_about(rng, 10, 26) // (b * c), 1)
            if a * b * c <= _MOST:
                b, c = (b, c) if rng.random() < 0.5 else (c, b)
                yield {
                    "kind": "turned",
                    "dtype": dtype,
                    "a": a,
                    "b": b,
                    "c": c,
                    "cast": int(rng.random() < 0.15),
                }
        for _ in range(count):
            number, run = rng.choice((2, 2, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)), _about(rng, 4, 17)
            a = max(_about(rng, 10, 26) // (number * run), 1)
            first = rng.choice((1, 1, 2, 4, 8))
            if a * (number + first - 1) * run <= _MOST:
                yield {
                    "kind": "joined",
                    "dtype": dtype,
                    "a": a,
                    "number": number,
                    "run": run,
                    "first": first,
                }


def pointwise(seed: int = 14, count: int = 160) -> Iterator[Spec]:
    """Operands that are broadcast, by the run they repeat over; of two types; whole ones at sizes between those of `shapes.moved`."""
    rng = random.Random(seed)
    for dtype in _DTYPES:
        for name in ("bias_add", "channel_mul", "row_mul"):
            for _ in range(count):
                run = (
                    rng.choice(_PLANES[2:]) ** 2
                    if name == "channel_mul"
                    else rng.choice((*_WIDTHS, *_LENGTHS))
                )
                count_of = _about(rng, 10, 26)
                yield {"kind": "broadcast", "name": name, "dtype": dtype, "n": max(count_of // run, 1), "run": run,
                       "c": rng.choice(_WIDTHS)}  # fmt: skip
        for name in ("clone", "add", "add_", "mul", "relu", "threshold_backward", "gelu", "gelu_backward", "silu", "mul.Scalar", "fill_",
                     "to_bfloat16", "to_float32"):  # fmt: skip
            for exponent in range(13, 29, 2):
                yield {"kind": "moved", "name": name, "dtype": dtype, "nbytes": 2**exponent}
            for _ in range(6):
                yield {"kind": "moved", "name": name, "dtype": dtype, "nbytes": _about(rng, 20, 28) // 8 * 8}
    for _ in range(2 * count):
        yield {
            "kind": "mixed",
            "name": rng.choice(("add_", "mul", "add")),
            "dtype": "float32",
            "count": _about(rng, 10, 26),
        }


def planes(seed: int = 15, count: int = 130) -> Iterator[Spec]:
    """Batch and group norm."""
    rng = random.Random(seed)
    names = [f"{kind}{part}" for kind in ("batch_norm", "mixed_batch_norm") for part in ("", "_backward")]
    for name in (*names, "batch_norm_eval", "native_group_norm", "native_group_norm_backward"):
        for dtype in _DTYPES:
            if name.startswith("batch_norm") and not name.endswith("eval") and dtype == "bfloat16":
                continue
            for layout in ("nchw", "nhwc"):
                if "group" in name and layout == "nhwc":
                    continue
                for _ in range(count):
                    n, c, p = (
                        rng.choice(_BATCHES),
                        rng.choice((16, 24, 40, 72, *_WIDTHS[:25])),
                        rng.choice(_PLANES[2:]),
                    )
                    if 2**11 <= n * c * p * p <= _MOST:
                        yield {
                            "kind": "planes",
                            "name": name,
                            "dtype": dtype,
                            "layout": layout,
                            "n": n,
                            "c": c,
                            "p": p,
                        }


def pools(seed: int = 16, count: int = 60) -> Iterator[Spec]:
    """Pooling and resizing: p and q are the sides of the input's and the result's plane; r: of the window."""
    rng = random.Random(seed)
    for name in ("max_pool", "avg_pool", "adaptive", "nearest", "bilinear"):
        for part in ("", "_backward"):
            for dtype in _DTYPES:
                for layout in ("nchw", "nhwc"):
                    for _ in range(count):
                        n, c, p = (
                            rng.choice(_BATCHES),
                            rng.choice((3, 16, 21, 32, *_WIDTHS[:20])),
                            rng.choice(_PLANES[1:]),
                        )
                        r, q = 1, p
                        if name == "adaptive":
                            q = rng.choice((1, 1, 1, 2, 4, 7))
                        elif name in ("nearest", "bilinear"):
                            q = p * rng.choice((2, 2, 2, 4, 8)) if rng.random() < 0.85 else p // 2
                        else:
                            r, stride = rng.choice(((2, 2), (2, 2), (3, 2), (3, 1), (5, 1)))
                            q = (p + 2 * (r // 2 if r % 2 else 0) - r) // stride + 1
                        if q >= 1 and q <= 512 and 2**11 <= n * c * max(p, q) ** 2 <= _MOST and p >= q / 8:
                            yield {
                                "kind": "pool",
                                "name": name + part,
                                "dtype": dtype,
                                "layout": layout,
                                "n": n,
                                "c": c,
                                "p": p,
                                "q": q,
                                "r": r,
                            }


def odd(seed: int = 17, count: int = 420) -> Iterator[Spec]:
    """Products of which a dimension is odd, or a multiple of two alone: a vocabulary, classes, a picture's positions."""
    rng = random.Random(seed)
    for dtype in ("bfloat16", "tf32", "float32"):
        most, made = {"bfloat16": 2.5e12, "tf32": 1.2e12, "float32": 2.5e11}[dtype], 0
        while made < count:
            sizes = [2 ** rng.uniform(4, 14) // 64 * 64 or 32, rng.choice(_WIDTHS), 0]
            sizes[2] = (
                rng.choice(
                    (197, 257, 577, 1001, 5003, 10001, 30522, 32001, 49407, 50257, 50265, 65537, 70000)
                )
                if rng.random() < 0.6
                else _about(rng, 6, 16)
            )
            m, n, k = (int(size) for size in rng.sample(sizes, 3))
            if 2 * m * n * k > most or max(m * n, m * k, n * k) > 2**29:
                continue
            made += 1
            yield {
                "kind": "mm",
                "dtype": dtype,
                "layout": rng.choice(("nn", "nt", "tn")),
                "m": m,
                "n": n,
                "k": k,
                "b": 1,
            }


def _parts(dtype: str, layout: str, convolution: Spec) -> Iterator[Spec]:
    for part in ("forward", "input", "weight"):
        yield {"kind": "conv", "part": part, "dtype": dtype, "layout": layout, **convolution}


def grouped(seed: int = 18, count: int = 110) -> Iterator[Spec]:
    """Convolutions in groups of several channels, channels-last most of all."""
    rng = random.Random(seed)
    for dtype, layout, share in (
        ("tf32", "nhwc", 1.0),
        ("bfloat16", "nhwc", 0.8),
        ("tf32", "nchw", 0.5),
        ("bfloat16", "nchw", 0.4),
    ):
        for _ in range(int(count * share)):
            each, groups, plane = (
                rng.choice((8, 16, 24, 24, 32, 40, 48, 56, 64, 112)),
                rng.choice((2, 3, 4, 5, 6, 8, 10, 14, 16, 20, 32)),
                rng.choice(_PLANES[2:19]),
            )
            n, c = rng.choice(_BATCHES), each * groups
            if 2**14 <= n * c * plane * plane <= _MOST and c <= 1536:
                yield from _parts(dtype, layout, {
                    "n": n, "c": c, "p": plane, "k": c, "r": 3, "stride": rng.choice((1, 1, 1, 2)), "groups": groups, "d": 2, "dilation": 1,
                    "transposed": 0,
                })  # fmt: skip


def wide(seed: int = 20, count: int = 80) -> Iterator[Spec]:
    """Convolutions of large planes with many channels, as networks have them that paint, divide and enlarge pictures."""
    rng = random.Random(seed)
    for dtype, layout, share in (
        ("tf32", "nchw", 1.0),
        ("bfloat16", "nchw", 0.7),
        ("bfloat16", "nhwc", 0.7),
        ("tf32", "nhwc", 0.4),
    ):
        made = 0
        while made < count * share:
            plane, n = rng.choice((56, 64, 80, 96, 112, 128, 128, 160, 192, 224, 256)), rng.choice(_BATCHES)
            c = rng.choice((32, 48, 64, 64, 96, 128, 128, 192, 256, 512))
            k, size = rng.choice((c, c, c, 2 * c, c // 2)), rng.choice((1, 3, 3, 3, 3))
            if 2**20 <= n * max(c, k) * plane**2 <= 2**27 and 2 * n * plane**2 * c * k * size**2 < 6e11:
                made += 1
                yield from _parts(dtype, layout, {
                    "n": n, "c": c, "p": plane, "k": k, "r": size, "stride": 1, "groups": 1, "d": 2, "dilation": 1, "transposed": 0,
                })  # fmt: skip


def sounds(seed: int = 19, count: int = 70) -> Iterator[Spec]:
    """Convolutions of one dimension: the first of a wave's, those of its features, of a text's."""
    rng = random.Random(seed)
    for dtype in ("tf32", "bfloat16"):
        for _ in range(count):
            first = rng.random() < 0.4
            c = rng.choice((1, 1, 2, 80)) if first else rng.choice((64, 128, 256, 384, 512, 768))
            k = rng.choice((32, 64, 128, 256, 512)) if first else rng.choice((c, c, 2 * c))
            size, stride = rng.choice(((10, 5), (3, 2), (3, 1), (5, 1), (7, 1), (2, 2), (1, 1), (8, 4)))
            length = int(2 ** rng.uniform(11, 16)) if first else int(2 ** rng.uniform(5, 14))
            n = rng.choice(_BATCHES[:13])
            if n * max(c * length, k * length // stride) <= _MOST and 2 * n * length * c * k * size < 4e11:
                yield from _parts(dtype, "nchw", {
                    "n": n, "c": c, "p": length, "k": k, "r": size, "stride": stride, "groups": 1, "d": 1, "dilation": 1, "transposed": 0,
                })  # fmt: skip


SECTIONS = {
    "rows": rows, "reductions": reductions, "copies": copies, "pointwise": pointwise, "norm_planes": planes, "pools": pools, "odd": odd,
    "grouped": grouped, "wide": wide, "sounds": sounds,
}  # fmt: skip
