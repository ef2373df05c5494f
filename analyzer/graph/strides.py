"""How dimensions lie and in which order a kernel goes over them, by shapes and strides alone.

Source: `aten/src/ATen/TensorIterator.cpp` (`compute_strides`, `reorder_dimensions`), `c10/core/Contiguity.h`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def without_gaps(dimensions: Iterable[tuple[int, int]]) -> bool:
    """Return whether dimensions (stride, size), innermost first, tile one block; an empty one does."""
    step = 1
    for stride, size in dimensions:
        if size == 0:
            return True
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def expanded_strides(own: Sequence[int], strides: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor of shape `own` over a shape that it broadcasts to."""
    lead = len(shape) - len(own)
    return (0,) * lead + tuple(
        0 if size == 1 and there != 1 else step
        for size, step, there in zip(own, strides, shape[lead:], strict=True)
    )


def iteration_order(
    shape: Sequence[int], operands: Sequence[Sequence[int]], result_count: int = 0
) -> list[int]:
    """Return the dimensions, fastest first: ascending strides, the first operand that can tell two dimensions
    apart deciding; reduced ones to the front; zero strides of an operand decide nothing; at equal strides the
    smaller extent first.

    operands: the strides of each, in bytes; results, of which there are `result_count`, come first, and have
        stride 0 along a reduced dimension.
    """

    def comes_after(first: int, second: int) -> int:
        """1 if `first` belongs behind `second`, -1 if before, 0 if nothing tells."""
        for operand, strides in enumerate(operands):
            one, other = strides[first], strides[second]
            if operand < result_count and (one == 0) != (other == 0):
                return 1 if other == 0 else -1
            if one == 0 or other == 0:
                continue
            if one != other:
                return -1 if one < other else 1
            if shape[first] > shape[second]:
                return 1
        return 0

    order = list(range(len(shape) - 1, -1, -1))
    for start in range(1, len(order)):
        moving = start
        for before in range(start - 1, -1, -1):
            verdict = comes_after(order[before], order[moving])
            if verdict > 0:
                order[before], order[moving] = order[moving], order[before]
                moving = before
            elif verdict < 0:
                break
    return order
