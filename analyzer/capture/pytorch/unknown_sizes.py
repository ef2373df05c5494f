"""Results whose size depends on data only a real run has: as large as they can be, and said so.

1. `nonzero`, boolean masks, `masked_select` and `unique` give at most one result for every element they look at, fewer where a mask
   is made of numbers that are drawn (`known_values.py`); what is kept of boxes (`torchvision::nms`), at most every box.
2. `bincount` gives `minlength` counts: the values are taken to be below it, as a program that names it wants them. Without
   it, at most one for every element is assumed.
3. Whoever follows the program may say how many there are (`assume`), and the notes name the line in any case.

A size that nothing bounds (`repeat_interleave` by a tensor, without `output_size`) is an error that asks for `--assume`.

Source: the operators' documentation; `aten/src/ATen/native/cuda` (`Nonzero.cu`, `Unique.cu`, `SummaryOps.cu`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
_META = torch.device("meta")
# Operators whose result's size depends on data, though PyTorch does not tag them so.
UNTAGGED = ("torchvision::nms.default", "aten::repeat_interleave.Tensor")


def is_mask(index: torch.Tensor | None) -> bool:
    """Whether an index selects by its values, and is none of positions."""
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def most(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    at_most: Callable[[torch.Tensor], int | None] = lambda _: None,
) -> int | None:
    """How many results there are at most; None where the arguments' shapes do not tell. at_most: how many elements of a tensor are
    not zero at most, where more than its size is known of it."""
    name = func._schema.name
    first: Any = args[0] if args else kwargs.get("self")
    match name:
        case "aten::unique_consecutive" | "aten::_unique2" | "aten::_unique":
            return int(first.numel())
        case "aten::nonzero":
            known = at_most(first)
            return int(first.numel()) if known is None else known
        case "aten::masked_select":
            known = at_most(args[1]) if first.shape == args[1].shape else None
            return math.prod(torch.broadcast_shapes(first.shape, args[1].shape)) if known is None else known
        case "aten::index":
            masks = [i for i in args[1] if is_mask(i)]
            known = at_most(masks[0]) if masks else None
            return (int(masks[0].numel()) if known is None else known) if masks else None
        case "aten::bincount":
            least = kwargs.get("minlength", args[2] if len(args) > 2 else 0)
            return int(least or first.numel())
        case "aten::unique_dim":
            return int(first.size(args[1]))
        case "torchvision::nms":
            return int(first.size(0))
        case _:
            return None


def unbounded(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether nothing but data tells the size, and PyTorch has no meta kernel that would say so."""
    told = kwargs.get("output_size", args[1] if len(args) > 1 else None)
    return func is aten.repeat_interleave.Tensor and told is None


def result(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> Any:
    """What the operator returns when there are `count` results, as meta tensors."""

    def made(*shape: int, dtype: torch.dtype = torch.long) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=_META)

    name = func._schema.name
    first = args[0]
    match name:
        case "aten::nonzero":
            # The kernel fills one row a dimension: the result is the transpose of that.
            return made(first.dim(), count).t()
        case "aten::masked_select":
            return made(count, dtype=first.dtype)
        case "aten::index":
            indices: list[Any] = []
            for index in args[1]:
                if is_mask(index):
                    indices += [made(count) for _ in range(index.dim())]
                else:
                    indices.append(index)
            return func(first, indices)
        case "aten::bincount":
            weights = kwargs.get("weights", args[1] if len(args) > 1 else None)
            double = weights is not None and weights.dtype is not torch.float32
            kind = torch.long if weights is None else torch.float64 if double else torch.float32
            return made(count, dtype=kind)
        case "torchvision::nms" | "aten::repeat_interleave":
            return made(count)
    # The three of `unique`: values, where each came from, how often each comes.
    said = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    values = (
        torch.empty(
            [count if d == args[1] % first.dim() else n for d, n in enumerate(first.shape)],
            dtype=first.dtype,
            device=_META,
        )
        if name == "aten::unique_dim"
        else made(count, dtype=first.dtype)
    )
    shape = (first.size(args[1]),) if name == "aten::unique_dim" else tuple(first.shape)
    parts = [values, made(*shape) if said.get("return_inverse") else made(0)]
    if name != "aten::_unique":
        parts.append(made(count) if said.get("return_counts") else made(0))
    return tuple(parts)
