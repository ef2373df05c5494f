"""Matrix products: (m, k) by (k, n), b of them.

1. The output is cut into tiles, each computed by one multiprocessor; with more tiles than multiprocessors
   they run in waves, and the last may be partly empty. A wave takes the tile's operations at the
   multiprocessor's share of the peak, over the length k in steps of 64, and some time to begin and end.
   Small outputs cut k as well ("split-K"), and add the parts up.
2. cuBLAS takes the tile that is fastest: so does `base`, among the tiles its kernels' names on the H100 show.
3. It cannot be faster than its operands and result are moved.
4. The loads a kernel may use depend on the alignment of rows: 16 bytes (the tensor memory accelerator and
   16-byte loads), 8, or less; each is a category of its own.

5. A bias is added by the product's own kernel (`addmm`), of which cuBLASLt has fewer: short products take up
   to 6 % longer in half precision and TF32, 20 % in float32, long ones nothing (146 products beside the same
   without a bias, H100).

Source: tiles from the names of cuBLAS 13's kernels (`nvjet_sm90_tst_256x128_...`); waves and tiles: NVIDIA,
Matrix Multiplication Background User's Guide (DU-09799-001). Not modelled: the choice of cuBLAS' heuristic;
the table has its results.
"""

from __future__ import annotations

from functools import cache
from math import ceil

from analyzer_timing.rates import Rates
from analyzer_timing.work import Work, log

# Rows and columns of a tile, and the share of the multiprocessor's peak it reaches in a long product.
_TILES = (
    (256, 128, 1.0),
    (128, 256, 1.0),
    (128, 128, 0.9),
    (64, 256, 0.85),
    (256, 64, 0.85),
    (192, 128, 0.95),
    (128, 192, 0.95),
    (128, 64, 0.72),
    (64, 128, 0.72),
    (64, 64, 0.5),
    (64, 32, 0.3),
    (32, 64, 0.3),
    (64, 16, 0.17),
    (64, 8, 0.1),
)
_SPLITS = (1, 2, 4, 8, 16)
_BEGIN, _WAVE, _SPLIT = 2.0e-6, 0.6e-6, 1.5e-6
_SHARE = 0.8  # of the data sheet's peak, which no kernel reaches
ITEMSIZE = {"bfloat16": 2, "float16": 2, "tf32": 4, "float32": 4}


def alignment(size: int, itemsize: int) -> int:
    """Return a row's alignment class by its elements: 0 at 16 bytes, 1 at 8, 2 at less."""
    nbytes = size * itemsize
    return 0 if nbytes % 16 == 0 else 1 if nbytes % 8 == 0 else 2


@cache
def seconds(m: int, n: int, k: int, b: int, dtype: str, rates: Rates) -> float:
    """The fastest tile's waves, and no less than moving the bytes takes."""
    units, itemsize = rates.multiprocessors, ITEMSIZE[dtype]
    rate = rates.product(dtype) * _SHARE / units
    steps, best = ceil(k / 64), float("inf")
    for rows, columns, share in _TILES:
        tiles = ceil(m / rows) * ceil(n / columns) * b
        each = 2 * rows * columns * 64 / (rate * share)
        for split in _SPLITS:
            if split > 1 and (tiles * split > 4 * units or split > steps):
                break
            waves = ceil(tiles * split / units)
            time = waves * (each * ceil(steps / split) + _WAVE)
            if split > 1:
                time += _SPLIT + m * n * b * 4 * split / rates.cache_bandwidth
            best = min(best, time)
    nbytes = (m * k + n * k + m * n) * b * itemsize
    reached = rates.cache_bandwidth * 0.82 if nbytes < rates.cache_bytes * 0.8 else rates.bandwidth * 0.78
    return float((best**3 + (nbytes / reached) ** 3) ** (1 / 3) + _BEGIN)


# The most a bias adds, and up to how many seconds.
_BIAS = {"half": (0.06, 1e-4), "tf32": (0.06, 1e-4), "float32": (0.2, 2e-4)}


def product(
    m: int, n: int, k: int, b: int, dtype: str, layout: str, rates: Rates, bias: bool = False
) -> Work:
    """layout: whether each operand is a transposed view ("nt": the second is, as in a linear layer). dtype:
    "tf32" for float32 that may be rounded."""
    itemsize = ITEMSIZE[dtype]
    left, right = (m if layout[0] == "t" else k), (k if layout[1] == "t" else n)
    aligned = max(alignment(left, itemsize), alignment(right, itemsize))
    kind = "half" if itemsize == 2 else dtype
    parts = ["bmm" if b > 1 else "mm", kind, layout, str(aligned), str(alignment(n, itemsize))]
    place = (log(m), log(n), log(k), *((0.7 * log(b),) if b > 1 else ()))
    base = seconds(m, n, k, b, dtype, rates)
    if bias:
        most, short = _BIAS[kind]
        base *= 1 + most * min(1.0, short / base)
    return Work(":".join(parts), place, base, (m * k + n * k) * b * itemsize)


def grouped(m: int, n: int, k: int, groups: int, rates: Rates) -> Work:
    """Return the work of as many products of one size in one kernel of CUTLASS' (`_grouped_mm` in bfloat16,
    `aten/src/ATen/native/cuda/GroupMM.cu`), which prepares their addresses first."""
    base = seconds(m, n, k, groups, "bfloat16", rates)
    place = (log(m), log(n), log(k), 0.7 * log(groups))
    return Work("grouped:half", place, base, (m * k + n * k) * groups * 2)
