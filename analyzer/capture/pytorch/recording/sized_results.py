"""Results of operators whose size depends on data, as tensors without memory (`values/sizes.py` counts
them)."""

from __future__ import annotations

from typing import Any

import torch

from analyzer.values.calls import DispatchedCall
from analyzer.values.sizes import is_mask

_META = torch.device("meta")


def sized_result(call: DispatchedCall, count: int) -> Any:
    """Return the operator's result for `count` selected elements, as meta tensors."""

    def sized(*shape: int, dtype: torch.dtype = torch.long) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=_META)

    match call.name:
        case "aten::nonzero":
            # The kernel fills one row a dimension: the result is the transpose of that.
            return sized(call.argument("self").dim(), count).t()
        case "aten::masked_select":
            return sized(count, dtype=call.argument("self").dtype)
        case "aten::index":
            indices: list[Any] = []
            for index in call.argument("indices"):
                if is_mask(index):
                    indices += [sized(count) for _ in range(index.dim())]
                else:
                    indices.append(index)
            return call.func(call.argument("self"), indices)
        case "aten::bincount":
            weights = call.argument("weights")
            double = weights is not None and weights.dtype is not torch.float32
            kind = torch.long if weights is None else torch.float64 if double else torch.float32
            return sized(count, dtype=kind)
        case "torchvision::nms" | "aten::repeat_interleave":
            return sized(count)
    # The kinds of `unique`: values, where each came from, how often each comes.
    source, values, places = call.argument("self"), [count], tuple(call.argument("self").shape)
    dim = call.argument("dim") if "aten::_unique" not in call.name else None
    if dim is not None:
        values, places = list(source.shape), (source.size(dim),)
        values[dim] = count
    parts = [
        sized(*values, dtype=source.dtype),
        sized(*places) if call.argument("return_inverse") else sized(0),
    ]
    if call.name != "aten::_unique":
        parts.append(sized(count) if call.argument("return_counts") else sized(0))
    return tuple(parts)
