"""What cuDNN's Fourier transform engines take for a float32 convolution: the workspaces that decide most of benchmark mode's trials.

Benchmark mode takes a workspace as large as the largest of all plans (`convolutions.trial`), and of float32 that is mostly the one
that works in the frequency domain. It holds complex numbers of 8 bytes: F of them for each image and channel. Rules:

1. **Forward** and **weight gradient** (engines 3 and 18) transform whole images: F = n (n / 2 + 1), n the power of two, at least 16,
   that holds the longer padded side. Each spectrum is there twice, before and after it is transposed, and the result's lies over the
   operands': 16 F max(NC + CK, NK) bytes forward, 16 F max(NC + NK, CK) for the weight. Besides: a copy of the filter, or of the
   incoming gradient.
2. **Data gradient** (engine 50) transforms tiles of 32 x 32 (F = 544), one or two at a time: 8 F (t NC + CK + t NK), t = 1 where one
   tile holds the image, else 2.
3. With a stride s of two the data gradient is s x s convolutions without one: four times the channels, each with the part of the
   filter that falls to it; besides, copies of the three tensors so arranged, channels padded to 2 (input) and 8 (output).
4. Groups: what one group takes, for eight groups at once at most, with copies of the group's tensors.
5. Channels-last: copies of input and output, and of a filter larger than 1 x 1.
6. They exist for two dimensions, without dilation; forward and weight for stride 1 and padded sides up to 256; the data gradient
   for square filters from 3 x 3, stride 1 or 2. Whether cuDNN's heuristics list them is learnt from neighbours.

Source: fitted to 13,425 plans of these engines that cuDNN 9.19 listed on an H200, checked against 40,000 listed later
(`tests/data/h200/convolution_plans.json.gz` keeps a part): right to the byte wherever the rules say that there is one,
but for one convolution (4 x 4, stride 2, no padding, odd side).
Not modelled: engine 50 at strides above 2 (AlexNet's first layer) and with filters that are not square.
"""

from __future__ import annotations

import math

from analyzer.libraries.cudnn.table import Convolution

_COMPLEX_BYTES = 8
_FLOAT_BYTES = 4
_LARGEST_SIDE = 256
_LEAST_SIDE = 16
_TILE = 32
_TILE_SPECTRUM = _TILE * (_TILE // 2 + 1)
_GROUPS_AT_ONCE = 8
_ALIGNMENT_BYTES = 16


def fourier_bytes(call: Convolution) -> int | None:
    """The workspace of the call's Fourier engine, if there is one.

    >>> fourier_bytes(Convolution("forward", "float32", False, (8, 32, 80, 80), (64, 32, 3, 3), (1, 1), (1, 1), (1, 1)))
    306855936
    """
    if call.dtype != "float32" or len(call.stride) != 2 or call.dilation != (1, 1):
        return None
    if call.operation == "data":
        return _of_data(call)
    if call.stride != (1, 1) or max(_padded(call)) > _LARGEST_SIDE:
        return None
    images, c, k = _each_group(call)
    spectrum = 2 * _COMPLEX_BYTES * _spectrum(call)
    if call.operation == "forward":
        nbytes = spectrum * max(images * c + c * k, images * k)
        nbytes += _aligned(c * k * math.prod(call.w_shape[2:]))
    else:
        nbytes = spectrum * max(images * c + images * k, c * k)
        nbytes += _aligned(images * k * math.prod(call.y_shape[2:]))
    return _all_groups(call, nbytes + _copies(call))


def _of_data(call: Convolution) -> int | None:
    """The data gradient's."""
    height, width = call.w_shape[2:]
    if height != width or height < 3 or call.stride not in ((1, 1), (2, 2)):
        return None
    images, c, k = _each_group(call)
    tile = _COMPLEX_BYTES * _TILE_SPECTRUM
    if call.stride == (1, 1):
        tiles = _tiles(call.x_shape[2:], height)
        return _all_groups(call, tile * (tiles * images * (c + k) + c * k) + _copies(call))
    c, k = _multiple(c, 2), _multiple(k, 8)
    step = call.stride[0]
    parts = step * step
    sides = [-(-side // step) for side in call.x_shape[2:]]
    filters, outputs = zip(
        *[_part(side, height, padding, step) for side, padding in zip(sides, call.padding, strict=True)],
        strict=True,
    )
    tiles = _tiles(sides, max(filters))
    nbytes = tile * (tiles * images * (parts * c + k) + parts * c * k)
    nbytes += _FLOAT_BYTES * parts * c * (images * math.prod(sides) + k * math.prod(filters))
    nbytes += _aligned(images * k * math.prod(outputs)) + _ALIGNMENT_BYTES
    return _all_groups(call, nbytes)


def _part(side: int, kernel: int, padding: int, step: int) -> tuple[int, int]:
    """Of a filter's parts along one dimension the side, and that of the gradient it goes over, padded where one-sided."""
    offsets = [
        (phase + padding - place) // step
        for phase in range(step)
        for place in range(kernel)
        if (phase + padding - place) % step == 0
    ]
    size = max(offsets) - min(offsets) + 1
    return size, side + size - 1 - 2 * max(0, -min(offsets))


def _padded(call: Convolution) -> list[int]:
    return [side + 2 * padding for side, padding in zip(call.x_shape[2:], call.padding, strict=True)]


def _spectrum(call: Convolution) -> int:
    """Complex numbers of one image's transform."""
    side = _LEAST_SIDE
    while side < max(_padded(call)):
        side *= 2
    return side * (side // 2 + 1)


def _tiles(sides: tuple[int, ...] | list[int], kernel: int) -> int:
    return 1 if max(sides) <= _TILE - kernel + 1 else 2


def _each_group(call: Convolution) -> tuple[int, int, int]:
    """Images, and channels of input and output, of one group."""
    return call.x_shape[0], call.w_shape[1], call.w_shape[0] // call.groups


def _copies(call: Convolution) -> int:
    """Copies of one group's tensors, where they do not lie as the engine wants them."""
    images, c, k = _each_group(call)
    positions = math.prod(call.x_shape[2:]), math.prod(call.y_shape[2:]), math.prod(call.w_shape[2:])
    grouped = call.groups > 1
    if not call.channels_last and (not grouped or images == 1):
        return 0  # a group's channels of one image lie next to each other
    if not grouped and positions == (1, 1, 1):
        return 0
    # A tensor of single positions lies in both layouts at once.
    sides = [(images * c, positions[0]), (images * k, positions[1])]
    nbytes = sum(_aligned(number * each) for number, each in sides if grouped or each > 1)
    if c > 1 or k > 1 or not call.channels_last:
        nbytes += _ALIGNMENT_BYTES
    if call.channels_last and positions[2] > 1:
        nbytes += _aligned(c * k * positions[2])
    return nbytes


def _all_groups(call: Convolution, nbytes: int) -> int:
    return min(call.groups, _GROUPS_AT_ONCE) * nbytes


def _aligned(elements: int) -> int:
    return _multiple(elements * _FLOAT_BYTES, _ALIGNMENT_BYTES)


def _multiple(number: int, of: int) -> int:
    return -(-number // of) * of
