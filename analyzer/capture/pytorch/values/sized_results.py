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

    def made(*shape: int, dtype: torch.dtype = torch.long) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=_META)

    match call.name:
        case "aten::nonzero":
            # The kernel fills one row a dimension: the result is the transpose of that.
            return made(call.argument("self").dim(), count).t()
        case "aten::masked_select":
            return made(count, dtype=call.argument("self").dtype)
        case "aten::index":
            indices: list[Any] = []
            for index in call.argument("indices"):
                if is_mask(index):
                    indices += [made(count) for _ in range(index.dim())]
                else:
                    indices.append(index)
            return call.func(call.argument("self"), indices)
        case "aten::bincount":
            weights = call.argument("weights")
            double = weights is not None and weights.dtype is not torch.float32
            kind = torch.long if weights is None else torch.float64 if double else torch.float32
            return made(count, dtype=kind)
        case "torchvision::nms" | "aten::repeat_interleave":
            return made(count)
    # The kinds of `unique`: values, where each came from, how often each comes.
    source, values, places = call.argument("self"), [count], tuple(call.argument("self").shape)
    dim = call.argument("dim") if "aten::_unique" not in call.name else None
    if dim is not None:
        values, places = list(source.shape), (source.size(dim),)
        values[dim] = count
    parts = [made(*values, dtype=source.dtype), made(*places) if call.argument("return_inverse") else made(0)]
    if call.name != "aten::_unique":
        parts.append(made(count) if call.argument("return_counts") else made(0))
    return tuple(parts)
