"""Engines built on cuBLAS that come first for some convolutions: those that are one matrix product an image,
and weight gradients of 3 x 3 filters by Winograd's algorithm.

1. These engines (products: forward 58, data 63, weight 62; Winograd: weight 17) stand in the list only where
   a device is present: a handle lists them, and so does a description of any GPU in a process with a GPU
   (H200, 2,277 convolutions asked both ways, 26 November 2026). Without one their place is not answered.
2. Products: results and gradients of the input take nothing. A weight's gradient takes one float32 result an
   image where channels come first; where they come last, one for each part of the sum over all positions. How
   many parts there are cuBLAS decides: they have some 1,300 positions and more, and all blocks of a GPU's
   multiprocessors run at once (H200, recorded and asked). That is no more than an estimate.
3. Winograd's engine takes what its transforms take, of outputs 4 x 4: 36 float32 numbers for each tile of
   input and gradient and for each filter (to the byte in 48 of 48 calls asked of the H200). It is there for
   float32, strides of one and channels that come first.
4. Whether the engine is first is decided from what the list says besides (`product_order.json`): grown from
   recorded answers of an H200 by `python -m benchmarks cudnn product`, with in each leaf the share of the
   calls in which it was first. Where that is not clear the workspace is one of the two.

Source: cuDNN 9.19; `analyzer/libraries/cudnn/recorded/h200.npz`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from analyzer.libraries.cudnn.convolution import Convolution, Plan

# The engine of `product_plan`: of none that is listed.
PRODUCT = -1
WINOGRAD = 17  # of weight gradients
UNLISTED = (PRODUCT, WINOGRAD)
_RARELY = 0.02
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
    if sums_in_parts(call):
        tiles = -(-outputs // _TILE) * -(-inputs // _TILE)
        parts = min(_BLOCKS // tiles, batch * math.prod(call.x_shape[2:]) // _PART_POSITIONS)
        nbytes = 4 * outputs * -(-inputs // _CHANNELS) * _CHANNELS * parts if parts > 1 else 0
    elif call.operation == "weight":
        nbytes = 4 * batch * outputs * inputs
    return Plan(PRODUCT, nbytes, tensor_core=True)


def sums_in_parts(call: Convolution) -> bool:
    """Whether a product adds up its positions in parts, how many of which is an estimate."""
    return call.operation == "weight" and call.channels_last


def winograd_plan(call: Convolution) -> Plan | None:
    """The plan of a weight's gradient by Winograd's algorithm; None where there is none."""
    plain = (
        call.operation == "weight" and call.dtype == "float32" and not call.channels_last and call.groups == 1
        and call.w_shape[2:] == (3, 3) and set(call.stride) == set(call.dilation) == {1}
    )  # fmt: skip
    if not plain:
        return None
    outputs, inputs = call.w_shape[:2]
    tiles = call.x_shape[0] * math.prod(-(-size // 4) for size in call.y_shape[2:])
    return Plan(WINOGRAD, 144 * (inputs * tiles + outputs * tiles + inputs * outputs))


def unlisted_plan(call: Convolution) -> Plan | None:
    """The plan of an engine that is listed where a device is present alone, if it may come first."""
    return product_plan(call) or winograd_plan(call)


def with_unlisted(call: Convolution, plans: Sequence[Plan], *, recorded: bool) -> tuple[Plan, ...]:
    """The plans that are listed and, where there is one, the unlisted one: before them, or behind the first.
    Winograd's is left out where it never came first.

    recorded: for a GPU like those whose answers are recorded; on any other products are taken to be first.
    """
    plan = unlisted_plan(call)
    if plan is None or not plans:
        return tuple(plans)
    often = share_first(call, plans[0], plan) if recorded else float(plan.engine == PRODUCT)
    if plan.engine == WINOGRAD and often < _RARELY:
        return tuple(plans)
    first = 0 if often >= 0.5 else 1
    return (*plans[:first], plan, *plans[first:])


def tree_name(call: Convolution, plan: Plan) -> str:
    """Which tree decides."""
    kind = "winograd" if plan.engine == WINOGRAD else call.operation
    return f"{kind} {call.dtype} {'NHWC' if call.channels_last else 'NCHW'}"


def share_first(call: Convolution, listed: Plan, plan: Plan) -> float:
    """In what share of recorded calls like this one the unlisted plan was first; of types and layouts that
    were not recorded, all products and no other."""
    tree = _order().get(tree_name(call, plan), float(plan.engine == PRODUCT))
    return share(tree, features(call, listed, plan))


def share(tree: Any, values: Mapping[str, float]) -> float:
    """The leaf these values lead to. tree: [feature, limit, below, above], or a leaf."""
    while isinstance(tree, list):
        name, limit, below, above = tree
        tree = below if values[name] <= limit else above
    return float(tree)


def features(call: Convolution, listed: Plan, plan: Plan) -> dict[str, float]:
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
        "listed a byte of it": math.log2((listed.workspace_bytes + 1) / (plan.workspace_bytes + 1)),
        "engine": listed.engine,
        "odd positions": positions % 8,
    }


@lru_cache(1)
def _order() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((files("analyzer.libraries.cudnn") / ORDER).read_text("utf-8"))
    return found
