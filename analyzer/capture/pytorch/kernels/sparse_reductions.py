"""Sums and softmaxes of sparse (COO) tensors over some of their dimensions.

1. **A sum** copies the values, or sums them over dense dimensions. Where no sparse dimension is left their
   sum is the result; else the rows of indices that stay are copied and the entries that now share a place are
   coalesced.
2. **Its gradient** is spread over the entries: for every entry its place is sought among the gradient's.
3. **A softmax** over a sparse dimension makes the result like its input, numbers each entry's row, sorts
   positions by it, counts each row, where it begins and its largest value. How many rows have entries only
   data tells: counted where the indices are known, else as many as there are or as there are entries. Over a
   dense dimension it is the dense operator's.

Source: `aten/src/ATen/native/sparse/SparseTensorMath.cpp` (`_sparse_sum`),
`sparse/cuda/SparseCUDATensorMath.cu` (`_sparse_sum_backward_cuda`), `sparse/cuda/SoftMax.cu`
(`cuda_sparse_coo_softmax`, `compute_pool_max`).

Not modelled: the gradient of a softmax.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

aten = torch.ops.aten
_META = torch.device("meta")


def sums(indices: Any, values: Any, shape: Any, dims: Any) -> tuple[Any, Any, list[int]]:
    """Return indices, values and shape of a sum over dimensions; no indices if it is dense."""
    sparse_dims = indices.shape[0]
    summed = {dim % len(shape) for dim in dims}
    dense = [dim + 1 - sparse_dims for dim in sorted(summed) if dim >= sparse_dims]
    kept = [dim for dim in range(sparse_dims) if dim not in summed]
    new = values.sum(dense) if dense else values.clone(memory_format=torch.contiguous_format)
    size = [length for dim, length in enumerate(shape) if dim not in summed]
    if not kept:
        return None, new.sum(0), size
    if len(kept) == sparse_dims:
        return indices.clone(memory_format=torch.contiguous_format), new, size
    rows = indices.new_empty(len(kept), indices.shape[1])
    for place, dim in enumerate(kept):
        rows[place].copy_(indices[dim])
    return rows, new, size


def gradient_of_sum(
    grad: tuple[Any, Any] | Any, indices: Any, values: Any, shape: Any, dims: Any
) -> tuple[Any, Any]:
    """Return indices and values of a sum's gradient, from a dense gradient or sparse parts."""
    sparse_dims = indices.shape[0]
    summed = {dim % len(shape) for dim in dims}
    dense = [dim + 1 - sparse_dims for dim in sorted(summed) if dim >= sparse_dims]
    kept = [dim for dim in range(sparse_dims) if dim not in summed]
    if not isinstance(grad, tuple):
        for dim in dense:
            grad = grad.unsqueeze(dim - 1)
        new = grad.expand(values.shape).clone(memory_format=torch.contiguous_format)
        return indices.clone(memory_format=torch.contiguous_format), new
    grad_indices, new = grad
    if dense:
        for dim in dense:
            new = new.unsqueeze(dim)
        new = new.expand(-1, *values.shape[1:]).clone(memory_format=torch.contiguous_format)
    if len(kept) < sparse_dims:
        spread = new.new_zeros(values.shape)
        theirs = _numbered(grad_indices, range(len(kept)), [shape[dim] for dim in kept])
        own = _numbered(indices, kept, shape)
        gradient = torch.empty_like(own)
        del theirs, own, gradient
        new = spread
    return indices.clone(memory_format=torch.contiguous_format), new


def _numbered(indices: Any, dims: Any, shape: Any) -> Any:
    """Return one linear index over `dims` for each entry (`flatten_indices_by_dims`)."""
    numbers = indices.new_zeros(indices.shape[1])
    for dim in dims:
        numbers.mul_(shape[dim]).add_(indices[dim])
    return numbers


def softmax(
    recorder: Recorder, func: Any, indices: Any, values: Any, shape: Any, dim: int
) -> tuple[Any, Any]:
    """Indices and values of a softmax, or of its logarithm (`func`), of a coalesced tensor."""
    sparse_dims, entries = indices.shape
    dim %= len(shape)
    if dim >= sparse_dims:
        dense = aten._softmax if func is aten._sparse_softmax.default else aten._log_softmax
        return indices.clone(), dense(values, dim - sparse_dims + 1, False)
    new, rows = torch.empty_like(values), torch.empty_like(indices)
    rows.copy_(indices)
    others = [row for row in range(sparse_dims) if row != dim]
    value = recorder.values.known(indices)
    if value is not None:
        count = int(value[others].unique(dim=1).shape[1]) if others else 1
    else:
        most = min(entries, math.prod(shape[row] for row in others))
        answer = recorder.values.how_many("rows of a sparse tensor have entries", most)
        count = most if answer is None else answer
    with _disable_current_modes():
        largest = torch.empty(count * math.prod(values.shape[1:]), dtype=values.dtype, device=_META)
    numbers = indices.new_empty(entries)
    recorder.values.forget(numbers)
    named = {"indices": indices, "values": values, "row_of_each": numbers, "rows": count}
    recorder.record(func, (), named, largest)
    return rows, new
