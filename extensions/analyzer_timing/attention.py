"""Fused attention, forward and backward: two products of each head forward, five backward, by kernel.

Queries and keys are taken 64 at a time, the last ones with empty places. Half of the work is left out where
it is causal. `base` is the operations over half of the peak (flash and cuDNN on tensor cores; the
"efficient" kernel computes float32 on tensor cores only where it may be rounded, so on ordinary cores).
"""

from __future__ import annotations

from math import ceil

from analyzer_timing.rates import Rates
from analyzer_timing.work import Work, log

_BEGIN, _TILE = 4e-6, 64


def attention(
    kernel: str, dtype: str, part: str, sizes: tuple[int, int, int, int, int], causal: bool, rates: Rates
) -> Work:
    """kernel: "flash", "efficient" or "cudnn". sizes: batch, heads, queries, keys, width of a head."""
    b, h, queries, keys, width = sizes
    itemsize = 4 if dtype == "float32" else 2
    products = 2 if part == "forward" else 5
    tiles = ceil(queries / _TILE) * ceil(keys / _TILE) * _TILE * _TILE
    operations = 2 * products * b * h * tiles * width * (0.5 if causal else 1.0)
    peak = rates.half * 0.5 if itemsize == 2 else rates.vector * 0.7
    moved = itemsize * b * h * (queries + 2 * keys) * width * (1 if part == "forward" else 2)
    base = max(operations / peak, moved / (rates.bandwidth * 0.6)) + _BEGIN
    category = f"attention:{kernel}:{itemsize}:{part}:{int(causal)}"
    return Work(category, (log(b * h), log(queries), log(keys), 1.5 * log(width)), base, moved)
