"""Counter bytes (0, 272 or 400) of a convolution that cuBLAS runs as one product an image, besides its
results.

On compute capability 9 some of cuBLAS's kernels need a few counters. Its own heuristic chooses the kernel,
and does not run for a description in a process without a GPU: 134,097 of 757,521 such products that an H100's
handle put first need them. In half precision it is 272 bytes where positions and input channels are multiples
of 8, else 400 (all but 26 of 65,579); in float32 always 400. Decision trees give the share of products like
this one that need them (`trees.py`, `recorded/sm90.besides.npz`); a share within `SURE` of 0 or 1 decides, in
between both are possible.

Source: cuDNN 9.19 asked by an H100's handle, 28 November 2026 (`python -m benchmarks cudnn unlisted handle
--kind images`, `layers`). Of every fifth, which the trees were not grown from, 86 to 95 % are right by
operation and type; without trees, which say nothing of these bytes, 73 to 86 % would be.
"""

from __future__ import annotations

import math

from analyzer.libraries.cudnn.convolution import Convolution
from analyzer.libraries.cudnn.trees import SURE, forest

_ALIGNED, _UNALIGNED = 272, 400
_ALIGNED_ELEMENTS = 8
# A block's part of a result, rows and columns.
_TILES = ((64, 64), (128, 128), (128, 64), (64, 128), (64, 256), (256, 64), (256, 128), (128, 256))


def extra_bytes(call: Convolution) -> tuple[int, int, int]:
    """Return the bytes a product an image takes besides, and the least and most they may be."""
    share = forest("sm90.besides").share(group(call), features(call))
    sizes = call.x_shape[1], math.prod(call.x_shape[2:])
    aligned = call.dtype != "float32" and all(size % _ALIGNED_ELEMENTS == 0 for size in sizes)
    nbytes = _ALIGNED if aligned else _UNALIGNED
    return (nbytes if share >= 0.5 else 0, nbytes if share > 1 - SURE else 0, 0 if share < SURE else nbytes)


def group(call: Convolution) -> str:
    """Return which trees apply."""
    return f"{call.operation}.{call.dtype}"


def features(call: Convolution) -> list[float]:
    """Return what the trees look at, by number: sizes, remainders and blocks of all images' products."""
    batch, inputs = call.x_shape[:2]
    outputs, positions = call.w_shape[0], math.prod(call.x_shape[2:])
    # Rows and columns of an image's result, and what is added up for each element.
    rows, columns, depth = sizes = {
        "weight": (outputs, inputs, positions),
        "forward": (outputs, positions, inputs),
        "data": (inputs, positions, outputs),
    }[call.operation]
    remainders = [size % part for part in (8, 16) for size in sizes]
    tiles = [-(-rows // high) * -(-columns // wide) * batch for high, wide in _TILES]
    ratios = [rows / columns, batch * rows * columns, batch * rows * columns * depth]
    blocks = [-(-size // side) for side in (64, 128, 256) for size in (rows, columns)]
    rests = [size % side for side in (64, 128) for size in (rows, columns)] + [depth % 32, depth % 64]
    return [batch, *sizes, *remainders, *tiles, *ratios, *blocks, *rests]
