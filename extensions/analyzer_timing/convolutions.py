"""Convolutions and their two gradients.

1. Each is a matrix product (implicit GEMM): forward, positions of the output by channels, over channels and
   taps; the input's gradient, positions of the input by its channels; the weight's, taps and channels by
   channels over all positions. `base` is that product's (`products.py`), or what moving the tensors takes.
2. A depthwise one computes a few taps for each element: what is moved counts, and the ordinary cores'
   operations.
3. cuDNN's engines differ by type, memory format and kind (1x1, patches whose stride is their size, dilated,
   grouped, depthwise, transposed, three dimensions): each is a category. Planar tensors are transposed on
   the way, which the measured factor holds.
4. Kernels compute channels in pieces of 8 to 64, the last one whole: counts that 64 divides are faster than
   those beside them by 5 to 20 % (`operators.json.gz`), so what divides a count is part of its place.

Not modelled: which engine cuDNN takes; deterministic algorithms and `cudnn.benchmark`.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer_timing.products import ITEMSIZE, seconds
from analyzer_timing.rates import Rates
from analyzer_timing.work import Work, log

_BEGIN = 3e-6
_REACHED = 0.66  # of the memory's bandwidth
# Channels' divisors, and how far in the table's places a count is that has no greater one.
_STEPS, _FARTHEST = ((64, 0.0), (32, 0.6), (16, 1.05), (8, 1.5)), 2.7
_TAPS = 0.12  # of the ordinary cores' peak, by a depthwise kernel


@dataclass(frozen=True, slots=True)
class Convolution:
    """part: "forward", "input" or "weight" (gradients). inside, outside: positions of the input's and the
    output's plane; taps: of the kernel; dimensions: 1 to 3; stride, dilation: of the first. channels_last:
    the tensors' memory format."""

    part: str
    dtype: str
    channels_last: bool
    dimensions: int
    n: int
    c: int
    k: int
    inside: int
    outside: int
    taps: int
    stride: int
    dilation: int
    groups: int
    transposed: bool


def kind(conv: Convolution) -> str:
    """Return the kind of a convolution, which is part of its category."""
    if conv.groups > 1:
        return "depthwise" if conv.groups == conv.c else "grouped"
    if conv.transposed:
        return "transposed"
    if conv.dimensions != 2:
        return f"{conv.dimensions}d"
    if conv.taps == 1:
        return "1x1"
    if conv.stride**conv.dimensions == conv.taps:
        return "patch"
    return "dilated" if conv.dilation > 1 else "plain"


def _uneven(channels: int) -> float:
    """Return how far a count of channels is from what kernels divide it into."""
    return next((far for step, far in _STEPS if channels % step == 0), _FARTHEST)


def convolution(conv: Convolution, rates: Rates) -> Work:
    """Return the convolution's category and place in the table."""
    c, k = conv.c // conv.groups, conv.k // conv.groups
    at = conv.n * (min(conv.inside, conv.outside) if conv.transposed else conv.outside)
    if conv.part == "weight":
        m, n, length = c * conv.taps, k, at
    elif (conv.part == "forward") != conv.transposed:
        m, n, length = at, k, c * conv.taps
    else:
        m, n, length = (
            conv.n * max(conv.inside, conv.outside),
            c,
            max(k * conv.taps // max(conv.stride**conv.dimensions, 1), 1),
        )
    itemsize = ITEMSIZE[conv.dtype]
    moved = itemsize * (conv.n * (conv.c * conv.inside + conv.k * conv.outside) + c * conv.k * conv.taps)
    which = kind(conv)
    if which == "depthwise":
        operations = (
            2 * conv.n * conv.k * max(conv.outside, conv.inside if conv.transposed else 0) * conv.taps
        )
        base = max(operations / (rates.vector * _TAPS), moved / (rates.bandwidth * _REACHED)) + _BEGIN
    else:
        base = max(
            seconds(m, n, length, conv.groups, conv.dtype, rates), moved / (rates.bandwidth * _REACHED) + 2e-6
        )
    form = "last" if conv.channels_last else "first"
    sizes = (log(conv.n * conv.outside), log(c), log(k))
    window = (0.75 * log(conv.taps), 0.5 * log(conv.outside), 2.0 * log(conv.stride))
    place = (*sizes, *window, 0.7 * log(conv.groups), log(conv.dilation), _uneven(c), _uneven(k))
    dtype = "half" if itemsize == 2 else conv.dtype
    return Work(f"conv:{dtype}:{form}:{conv.part}:{which}", place, base, moved)
