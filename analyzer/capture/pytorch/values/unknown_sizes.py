"""Results whose size depends on data only a real run has: as large as they can be, and said so.

1. `nonzero`, boolean masks, `masked_select` and `unique` give at most one result for every element they look
   at, fewer where a mask is made of numbers that are drawn (`known_values.py`); what is kept of boxes
   (`torchvision::nms`), at most every box.
2. `bincount` gives `minlength` counts: the values are taken to be below it, as a program that names it wants
   them. Without it, at most one for every element is assumed.
3. Whoever follows the program may say how many there are (`assume`), and the notes name the line in any case.

A size that nothing bounds (`repeat_interleave` by a tensor, without `output_size`) is an error that asks for
`--assume`.

Source: the operators' documentation; `aten/src/ATen/native/cuda` (`Nonzero.cu`, `Unique.cu`,
`SummaryOps.cu`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from analyzer.capture.pytorch.recording.calls import DispatchedCall

aten = torch.ops.aten
_META = torch.device("meta")
# Operators whose result's size depends on data, though PyTorch does not tag them so.
UNTAGGED = ("torchvision::nms.default", "aten::repeat_interleave.Tensor", "aten::_unique.default")


def is_mask(index: torch.Tensor | None) -> bool:
    """Whether an index selects by its values, and is none of positions."""
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def mask_of(call: DispatchedCall) -> torch.Tensor | None:
    """The mask whose elements decide how many results there are."""
    match call.name:
        case "aten::nonzero":
            return call.argument("self")  # type: ignore[no-any-return]
        case "aten::masked_select":
            return call.argument("mask")  # type: ignore[no-any-return]
        case "aten::index":
            return next((index for index in call.argument("indices") if is_mask(index)), None)
        case _:
            return None


def most(call: DispatchedCall, at_most: Callable[[torch.Tensor], int | None] = lambda _: None) -> int | None:
    """How many results there are at most; None where the arguments' shapes do not tell. at_most: how many
    elements of a tensor are not zero at most, where more than its size is known of it."""
    match call.name:
        case "aten::unique_dim" | "aten::unique_dim_consecutive" | "aten::unique_consecutive" if (
            dim := call.argument("dim")
        ) is not None:
            return int(call.argument("self").size(dim))
        case "aten::unique_consecutive" | "aten::_unique2" | "aten::_unique":
            return int(call.argument("self").numel())
        case "aten::nonzero":
            known = at_most(call.argument("self"))
            return int(call.argument("self").numel()) if known is None else known
        case "aten::masked_select":
            source, mask = call.argument("self"), call.argument("mask")
            known = at_most(mask) if source.shape == mask.shape else None
            return math.prod(torch.broadcast_shapes(source.shape, mask.shape)) if known is None else known
        case "aten::index":
            masks = [i for i in call.argument("indices") if is_mask(i)]
            known = at_most(masks[0]) if masks else None
            return (int(masks[0].numel()) if known is None else known) if masks else None
        case "aten::bincount":
            return int(call.argument("minlength") or call.argument("self").numel())
        case "torchvision::nms":
            return int(call.argument("dets").size(0))
        case _:
            return None


def unbounded(call: DispatchedCall) -> bool:
    """Whether nothing but data tells the size, and PyTorch has no meta kernel that would say so."""
    return call.func is aten.repeat_interleave.Tensor and call.argument("output_size") is None


def result(call: DispatchedCall, count: int) -> Any:
    """What the operator returns when there are `count` results, as meta tensors."""

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
