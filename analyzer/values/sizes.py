"""Results whose size depends on data: the size by the values, where they are known, else the largest
possible one.

1. `nonzero`, boolean masks, `masked_select` and `unique` give at most one result for every element they look
   at, fewer where a mask is made of numbers that are drawn (`counts.py`); `torchvision::nms` keeps at most
   every box.
2. `bincount` gives `minlength` counts: the values are taken to be below it, as a program that names it wants
   them. Without it, at most one for every element is assumed. Integers drawn from a range have no more
   different values than it has (`origins.py`).
3. The user may set their number (`assume`), and the notes name the line in any case.

A size that nothing bounds (`repeat_interleave` by a tensor, without `output_size`) is an error that asks for
`--assume`.

Source: the operators' documentation; `aten/src/ATen/native/cuda` (`Nonzero.cu`, `Unique.cu`,
`SummaryOps.cu`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from .calls import DispatchedCall, places
from .distinct import distinct

aten = torch.ops.aten
# Operators whose result's size depends on data, though PyTorch does not tag them so.
UNTAGGED = ("torchvision::nms.default", "aten::repeat_interleave.Tensor", "aten::_unique.default")

# Their results have one entry for each value that is there, or for each up to the largest.
_UNIQUE = (aten._unique2.default, aten._unique.default, aten.unique_dim.default)
_CONSECUTIVE = (aten.unique_consecutive.default, aten.unique_dim_consecutive.default)
_COUNTING = (*_UNIQUE, *_CONSECUTIVE, aten.bincount.default)

# Positions of what is not zero are found as rows and columns, then as numbers; of blocks, in the last two
# (`dense_to_sparse_compressed`, TensorConversions.cpp).
_BLOCKING = ("aten::_to_sparse_bsr", "aten::_to_sparse_bsc")
COMPRESSING = ("aten::_to_sparse_csr", "aten::_to_sparse_csc", *_BLOCKING)
# The operand they select from.
_SELECTING = {"aten::masked_select": "self", "aten::masked_scatter_backward": "grad_output"}


def is_mask(index: torch.Tensor | None) -> bool:
    """Return whether an index selects by its values, and is none of positions."""
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def masks_of(call: DispatchedCall) -> list[torch.Tensor]:
    """Return the masks whose elements decide the number of results or of elements written."""
    match call.name:
        case "aten::nonzero":
            return [call.argument("self")]
        case name if name == "aten::_to_sparse" or name in COMPRESSING:  # `nonzero` within
            return [call.argument("self")] if call.argument("self").layout == torch.strided else []
        case name if name in _SELECTING:
            return [call.argument("mask")]
        case "aten::index" | "aten::index_put" | "aten::index_put_" | "aten::_index_put_impl_":
            return [index for index in call.argument("indices") if is_mask(index)]
        case _:
            return []


def places_of_entries(call: DispatchedCall) -> int | None:
    """Return how many places the sparse dimensions have, for a dense tensor converted to a hybrid sparse one,
    whose non-zero elements' places `unique` finds (`dense_to_sparse`, sparse/SparseTensor.cpp)."""
    shape = call.argument("self").shape
    if "sparse_dim" in places(call.func):
        sparse = call.argument("sparse_dim")
    else:
        sparse = len(shape) - (call.argument("dense_dim") or 0)
    return None if sparse == len(shape) else math.prod(shape[:sparse])


def _nothing(_: torch.Tensor) -> int | None:
    return None


def most(
    call: DispatchedCall,
    at_most: Callable[[torch.Tensor], int | None] = _nothing,
    different: Callable[[torch.Tensor], int | None] = _nothing,
    end: Callable[[torch.Tensor], int | None] = _nothing,
) -> int | None:
    """Return an upper bound of the number of results; None if shapes do not tell. Of a tensor, where known:
    at_most, a bound of its non-zero elements; different, of its different values; end, of all its values."""
    match call.name:
        case "aten::unique_dim" | "aten::unique_dim_consecutive" | "aten::unique_consecutive" if (
            dim := call.argument("dim")
        ) is not None:
            return int(call.argument("self").size(dim))
        case "aten::_unique2" | "aten::_unique" if (values := different(call.argument("self"))) is not None:
            return values
        case "aten::unique_consecutive" | "aten::_unique2" | "aten::_unique":
            return int(call.argument("self").numel())
        case "aten::masked_select" | "aten::masked_scatter_backward":
            source, mask = call.argument(_SELECTING[call.name]), call.argument("mask")
            count = at_most(mask) if source.shape == mask.shape else None
            return math.prod(torch.broadcast_shapes(source.shape, mask.shape)) if count is None else count
        case "aten::bincount":
            least = call.argument("minlength")
            if (behind := end(call.argument("self"))) is not None:
                return max(int(least or 0), behind)
            return int(least or call.argument("self").numel())
        case "torchvision::nms":
            return int(call.argument("dets").size(0))
    if not (masks := masks_of(call)):
        return None
    count = at_most(masks[0])
    if call.name in _BLOCKING:
        places: int = masks[0].numel() // math.prod(call.argument("blocksize"))
        return places if count is None else min(count, places)
    return int(masks[0].numel()) if count is None else count


def count(
    call: DispatchedCall,
    value_of: Callable[[torch.Tensor], torch.Tensor | None],
    not_zero: Callable[[torch.Tensor], int | None],
) -> int | None:
    """Return the number of results from the values that decide it; None if these are unknown. value_of: a
    tensor's value; not_zero: its number of non-zero elements."""
    if call.name in _BLOCKING:
        matrix = value_of(call.argument("self"))
        return None if matrix is None else _blocks(matrix, *call.argument("blocksize"))
    if masks := masks_of(call):
        each = [not_zero(mask) for mask in masks]
        if None in each:
            return None
        most = max(filter(None, each), default=0)
        selects = _SELECTING.get(call.name)
        if selects is not None:  # it repeats a mask that is smaller than the rest
            every = torch.broadcast_shapes(call.argument(selects).shape, masks[0].shape).numel()
            return int(most * every // max(masks[0].numel(), 1))
        return most
    if call.func is aten.repeat_interleave.Tensor:
        value = value_of(call.argument("repeats"))
        return None if value is None else int(value.sum())
    if call.func not in _COUNTING or (value := value_of(call.argument("self"))) is None:
        return None
    func, (_, *others), kwargs = call
    counted = distinct(
        func, value, *(None if isinstance(other, torch.Tensor) else other for other in others), **kwargs
    )
    dim = call.argument("dim") if "dim" in places(func) else None
    return int((counted[0] if isinstance(counted, tuple) else counted).size(dim or 0))


def _blocks(matrix: torch.Tensor, down: int, across: int) -> int:
    """Return how many blocks of a matrix hold a number that is not zero."""
    rows, columns = matrix.nonzero(as_tuple=True)
    return int((rows // down * matrix.shape[1] + columns // across).unique().numel())


def unbounded(call: DispatchedCall) -> bool:
    """Return whether nothing but data tells the size, and PyTorch has no meta kernel that would say so."""
    return call.func is aten.repeat_interleave.Tensor and call.argument("output_size") is None
