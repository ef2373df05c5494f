"""TensorIterator: the loop a kernel runs over, after dimensions are reordered and merged.

Reductions take scratch by the *iterated* shape and strides, not by the tensor's own, so this rebuilds them.

Operands are the results first, then the inputs; strides are in bytes, and a result has stride 0 along a
reduced dimension, as an input has along a broadcast one.

Source: `aten/src/ATen/TensorIterator.cpp` (`compute_strides`, `reorder_dimensions`, `coalesce_dimensions`,
`get_dim_to_split`, `split`).

Not modelled: results handed in by the caller (`out=`), which keep their strides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analyzer.graph import TensorMeta, contiguous_strides, dtype_bytes
from analyzer.graph.strides import iteration_order
from analyzer.runtimes.pytorch.scratch.layout import broadcast_shape, expanded

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class IteratedLoop:
    """Shape, fastest dimension first, and operands' strides in bytes; `result_count` come first."""

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    result_count: int

    @property
    def element_count(self) -> int:
        """Number of iterations."""
        return math.prod(self.shape)

    @property
    def reduced_dim_count(self) -> int:
        """Leading dimensions along which the first result does not move."""
        return sum(stride == 0 for stride in self.strides[0])

    @property
    def output_element_count(self) -> int:
        """Elements of the first result."""
        sizes = zip(self.shape, self.strides[0], strict=True)
        return math.prod(size for size, stride in sizes if stride != 0 or size == 0)

    def fits_32bit(self) -> bool:
        """Return whether 32-bit offsets reach every element of every operand."""
        if self.element_count > _INT32_MAX:
            return False
        return all(
            1 + sum((size - 1) * stride for size, stride in zip(self.shape, strides, strict=True))
            <= _INT32_MAX
            for strides in self.strides
        )

    def parts(self) -> Iterator[IteratedLoop]:
        """Yield the loop, halved along its largest extent until 32-bit offsets suffice."""
        if self.fits_32bit():
            yield self
            return
        dim, largest = 0, -1
        for candidate in range(len(self.shape) - 1, -1, -1):
            for strides in self.strides:
                extent = (self.shape[candidate] - 1) * abs(strides[candidate])
                if self.shape[candidate] and extent > largest:
                    dim, largest = candidate, extent
        front = self.shape[dim] // 2
        for size in (front, self.shape[dim] - front):
            shape = (*self.shape[:dim], size, *self.shape[dim + 1 :])
            yield from IteratedLoop(shape, self.strides, self.result_count).parts()


def reduction_loop(
    source: TensorMeta, reduced: frozenset[int], result_dtypes: Sequence[str], keepdim: bool = False
) -> IteratedLoop:
    """Return the loop of a reduction of `source` over the dimensions `reduced` into fresh contiguous results.

    A reduced dimension of size 1 that is kept has an ordinary stride, since nothing marks it as reduced.

    Source: `make_reduction` and `review_reduce_result`, `aten/src/ATen/native/ReduceOpsUtils.h`.
    """
    results = []
    for dtype in result_dtypes:
        strides, step = [0] * len(source.shape), dtype_bytes(dtype)
        for dim in range(len(source.shape) - 1, -1, -1):
            if dim not in reduced or (keepdim and source.shape[dim] == 1):
                strides[dim] = step
                step *= max(source.shape[dim], 1)
        results.append(tuple(strides))
    width = dtype_bytes(source.dtype)
    operands = (*results, tuple(stride * width for stride in source.stride))
    loop = IteratedLoop(source.shape, operands, len(results))
    return _coalesced(_permuted(loop, iteration_order(loop.shape, loop.strides, loop.result_count)))


def pointwise_strides(inputs: Sequence[TensorMeta]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides, in elements, of a pointwise operator's fresh result: dense, in the inputs' order of
    strides; inputs broadcast."""
    shape = broadcast_shape(inputs)
    operands = tuple(
        tuple(stride * dtype_bytes(tensor.dtype) for stride in expanded(tensor, shape).stride)
        for tensor in inputs
    )
    return shape, contiguous_strides(shape, iteration_order(shape, operands))


def _permuted(loop: IteratedLoop, order: Sequence[int]) -> IteratedLoop:
    return IteratedLoop(
        tuple(loop.shape[dim] for dim in order),
        tuple(tuple(strides[dim] for dim in order) for strides in loop.strides),
        loop.result_count,
    )


def _coalesced(loop: IteratedLoop) -> IteratedLoop:
    """Neighbouring dimensions merged where either has size 1 or every operand steps over both as over one."""
    if len(loop.shape) <= 1:
        return loop
    shape = [loop.shape[0]]
    strides = [[operand[0]] for operand in loop.strides]
    for dim in range(1, len(loop.shape)):
        size = loop.shape[dim]
        merges = shape[-1] == 1 or size == 1
        if merges or all(
            shape[-1] * merged[-1] == operand[dim]
            for merged, operand in zip(strides, loop.strides, strict=True)
        ):
            if shape[-1] == 1:
                for merged, operand in zip(strides, loop.strides, strict=True):
                    merged[-1] = operand[dim]
            shape[-1] *= size
        else:
            shape.append(size)
            for merged, operand in zip(strides, loop.strides, strict=True):
                merged.append(operand[dim])
    return IteratedLoop(tuple(shape), tuple(tuple(merged) for merged in strides), loop.result_count)
