"""Random convolutions, by kind: what cuDNN is asked about, and PyTorch runs, on a GPU. A seed gives the same ones anywhere."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

from analyzer.libraries.cudnn.convolution import OPERATIONS, Convolution
from analyzer.libraries.cudnn.on_cublas import is_single_product

_HALF_TOO = (
    ("float32", False), ("float32", True), ("float16", False), ("float16", True), ("bfloat16", True),
    ("bfloat16", False),
)  # fmt: skip
_MOSTLY_FLOAT32 = (("float32", False),) * 5 + (
    ("float32", True), ("float16", False), ("float16", True), ("bfloat16", False), ("bfloat16", True),
)  # fmt: skip
_SIDES = (4, 5, 6, 7, 8, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 65, 96, 112, 128, 224)
_CHANNELS = (1, 2, 3, 4, 6, 8, 12, 16, 16, 16, 24, 32, 32, 48, 64, 96, 128)
_BATCHES = (1, 2, 3, 4, 8, 10, 16, 17, 32, 50, 64, 100, 128, 256)
_MOST_ELEMENTS = 2**28


def of_all_kinds(dice: random.Random) -> Convolution:
    """Any operation, type, layout, number of dimensions and of groups."""
    dims = dice.choice((1, 2, 2, 2, 3))
    groups = dice.choice((1, 1, 1, 1, 2, 4, 8))
    c, k = (groups * dice.choice((1, 2, 3, 5, 8, 11, 16, 24, 32, 48, 64, 96, 127, 128, 256)) for _ in "ck")
    kernel = [dice.choice((1, 1, 2, 3, 3, 3, 4, 5, 7)) for _ in range(dims)]
    if dice.random() < 0.6:
        kernel = [kernel[0]] * dims
    stride, dilation = ([dice.choice((1, 1, 1, 2, 3))] * dims for _ in "sd")
    padding = [dice.choice((0, 1, 1, 2, 3))] * dims
    spatial = [dice.randint(1, {1: 4000, 2: 150, 3: 40}[dims]) for _ in range(dims)]
    if dims == 1:  # as PyTorch gives them to cuDNN
        spatial, kernel, stride, dilation = ([1, *sizes] for sizes in (spatial, kernel, stride, dilation))
        padding = [0, *padding]
    dtype, last = dice.choice(_HALF_TOO)
    operation, batch = dice.choice(OPERATIONS), dice.choice((1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 64))
    moves = (tuple(padding), tuple(stride), tuple(dilation))
    call = Convolution(operation, dtype, last, (batch, c, *spatial), (k, c // groups, *kernel), *moves)
    few = min(call.y_shape) <= 0 or max(batch * c, call.y_shape[0] * k) * max(spatial) < _MOST_ELEMENTS
    return call if few else of_all_kinds(dice)


def strided(dice: random.Random) -> Convolution:
    """A float32 gradient of the input with strides of two to four, now and then of another one sideways."""
    taps, side = dice.choice((2, 3, 3, 3, 4, 5, 5, 7, 9, 11)), dice.choice(_SIDES)
    width = side if dice.random() < 0.7 else dice.choice((8, 16, 31, 64))
    kernel = (taps, taps if dice.random() < 0.85 else dice.choice((3, 5)))
    step, pad = dice.choice((2, 2, 2, 2, 2, 3, 4)), dice.choice((taps // 2, taps // 2, 0, 1, 2))
    stride = (step, step if dice.random() < 0.9 else dice.choice((1, 2)))
    padding = (pad, pad if dice.random() < 0.8 else dice.choice((0, 1, 2)))
    inputs, outputs = dice.choice(_CHANNELS), dice.choice(_CHANNELS)
    x_shape, w_shape = (dice.choice(_BATCHES), inputs, side, width), (outputs, inputs, *kernel)
    call = Convolution("data", "float32", False, x_shape, w_shape, padding, stride, (1, 1))
    return call if _pads_less_than_filters(call) else strided(dice)


def products(dice: random.Random) -> Convolution:
    """Filters of one element, strides of one, nothing padded: images, sequences, single vectors, volumes."""
    form = dice.choices(("square", "oblong", "sequence", "vector", "volume"), (6, 2, 2, 1, 0.5))[0]
    side = _logarithmic(dice, 1, 160)
    spatial = {
        "square": (side, side), "oblong": (side, _logarithmic(dice, 1, 160)), "vector": (1, 1),
        "sequence": (1, _logarithmic(dice, 4, 8000)), "volume": (_logarithmic(dice, 1, 32),) * 3,
    }[form]  # fmt: skip
    kind, operation = dice.choice(_MOSTLY_FLOAT32), dice.choice(OPERATIONS)
    return _plain(dice, operation, kind, spatial, (1,) * len(spatial), (0,) * len(spatial))


def images(dice: random.Random) -> Convolution:
    """Products an image, of which some take up to 400 bytes besides."""
    call = products(dice)
    return images(dice) if is_single_product(call) else call


def layers(dice: random.Random) -> Convolution:
    """Products an image as networks have them, channels and positions multiples of 8, mostly of half precision."""
    while True:
        call = images(dice)
        sizes = *call.w_shape[:2], math.prod(call.x_shape[2:])
        if all(size % 8 == 0 for size in sizes) and (call.dtype != "float32" or dice.random() < 0.3):
            return call


def winograd(dice: random.Random) -> Convolution:
    """Filters of 3 x 3 with strides of one, mostly of float32, in NCHW and for weights."""
    side = _logarithmic(dice, 3, 160)
    spatial = (side, side if dice.random() < 0.8 else _logarithmic(dice, 3, 160))
    kind = dice.choice(_MOSTLY_FLOAT32)
    operation = dice.choice(("forward", "data", "weight", "weight"))
    return _plain(dice, operation, kind, spatial, (3, 3), (dice.choice((0, 1, 1, 1, 2)),) * 2)


def transforms(dice: random.Random) -> Convolution:
    """Filters of any size with strides of one, up to the whole image."""
    side = _logarithmic(dice, 2, 256)
    spatial = (side, side if dice.random() < 0.8 else _logarithmic(dice, 2, 256))
    size = min(dice.choice((2, 3, 3, 3, 4, 5, 5, 7, 9, 11, _logarithmic(dice, 2, 64), *spatial)), *spatial)
    padding = dice.choice((0, size // 2, size // 2, 1))
    kind = ("float32", dice.random() < 0.1)
    return _plain(dice, dice.choice(OPERATIONS), kind, spatial, (size, size), (padding, padding))


def oblong(dice: random.Random) -> Convolution:
    """Filters and paddings that differ by dimension, of sequences too, with strides of one."""
    spatial = (_logarithmic(dice, 1, 200) if dice.random() < 0.7 else 1, _logarithmic(dice, 2, 256))
    kernel = tuple(min(dice.choice((1, 2, 3, 3, 4, 5, 7, 9, 15)), size) for size in spatial)
    padding = tuple(dice.choice((0, 0, 1, size // 2, size // 2, 2)) if length > 1 else 0
                    for size, length in zip(kernel, spatial, strict=True))  # fmt: skip
    operation, kind = dice.choice(OPERATIONS), ("float32", dice.random() < 0.1)
    return _plain(dice, operation, kind, spatial, kernel, padding)


def grouped(dice: random.Random) -> Convolution:
    """Filters of several elements in 2 to 16 groups, strides of one."""
    side = _logarithmic(dice, 3, 120)
    spatial = (side, side if dice.random() < 0.7 else _logarithmic(dice, 3, 120))
    size = min(dice.choice((2, 3, 3, 3, 3, 5, 5, 5, 7, 9)), *spatial)
    padding = dice.choice((0, size // 2, size // 2, 1))
    kind = dice.choice(_MOSTLY_FLOAT32)
    groups = dice.choice((2, 2, 2, 3, 4, 4, 8, 16))
    inputs, outputs = (groups * _logarithmic(dice, 1, 256) for _ in range(2))
    x_shape, w_shape = (_logarithmic(dice, 1, 128), inputs, *spatial), (outputs, inputs // groups, size, size)
    return Convolution(dice.choice(OPERATIONS), *kind, x_shape, w_shape, (padding,) * 2, (1, 1), (1, 1))


KINDS: dict[str, Callable[[random.Random], Convolution]] = {
    "products": products, "images": images, "layers": layers, "winograd": winograd, "transforms": transforms,
    "oblong": oblong, "grouped": grouped,
}  # fmt: skip


def drawn(kind: Callable[[random.Random], Convolution], seed: object) -> Iterator[Convolution]:
    """Convolutions of a kind without end that have a result."""
    dice = random.Random(seed)  # type: ignore[arg-type]
    while True:
        call = kind(dice)
        if min(call.y_shape) > 0:
            yield call


def of_kind(kind: str, part: int) -> Iterator[Convolution]:
    """Those of `KINDS` that are not too large; each part has its own."""
    for call in drawn(KINDS[kind], f"{kind} {part}"):
        if max(map(math.prod, (call.x_shape, call.y_shape, call.w_shape))) < _MOST_ELEMENTS:
            yield call


def _plain(
    dice: random.Random, operation: str, kind: tuple[str, bool],
    spatial: tuple[int, ...], kernel: tuple[int, ...], padding: tuple[int, ...],
) -> Convolution:  # fmt: skip
    """A dense convolution with strides of one. kind: type, and whether channels come last."""
    inputs, outputs = _channels(dice), _channels(dice)
    batch = dice.choice((1, 2, 4, 8, 16, 32, 64, 128)) if dice.random() < 0.5 else _logarithmic(dice, 1, 512)
    ones = (1,) * len(spatial)
    return Convolution(
        operation, *kind, (batch, inputs, *spatial), (outputs, inputs, *kernel), padding, ones, ones
    )


def _pads_less_than_filters(call: Convolution) -> bool:
    """Whether filters find a place, and none in the padding alone."""
    sizes = zip(call.x_shape[2:], call.padding, call.w_shape[2:], strict=True)
    return all(size + 2 * pad >= taps > pad for size, pad, taps in sizes)


def _channels(dice: random.Random) -> int:
    """A number of channels: mostly a multiple of 8, mostly of 16 or 32 where there are many."""
    number = _logarithmic(dice, 1, 2300)
    unit = dice.choice((1, 2, 4, 8, 8, 16, 32, 64))
    return -(-number // unit) * unit


def _logarithmic(dice: random.Random, least: int, most: int) -> int:
    return round(math.exp(dice.uniform(math.log(least), math.log(most))))
