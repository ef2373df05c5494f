"""Which plan cuDNN puts first where engines built on cuBLAS may come before those it lists: for recorded
plans, and for releases whose log does not say it (`backend.py`).

A description lists these engines only in a process that has a GPU, of whatever model: there in a handle's
order, which depends on the compute capability alone. So each was asked for on an H100, 300,000 to 650,000
convolutions, and trees of decisions (`trees.py`, `recorded/sm90.first.npz` and so on) were grown from the
answers (`python -m benchmarks cudnn unlisted`, `grow`), which give in what share of convolutions like this
one such a plan is first. They look at the shapes and at the first listed plan. A share within `SURE` of 0 or
1 decides; in between the plan is placed by the larger share, and which of the two is first is unknown. There
is a group for each kind of plan, operation, type and layout with such an engine: "product.data.half.nchw".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from analyzer.libraries.cudnn.convolution import Convolution, Plan
from analyzer.libraries.cudnn.on_cublas import (
    ENGINES,
    PRODUCT,
    TILES,
    TRANSFORMS,
    WINOGRAD,
    is_on_cublas,
    is_single_product,
    plans_on_cublas,
)
from analyzer.libraries.cudnn.trees import SURE, forest

_MOST_GROUPS = 8  # with more a handle rarely lists transforms (`transforms.py`)
_TILE = 128  # of a result's, which one block computes
UNKNOWN_ENGINE = -1
SPLIT = "split"  # the kind of trees that say whether a single product adds up parts


class FirstPlans:
    """The decisions of one compute capability, from a table; without one products are taken to be first, and
    no other engine to exist.

    name: the table's, such as "sm90".
    """

    def __init__(self, name: str = "") -> None:
        self._forest = forest(f"{name}.first")

    def possible(self, call: Convolution) -> dict[str, Plan]:
        """Return the plans on cuBLAS a convolution has on this GPU, by kind, listed or not."""
        return {kind: plan for kind, plan in plans_on_cublas(call).items() if self._has(kind, call)}

    def with_unlisted(self, call: Convolution, plans: Sequence[Plan]) -> tuple[Plan, ...]:
        """Return the list a handle gives, from one without the engines on cuBLAS: each goes before or after
        the first plan, with its share of being first."""
        if not plans:
            return ()
        ours = []
        for kind, plan in self.possible(call).items():
            values = features(call, plans[0], plan)
            share = self._forest.share(group(kind, call), values)
            if share >= SURE:
                splits = kind == PRODUCT and is_single_product(call) and self._splits(call, values)
                ours.append(plan._replace(share_first=share, split=splits))
        ours.sort(key=lambda plan: -(plan.share_first or 0))
        before = [plan for plan in ours if (plan.share_first or 0) >= 0.5]
        return (*before, plans[0], *ours[len(before) :], *plans[1:])

    def with_splits(self, call: Convolution, plans: Sequence[Plan]) -> tuple[Plan, ...]:
        """Return a list that includes the plans on cuBLAS, a single product's marked if it may add parts."""
        product = ENGINES[call.operation][PRODUCT]
        listed = next((plan for plan in plans if not is_on_cublas(call.operation, plan)), None)
        single = is_single_product(call)
        return tuple(
            plan._replace(split=listed is None or self._splits(call, features(call, listed, plan)))
            if plan.engine == product and single
            else plan
            for plan in plans
        )

    def _splits(self, call: Convolution, values: Sequence[float]) -> bool:
        """Return whether a single product's sum may be added up in parts."""
        name = group(SPLIT, call)
        return name not in self._forest.groups or self._forest.share(name, values) >= SURE

    def _has(self, kind: str, call: Convolution) -> bool:
        """Return whether a handle lists such a plan of convolutions like this one, as far as is known."""
        if call.groups > 1 and (kind == WINOGRAD or call.groups > _MOST_GROUPS):
            return False
        half = call.dtype != "float32"
        if half and (kind in (TRANSFORMS, TILES) or (call.channels_last and kind == WINOGRAD)):
            return False
        known = self._forest.groups
        return group(kind, call) in known if known else kind == PRODUCT


def group(kind: str, call: Convolution) -> str:
    """Return which decision trees apply; float16 and bfloat16 share theirs."""
    dtype = call.dtype if call.dtype == "float32" else "half"
    return f"{kind}.{call.operation}.{dtype}.{'nhwc' if call.channels_last else 'nchw'}"


def features(call: Convolution, listed: Plan, plan: Plan) -> list[float]:
    """Return what the trees look at, by number: shapes, the first listed plan, the one on cuBLAS."""
    batch, inputs = call.x_shape[:2]
    outputs, filter_elements = call.w_shape[0], math.prod(call.w_shape[2:])
    positions, results = math.prod(call.x_shape[2:]), math.prod(call.y_shape[2:])
    rows = batch * positions
    weights = outputs * inputs
    elements = rows * inputs + batch * results * outputs + weights * filter_elements
    tiles = -(-outputs // _TILE)
    sides = [side for sizes in (call.x_shape, call.w_shape, call.padding) for side in (sizes[-1], sizes[-2])]
    ratios = [rows / weights, inputs / outputs, batch * results * weights * filter_elements]
    first = [listed.workspace_bytes, listed.workspace_bytes / (4 * elements), listed.engine]
    rests = [positions % 8, inputs % 8, outputs % 8, inputs % 32, outputs % 32, rows % 8]
    blocks = [tiles * -(-positions // _TILE) * batch, tiles * -(-rows // _TILE)]
    shape = [batch, inputs, outputs, positions, results, *sides, len(call.x_shape), rows, weights]
    return [*shape, *ratios, *first, *rests, *blocks, elements, plan.workspace_bytes]
