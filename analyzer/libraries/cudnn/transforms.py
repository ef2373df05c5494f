"""Workspaces of cuDNN's engines that multiply Fourier transforms (forward 3, gradient of the input 50, of the
weights 18), which no description lists where there is no GPU (`on_cublas.py`).

1. They compute with cuBLAS, ask for a device even where a description stands for it, and so are missing in
   its list. Benchmark mode tries all plans of a handle's list, and theirs are the largest by far: 8.7 GB
   where the next takes 16 MB.
2. They exist for float32 convolutions of two dimensions with strides of one. **Forward and for the weights**
   padded planes of up to 256 elements a side are transformed to squares of a power of two, n * (n / 2 + 1)
   complex numbers: transforms of what is read lie beside each other, those of the result in their place, and
   all of it twice. **For the input** tiles of 32 by 32 are transformed, of each image two at once where it
   has more than one.
3. Besides, the weights are laid out anew (the output's gradient for the gradient of the weights; nothing for
   that of the input), and all tensors of more than one place where they lie in NHWC; input and output where
   there are groups and several samples.
4. With more than 8 groups a handle listed none (1,444 convolutions of the H200's tables, 336 with 2 to 8 of
   which it listed 314).
5. Else, whether a handle lists them is not known: of 1,048 forward convolutions it does for 742, of
   1,715 gradients of weights for 1,173, of 872 of inputs for 752.

Source: the lists of 60,441 random convolutions by a handle on an H100 (cuDNN 9.19, torch 2.11, 26 November
2026; convolutions as `python -m benchmarks cudnn both_ways` draws them): of 742 forward plans 720 take what
is computed here to 128 bytes, of 1,173 for the weights 1,149, of 760 for the input 732; the others less,
where a layout needs no copy. Every fifth is in `tests/data/h100/transforms.json.gz`. All 353 on an H200 of
networks people use take it to the byte (`tests/data/h200/convolution_plans.json.gz`).

Not modelled: the gradient of the input with larger strides, which takes more; engines in half precision,
listed for 1 in 60 calls.
"""

from __future__ import annotations

import math

from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES, Convolution

_LEAST, _MOST = 16, 256
_TILE, _TILES_AT_ONCE = 32, 2
_MOST_GROUPS = 8
_COMPLEX_BYTES = 8
_ALIGNMENT = 16


def transforms_bytes(call: Convolution) -> int | None:
    """Return the engine's workspace bytes for this call; None if the engine does not run it."""
    spatial, kernel = call.x_shape[2:], call.w_shape[2:]
    if call.dtype != "float32" or len(spatial) != 2 or max(call.stride) > 1 or call.groups > _MOST_GROUPS:
        return None
    if any(step > 1 and size > 1 for step, size in zip(call.dilation, kernel, strict=True)):
        return None
    if call.operation != "weight" and any(
        pad >= size for pad, size in zip(call.padding, kernel, strict=True)
    ):
        return None
    (n, c), (k, c_group) = call.x_shape[:2], call.w_shape[:2]
    x, w, y = (
        ELEMENT_BYTES[call.dtype] * math.prod(shape) for shape in (call.x_shape, call.w_shape, call.y_shape)
    )
    if call.operation == "data":
        if min(kernel) == 1 or max(kernel) > _TILE:
            return None
        tiles = math.prod(
            -(-size // (_TILE - filter_size + 1)) for size, filter_size in zip(spatial, kernel, strict=True)
        )
        transformed = _plane(_TILE) * (k * c_group + min(tiles, _TILES_AT_ONCE) * n * (c + k))
        laid = 0
    else:
        padded = max(size + 2 * pad for size, pad in zip(spatial, call.padding, strict=True))
        if padded > _MOST:
            return None
        images, filters, results = n * c, k * c_group, n * k
        read, made, laid = images + filters, results, w
        if call.operation == "weight":
            read, made, laid = images + results, filters, y
        transformed = 2 * _plane(max(_LEAST, 1 << (padded - 1).bit_length())) * max(read, made)
    copies = 0
    if call.channels_last:
        shapes = ((x, call.x_shape), (w, call.w_shape), (y, call.y_shape))
        anew = sum(nbytes for nbytes, shape in shapes if math.prod(shape[2:]) > 1)
        copies = anew and anew + _ALIGNMENT
    elif call.groups > 1 and n > 1:
        copies = x + y
    return transformed + laid + copies


def _plane(side: int) -> int:
    """Bytes of the transform of a square of real numbers."""
    return _COMPLEX_BYTES * side * (side // 2 + 1)
