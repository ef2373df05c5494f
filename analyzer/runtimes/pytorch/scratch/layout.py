"""How a tensor lies in memory: contiguity, the strides a fresh result gets, and what a copy of it costs.

1. A tensor is **contiguous** in a memory format when its strides are the format's, dimensions of size 1 not
   compared (`c10/core/Contiguity.h`; the channels-last test is `is_channels_last_strides` of
   `c10/core/MemoryFormat.h`).
2. A tensor is **dense** when its elements tile one block without gaps or overlap, in whatever order;
   operators that "preserve" the memory format give a dense tensor's copy the same strides, and any other
   tensor's copy contiguous ones.
3. Every allocation starts at a multiple of 512 bytes, so alignment is a matter of the view's offset alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from analyzer.graph import TensorMeta, contiguous_strides, dtype_bytes, lies_channels_last, nbytes_of
from analyzer.graph.strides import expanded_strides, without_gaps

_ACCUMULATE_IN_FLOAT = frozenset({"float16", "bfloat16"})


def channels_last_order(rank: int) -> tuple[int, ...]:
    """Return the dimensions of a channels-last tensor, innermost first."""
    return (1, *range(rank - 1, 1, -1), 0)


def is_contiguous(tensor: TensorMeta) -> bool:
    """Return whether the tensor is row-major without gaps."""
    return without_gaps(zip(reversed(tensor.stride), reversed(tensor.shape), strict=True))


def is_channels_last(tensor: TensorMeta) -> bool:
    """Return whether a 4-D or 5-D tensor is contiguous with its second dimension innermost."""
    if len(tensor.shape) not in (4, 5):
        return False
    step = 1
    for dim in channels_last_order(len(tensor.shape)):
        if tensor.shape[dim] != 1:
            if tensor.stride[dim] != step:
                return False
            step *= tensor.shape[dim]
    return True


def suggests_channels_last(tensor: TensorMeta) -> bool:
    """Return whether `suggest_memory_format` answers channels-last: the strides ascend in that order, gaps
    allowed."""
    return lies_channels_last(tensor.shape, tensor.stride)


def is_dense(tensor: TensorMeta) -> bool:
    """Return whether the elements tile one block, in any order, without gaps or overlap."""
    return without_gaps(sorted(zip(tensor.stride, tensor.shape, strict=True)))


def preserved_strides(tensor: TensorMeta) -> tuple[int, ...]:
    """Return the strides of a copy that preserves the memory format: a dense one's own, else contiguous."""
    return tensor.stride if is_dense(tensor) else contiguous_strides(tensor.shape)


def contiguous_like(tensor: TensorMeta) -> TensorMeta:
    """Return the tensor as `contiguous()` returns it."""
    return replace(tensor, stride=contiguous_strides(tensor.shape), offset=0)


def dense(like: TensorMeta, shape: tuple[int, ...], dtype: str = "") -> TensorMeta:
    """Return a fresh contiguous tensor of this shape, of another's type unless that is said."""
    stride = contiguous_strides(shape)
    return replace(like, shape=shape, stride=stride, offset=0, dtype=dtype or like.dtype)


def permuted(tensor: TensorMeta, order: Sequence[int]) -> TensorMeta:
    """Return the tensor with its dimensions in this order, as a view."""
    shape, stride = tensor.shape, tensor.stride
    return replace(tensor, shape=tuple(shape[i] for i in order), stride=tuple(stride[i] for i in order))


def turned(tensor: TensorMeta) -> TensorMeta:
    """Return the tensor with its last two dimensions exchanged, as a view."""
    rank = len(tensor.shape)
    return permuted(tensor, (*range(rank - 2), *range(rank - 1, max(rank, 2) - 3, -1)))


def moved_last(tensor: TensorMeta, dim: int) -> TensorMeta:
    """Return the tensor with one dimension behind the others, as a view."""
    return permuted(tensor, [*(place for place in range(len(tensor.shape)) if place != dim), dim])


def is_one_row(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether dimensions are elements a fixed step apart, those of size 1 left out, so that `reshape`
    makes one of them without a copy (`computeStride`, `aten/src/ATen/TensorUtils.cpp`)."""
    longer = [part for part in zip(shape, stride, strict=True) if part[0] != 1]
    return all(outer == size * inner for (_, outer), (size, inner) in pairwise(longer))


def broadcast_shape(tensors: Sequence[TensorMeta]) -> tuple[int, ...]:
    """Return the shape the tensors broadcast to."""
    shape = [1] * max(len(tensor.shape) for tensor in tensors)
    for tensor in tensors:
        for dim, size in enumerate(tensor.shape, len(shape) - len(tensor.shape)):
            shape[dim] = size if size != 1 else shape[dim]
    return tuple(shape)


def expanded(tensor: TensorMeta, shape: tuple[int, ...]) -> TensorMeta:
    """Return the tensor as a view of this shape, which it broadcasts to."""
    return replace(tensor, shape=shape, stride=expanded_strides(tensor.shape, tensor.stride, shape))


def bytes_of(tensor: TensorMeta) -> int:
    """Return the bytes of the tensor's elements, laid out densely."""
    return nbytes_of(tensor.element_count, tensor.dtype)


def contiguous_copy_bytes(tensor: TensorMeta | None) -> int:
    """Return the bytes that `tensor.contiguous()` allocates: none if it already is."""
    return 0 if tensor is None or is_contiguous(tensor) else bytes_of(tensor)


def format_copy_bytes(tensor: TensorMeta | None, channels_last: bool) -> int:
    """Return the bytes that `tensor.contiguous(format)` allocates: none if it lies so."""
    if not channels_last:
        return contiguous_copy_bytes(tensor)
    return 0 if tensor is None or is_channels_last(tensor) else bytes_of(tensor)


def accumulator_dtype(dtype: str) -> str:
    """Return the type kernels compute in (`at::opmath_type`): float32 for 16-bit floats."""
    if dtype in _ACCUMULATE_IN_FLOAT:
        return "float32"
    return "complex64" if dtype == "complex32" else dtype


def accumulator_bytes(dtype: str) -> int:
    """Return the bytes of one element of `accumulator_dtype`."""
    return dtype_bytes(accumulator_dtype(dtype))
