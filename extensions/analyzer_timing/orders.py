"""Two orders in memory, as a kernel that writes the one and reads the other meets them.

1. Dimensions that follow each other on both sides are one (`TensorIterator` joins them). They are gone
   through in the result's order, innermost first.
2. Neighbours of the result that are neighbours of the operand are a run ("runs": its length, and how many
   dimensions are around it). Else ("turned") the result's row is written from as many rows of the operand:
   both rows' lengths count.
3. An operand that is repeated: over a piece of the result after piece ("bias_add": the piece's length), or
   each element over neighbours ("row_mul", and "channel_mul" where all of it is repeated again: how many).

Source: `aten/src/ATen/TensorIterator.cpp` (`reorder_dimensions`, `coalesce_dimensions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from math import prod

from analyzer.graph.model import TensorMeta
from analyzer_timing.work import log

_AROUND = 0.7  # of a doubling, a dimension more
_MOST_AROUND = 4


def order(tensor: TensorMeta) -> tuple[int, ...]:
    """Return the non-trivial dimensions by stride, largest first."""
    dims = [d for d, size in enumerate(tensor.shape) if size > 1]
    return tuple(sorted(dims, key=lambda d: (-tensor.stride[d], d)))


def pattern(source: TensorMeta, target: TensorMeta) -> tuple[str, tuple[float, ...]]:
    """Return how a copy of one shape goes, with the place its sizes have in the table: "runs", "turned", or
    "apart", where no neighbours of the source are read."""
    pieces: list[tuple[int, int, int]] = []  # size, and a step of either side
    for d in reversed(order(target)):
        size, read, written = target.shape[d], source.stride[d], target.stride[d]
        if pieces and (read, written) == (pieces[-1][0] * pieces[-1][1], pieces[-1][0] * pieces[-1][2]):
            pieces[-1] = (pieces[-1][0] * size, *pieces[-1][1:])
        else:
            pieces.append((size, read, written))
    if not pieces:
        return "runs", (0.0, 0.0)
    if pieces[0][1] == 1:
        return "runs", (log(pieces[0][0]), _AROUND * min(len(pieces) - 1, _MOST_AROUND))
    near = [size for size, read, _ in pieces if read == 1]
    return ("turned", (log(pieces[0][0]), log(near[0]))) if near else ("apart", ())


def pattern_of_run(run: float, elements: float) -> tuple[float, ...]:
    """Return the place of a copy of runs into, or out of, longer rows ("runs")."""
    return log(run), _AROUND * (run < elements)


def repetition(operand: TensorMeta, result: TensorMeta) -> tuple[str, tuple[float, ...]]:
    """Return how an operand that is broadcast is repeated, with its place in the table."""
    missing = len(result.shape) - len(operand.shape)
    dims_there = {
        d + missing
        for d, (size, stride) in enumerate(zip(operand.shape, operand.stride, strict=True))
        if size > 1 and stride
    }
    dims = order(result)[::-1]
    if not dims_there or not dims:
        return "row_mul", (0.0,)
    repeats_first = dims[0] in dims_there
    run = _joined(dims, lambda d: (d in dims_there) == repeats_first, result)
    if repeats_first:
        return "bias_add", (log(run),)
    return "row_mul" if dims[-1] in dims_there else "channel_mul", (log(run),)


def _joined(dims: Iterable[int], kept: Callable[[int], bool], tensor: TensorMeta) -> int:
    """Return the elements of the first dimensions that are kept."""
    return prod(tensor.shape[d] for d in takewhile(kept, dims))
