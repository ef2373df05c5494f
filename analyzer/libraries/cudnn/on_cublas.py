"""cuDNN's engines built on cuBLAS, which no description lists where there is no GPU, and what they take.

1. **Products** (forward 58, data 63, weight 62): convolutions that are matrix products. Where channels come
   first and there are several images of several positions it is one product an image: results and gradients
   of the input take nothing, a weight's gradient one float32 result an image. All else is a single product,
   and cuBLAS may add up its sum in parts, each of which takes a float32 result: how many it decides itself.
   For weights they have some 1,300 positions and more, and all blocks of a GPU's multiprocessors run at once;
   that is no more than an estimate.
2. **Winograd's transforms** (forward 6, data 7, weight 17): filters of 3 x 3, outputs of 4 x 4 at once, 6 x 6
   numbers, and of 5 x 5, outputs of 9 x 9, 13 x 13 numbers; strides of one. They take a float32 transform of
   each tile of what is read and of the result, and of each filter; the batch is rounded up to 16, but for
   weights of 3 x 3. Where channels come last tensors are laid out anew besides. Up to 8 groups are computed
   at once, each with its own.
3. **Fourier transforms** (forward 3 and 4, data 5 and 50, weight 18): `transforms.py`.

Source: cuDNN 9.19 asked in a process that has an H100, for six descriptions, 26 November 2026
(`python -m benchmarks cudnn unlisted`). Where one of these is first the bytes are as computed here to 400
bytes in all of 142,891 products an image, to 8 bytes in 30,999 of 31,009 of Winograd's in NCHW and 1,058 of
1,073 of float32 in NHWC, and to 128 bytes in 18,456 of 18,459 of `transforms.py`'s. Of 45,728 convolutions in
2 to 16 groups, asked of an H100's handle on 27 November 2026 (`unlisted handle --kind grouped`), such an
engine is first in 1,614: each takes what is computed here to the byte, half precision and NHWC among them
(every one is in `tests/data/h100/grouped_plans.json.gz`).
"""

from __future__ import annotations

import math

from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES, Convolution, Plan, up
from analyzer.libraries.cudnn.transforms import aligned, behind, groups_at_once, tiles_bytes, transforms_bytes

PRODUCT, WINOGRAD, TRANSFORMS, TILES = "product", "winograd", "transforms", "tiles"
ENGINES = {
    "forward": {PRODUCT: 58, WINOGRAD: 6, TRANSFORMS: 3, TILES: 4},
    "data": {PRODUCT: 63, WINOGRAD: 7, TRANSFORMS: 50, TILES: 5},
    "weight": {PRODUCT: 62, WINOGRAD: 17, TRANSFORMS: 18},
}
# Of a sum in parts: output tiles of 128 x 128, channels rounded up to 32, blocks at once, positions a part.
_TILE, _CHANNELS, _BLOCKS, _PART_POSITIONS = 128, 32, 132, 1344
# Of Winograd's transforms: the filter's size -> that of a tile of transformed numbers.
_WINOGRAD_TILES: dict[tuple[int, ...], int] = {(3, 3): 6, (5, 5): 13}
_BATCH = 16
_FLOAT_BYTES = 4


def is_on_cublas(operation: str, plan: Plan) -> bool:
    """Return whether the plan is one of these engines'."""
    return plan.engine in ENGINES[operation].values()


def plans_on_cublas(call: Convolution) -> dict[str, Plan]:
    """Return the plans of these engines that a convolution has, by kind."""
    bytes_by_kind = {
        PRODUCT: product_bytes(call),
        WINOGRAD: winograd_bytes(call),
        TRANSFORMS: transforms_bytes(call),
        TILES: tiles_bytes(call),
    }
    return {
        kind: Plan(ENGINES[call.operation][kind], nbytes, tensor_core=kind == PRODUCT)
        for kind, nbytes in bytes_by_kind.items()
        if nbytes is not None
    }


def product_bytes(call: Convolution) -> int | None:
    """Return the workspace bytes of a convolution that is a matrix product; None for others."""
    product = (
        call.groups == 1 and set(call.w_shape[2:]) == set(call.stride) == {1} and set(call.padding) == {0}
    )
    if not product:
        return None
    if call.operation != "weight":
        return 0
    outputs, inputs, batch = *call.w_shape[:2], call.x_shape[0]
    if call.channels_last:
        tiles = -(-outputs // _TILE) * -(-inputs // _TILE)
        parts = min(_BLOCKS // tiles, batch * math.prod(call.x_shape[2:]) // _PART_POSITIONS)
        return _FLOAT_BYTES * outputs * up(inputs, _CHANNELS) * parts if parts > 1 else 0
    return _FLOAT_BYTES * batch * outputs * inputs


def is_single_product(call: Convolution) -> bool:
    """Return whether one product covers all images, whose sum cuBLAS may split."""
    if call.channels_last:
        return True
    return call.x_shape[0] == 1 or (call.operation != "weight" and math.prod(call.x_shape[2:]) == 1)


def winograd_bytes(call: Convolution) -> int | None:
    """Return the workspace bytes of Winograd's transforms; None where they do not apply."""
    side = _WINOGRAD_TILES.get(call.w_shape[2:])
    if side is None or {*call.stride, *call.dilation} != {1}:
        return None
    if call.channels_last and call.dtype != "float32" and call.operation != "weight":
        return None  # a handle lists none, though the log names the engine
    outputs, inputs, filter_side = call.w_shape[0] // call.groups, *call.w_shape[1:3]
    exact = call.operation == "weight" and filter_side == 3
    batch = call.x_shape[0] if exact else up(call.x_shape[0], _BATCH)
    made = call.x_shape if call.operation == "data" else call.y_shape
    tiles = batch * math.prod(-(-size // (side - filter_side + 1)) for size in made[2:])
    tile_bytes = _FLOAT_BYTES * side * side
    nbytes = sum(aligned(tile_bytes * count) for count in (inputs * tiles, outputs * tiles, inputs * outputs))
    if call.channels_last:
        shapes = (call.x_shape, call.w_shape, call.y_shape)
        nbytes += behind(ELEMENT_BYTES[call.dtype] * sum(map(math.prod, shapes)) // call.groups)
    return nbytes * groups_at_once(call)
