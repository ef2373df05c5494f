"""Workspaces of cuDNN's engines that multiply Fourier transforms (forward 3 and 4, gradient of the input 5
and 50, of the weights 18), which no description lists where there is no GPU (`on_cublas.py`). Benchmark mode
tries them, and theirs are the largest by far: 8.7 GB where the next takes 16 MB.

1. They exist for float32 and float16 convolutions of two dimensions with strides of one. **Forward and for
   the weights** padded planes of up to 256 elements a side are transformed to squares of a power of two, n *
   (n / 2 + 1) complex numbers: transforms of what is read lie beside each other, those of the result in their
   place, and all of it twice. **For the input (50), and by engines 4 and 5,** tiles of 32 by 32 are
   transformed (by 4 and 5 of 1 by 32 where images and filters are one row), of each image two at once where
   it has more.
2. The gradient of the input of a float32 convolution in NCHW with **larger strides**, the same both ways, is
   computed by engine 50 as one with strides of one: every s-th row and column of the input and of the
   filter is a channel of its own, strides of two round channels up to eight, outputs are rounded up to eight;
   input, filter and output so laid out lie beside the transforms. Strides of one and two are computed as
   strides of one.
3. Besides, the weights are laid out anew in float32 (the output's gradient for the gradient of the weights;
   nothing for that of the input), and all tensors of more than one place where they lie in NHWC; input and
   output where there are groups and several samples. All of it once a group, for up to 8 groups at once.
4. With more than 8 groups a handle rarely lists them (none of 1,444 convolutions of the H200's tables; of 336
   with 2 to 8 it listed 314), though they may be first (26 in 16 groups, of 320 in groups). Else it lists
   them for 742 of 1,048 forward convolutions, 1,173 of 1,715 gradients of weights, 752 of 872 of inputs.

Source: the lists of 60,441 random convolutions by a handle on an H100 (cuDNN 9.19, 26 November 2026; drawn as
`python -m benchmarks cudnn both_ways` draws them): of 742 forward plans 720 take what is computed here to 128
bytes, of 1,173 for the weights 1,149, of 760 for the input 732; the others less, where a layout needs no copy
(every fifth: `tests/data/h100/transforms.json.gz`). To the byte: all 353 on an H200 of networks people use
(`tests/data/h200/convolution_plans.json.gz`), 320 of 320 first plans in groups and in float16
(`on_cublas.py`), all 20 of engines 4 and 5 in `first_plans.json.gz`, and with larger strides all 208 of an
H100's handle, of 260 drawn by lot; it lists none of the 52 others (27 November 2026,
`tests/data/h100/strided_transforms.json.gz`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES, Convolution, up

_LEAST, _MOST = 16, 256
_TILE, _TILES_AT_ONCE = 32, 2
_GROUPS_AT_ONCE = 8
_TYPES = ("float32", "float16")
_COMPLEX_BYTES, _FLOAT_BYTES = 8, 4
_ALIGNMENT = 16
_CHANNELS = 8  # of larger strides, rounded up to
Shape: TypeAlias = Sequence[int]


def transforms_bytes(call: Convolution) -> int | None:
    """Return the workspace bytes of engines 3, 50 and 18 for this call; None if they do not run it."""
    spatial, kernel = call.x_shape[2:], call.w_shape[2:]
    if call.operation == "data" and max(call.stride) > 1:
        return _strided_bytes(call)
    if not _applies(call):
        return None
    if call.operation == "data":
        return None if min(kernel) == 1 else tiles_bytes(call)
    padded = max(size + 2 * pad for size, pad in zip(spatial, call.padding, strict=True))
    if padded > _MOST:
        return None
    n, (c, k) = call.x_shape[0], _channels(call)
    images, filters, results = n * c, k * c, n * k
    read, made, laid = images + filters, results, call.w_shape
    if call.operation == "weight":
        read, made, laid = images + results, filters, call.y_shape
    transformed = 2 * _plane(max(_LEAST, 1 << (padded - 1).bit_length())) * max(read, made)
    anew = aligned(_FLOAT_BYTES * math.prod(laid) // call.groups)
    return groups_at_once(call) * (transformed + anew + _copies(call))


def _strided_bytes(call: Convolution) -> int | None:
    """Return the workspace bytes of engine 50 for the gradient of the input of a call with larger strides;
    None if it does not run it."""
    plain = call._replace(stride=(1,) * len(call.stride))
    if not _applies(plain) or call.dtype != "float32" or call.channels_last or call.groups > 1:
        return None
    if sorted(call.stride) == [1, 2]:
        return _tiled_bytes(call.x_shape, call.w_shape)
    if len({*call.stride}) > 1:
        return None
    (step, _), (outputs, inputs, *kernel) = call.stride, call.w_shape
    pads = [-(-pad // step) for pad in call.padding]
    # A filter that begins before a multiple of the stride has taps in one more place of each phase.
    kernel = [-(-(size + -pad % step) // step) for size, pad in zip(kernel, call.padding, strict=True)]
    if pads[0] != pads[1] or min(kernel) == 1:
        return None
    read = [
        min(size, (made - 1) * step + filter_size - pad)
        for size, made, filter_size, pad in zip(
            call.x_shape[2:], call.y_shape[2:], call.w_shape[2:], call.padding, strict=True
        )
    ]
    inputs, outputs = up(inputs * step**2, _CHANNELS if step == 2 else 1), up(outputs, _CHANNELS)
    planes = [-(-size // step) for size in read]
    made = [size + 2 * pad - taps + 1 for size, pad, taps in zip(planes, pads, kernel, strict=True)]
    x_shape, w_shape = (call.x_shape[0], inputs, *planes), (outputs, inputs, *kernel)
    y_shape = (call.x_shape[0], outputs, *made)
    laid = _FLOAT_BYTES * sum(map(math.prod, (x_shape, w_shape, y_shape)))
    return _tiled_bytes(x_shape, w_shape) + behind(laid)


def tiles_bytes(call: Convolution) -> int | None:
    """Return the workspace bytes of engines 4 and 5 for this call; None if they do not run it."""
    spatial, kernel = call.x_shape[2:], call.w_shape[2:]
    if call.operation == "weight" or not _applies(call) or max(kernel) > _TILE:
        return None
    one_row = spatial[0] == kernel[0] == 1
    if min(kernel) == 1 and not one_row:
        return None
    c, k = _channels(call)
    x_shape, w_shape = (call.x_shape[0], c, *spatial), (k, c, *kernel)
    transformed = _tiled_bytes(x_shape, w_shape, rows=1 if one_row else _TILE)
    return groups_at_once(call) * (transformed + _copies(call))


def _tiled_bytes(x_shape: Shape, w_shape: Shape, rows: int = _TILE) -> int:
    """Return the bytes of the transforms of tiles, of `rows` rows each."""
    (n, c, *spatial), (k, _, *kernel) = x_shape, w_shape
    tiles = math.prod(
        -(-size // (_TILE - filter_size + 1)) for size, filter_size in zip(spatial, kernel, strict=True)
    )
    plane = _plane(_TILE) * rows // _TILE
    return plane * (k * c + min(tiles, _TILES_AT_ONCE) * n * (c + k))


def groups_at_once(call: Convolution) -> int:
    """Return how many groups these engines and Winograd's compute at once."""
    return min(call.groups, _GROUPS_AT_ONCE)


def aligned(nbytes: int) -> int:
    """Return the bytes rounded up to where the next tensor begins."""
    return up(nbytes, _ALIGNMENT)


def behind(nbytes: int) -> int:
    """Return the next such place, a whole one further where the bytes end at one."""
    return aligned(nbytes + 1)


def _channels(call: Convolution) -> tuple[int, int]:
    """Inputs and outputs of one group."""
    return call.w_shape[1], call.w_shape[0] // call.groups


def _applies(call: Convolution) -> bool:
    """Return whether the convolution is one these engines compute."""
    kernel = call.w_shape[2:]
    if call.dtype not in _TYPES or len(kernel) != 2 or max(call.stride) > 1:
        return False
    if any(step > 1 and size > 1 for step, size in zip(call.dilation, kernel, strict=True)):
        return False
    return call.operation == "weight" or all(
        pad < size for pad, size in zip(call.padding, kernel, strict=True)
    )


def _copies(call: Convolution) -> int:
    """Return the bytes of one group's tensors that are laid out anew."""
    x, w, y = (
        ELEMENT_BYTES[call.dtype] * math.prod(shape) // call.groups
        for shape in (call.x_shape, call.w_shape, call.y_shape)
    )
    if call.channels_last:
        shapes = ((x, call.x_shape), (w, call.w_shape), (y, call.y_shape))
        anew = sum(nbytes for nbytes, shape in shapes if math.prod(shape[2:]) > 1)
        return anew and behind(anew)
    return behind(x + y) if call.groups > 1 and call.x_shape[0] > 1 else 0


def _plane(side: int) -> int:
    """Return the bytes of the transform of a square of real numbers."""
    return _COMPLEX_BYTES * side * (side // 2 + 1)
