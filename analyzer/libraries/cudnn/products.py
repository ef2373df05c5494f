"""Convolutions that are one matrix product an image, for which cuDNN has engines built on cuBLAS.

1. These engines (forward 58, data 63, weight 62) stand in the list only where a device is present: a handle
   lists them, and so does a description of any GPU in a process with a GPU (H200, 2,277 convolutions asked
   both ways, 26 November 2026). Without one their place in the list is not answered.
2. Results and gradients of the input take nothing. A weight's gradient takes one float32 result an image
   where channels come first; where they come last, one for each part of the sum over all positions. How many
   parts there are cuBLAS decides: they have some 1,300 positions and more, and all blocks of a GPU's
   multiprocessors run at once (H200, recorded and asked). That is no more than an estimate.
3. Whether the engine is first is decided from what the list says besides (`product_order.json`): grown from
   recorded answers of an H200 by `python -m benchmarks cudnn product`, with in each leaf the share of the
   calls in which it was first. Where that is not clear the workspace is one of the two.

Source: cuDNN 9.19; `analyzer/libraries/cudnn/recorded/h200.npz`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from analyzer.libraries.cudnn.convolution import Convolution, Plan

# The engine of `product_plan`: of none that is listed.
PRODUCT = -1
# Of a sum in parts: output tiles of 128 x 128, channels rounded up to 32, blocks at once, positions a part.
_TILE, _CHANNELS, _BLOCKS, _PART_POSITIONS = 128, 32, 132, 1344
ORDER = "product_order.json"


def product_plan(call: Convolution) -> Plan | None:
    """The plan of a convolution that is one matrix product an image, which the list lacks; None for any
    other."""
    product = (
        call.groups == 1 and set(call.w_shape[2:]) == set(call.stride) == {1} and set(call.padding) == {0}
    )
    if not product:
        return None
    outputs, inputs, batch = *call.w_shape[:2], call.x_shape[0]
    nbytes = 0
    if call.operation == "weight" and not call.channels_last:
        nbytes = 4 * batch * outputs * inputs
    elif call.operation == "weight":
        tiles = -(-outputs // _TILE) * -(-inputs // _TILE)
        parts = min(_BLOCKS // tiles, batch * math.prod(call.x_shape[2:]) // _PART_POSITIONS)
        nbytes = 4 * outputs * -(-inputs // _CHANNELS) * _CHANNELS * parts if parts > 1 else 0
    return Plan(PRODUCT, nbytes, tensor_core=True)


def with_product(call: Convolution, plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """The plans that are listed and, where there is one, the product's: before them, or behind the first."""
    product = product_plan(call)
    if product is None or not plans:
        return tuple(plans)
    first = 0 if share_first(call, plans[0], product) >= 0.5 else 1
    return (*plans[:first], product, *plans[first:])


def share_first(call: Convolution, listed: Plan, product: Plan) -> float:
    """In what share of recorded calls like this one the product was first; of types and layouts that were
    not recorded, all."""
    node: Any = _order().get(f"{call.operation} {call.dtype} {'NHWC' if call.channels_last else 'NCHW'}", 1.0)
    if isinstance(node, list):
        values = features(call, listed, product)
        while isinstance(node, list):
            name, limit, below, above = node
            node = below if values[name] <= limit else above
    return float(node)


def features(call: Convolution, listed: Plan, product: Plan) -> dict[str, float]:
    """What the decision looks at: sizes as logarithms to base 2."""
    batch, positions = call.x_shape[0], math.prod(call.x_shape[2:])
    outputs, inputs = call.w_shape[:2]
    return {
        "batch": math.log2(batch),
        "inputs": math.log2(inputs),
        "outputs": math.log2(outputs),
        "positions": math.log2(positions),
        "rows": math.log2(batch * positions),
        "weights": math.log2(inputs * outputs),
        "rows a weight": math.log2(batch * positions / (inputs * outputs)),
        "listed": math.log2(listed.workspace_bytes + 1),
        "listed a product": math.log2((listed.workspace_bytes + 1) / (product.workspace_bytes + 1)),
        "engine": listed.engine,
        "odd positions": positions % 8,
    }


@lru_cache(1)
def _order() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((files("analyzer.libraries.cudnn") / ORDER).read_text("utf-8"))
    return found
