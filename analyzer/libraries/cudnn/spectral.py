"""cuDNN's engines that multiply whole images in frequency space: forward 3 and weight 18. A list made from a description lacks them.

1. They run for float32, without groups, strides and dilation, where an image with its padding is at most 256 wide and high: on an H200
   none of 33 larger ones had them, of 394 others 332.
2. An image, a filter and a result each become a square of complex numbers, its side the next power of two, 16 at least; two such sets are
   held, the larger of what is read and what is written. Beside them lies the result of what has a filter's or an image's size.
3. Channels that come last are put first in copies of all that is larger than one number, with 16 bytes more.

All 332 take these bytes to the byte (`tests/data/h200/convolution_plans.json.gz`); in benchmark mode the trials ask for as much.
"""

from __future__ import annotations

import math

from analyzer.libraries.cudnn.convolution import Convolution

_LARGEST, _SMALLEST = 256, 16
_COMPLEX, _REAL = 8, 4


def spectral_bytes(call: Convolution) -> int:
    """What the engine of that kind takes for a call, 0 where there is none.

    >>> call = Convolution("forward", "float32", False, (64, 128, 1, 196), (384, 128, 1, 1), (0, 0), (1, 1), (1, 1))
    >>> spectral_bytes(call)
    30299848704
    """
    if (
        call.operation == "data" or call.dtype != "float32" or call.groups > 1 or len(call.x_shape) != 4
        or {*call.stride, *call.dilation} != {1}
    ):  # fmt: skip
        return 0
    side = max(size + 2 * pad for size, pad in zip(call.x_shape[2:], call.padding, strict=True))
    side = max(_SMALLEST, 1 << (side - 1).bit_length())
    if side > _LARGEST:
        return 0
    shapes = {"x": call.x_shape, "w": call.w_shape, "y": call.y_shape}
    squares = {name: math.prod(shape[:2]) for name, shape in shapes.items()}
    sizes = {name: _REAL * math.prod(shape) for name, shape in shapes.items()}
    written, beside = ("y", "w") if call.operation == "forward" else ("w", "y")
    read = sum(squares.values()) - squares[written]
    nbytes = 2 * max(squares[written], read) * side * (side // 2 + 1) * _COMPLEX + sizes[beside]
    if call.channels_last and (
        copies := [sizes[name] for name, shape in shapes.items() if math.prod(shape[2:]) > 1]
    ):
        nbytes += sum(copies) + 16
    return nbytes
