"""Operators that move elements without computing: parts and wholes, joined tensors, paddings, masks.

1. A gradient of a part is zeros of the whole, and a copy into the part. Of a part's row as much lies together
   as the part has of the dimension it was taken from, and all within that.
2. Tensors of one type are joined by one kernel, by the shortest of their rows and by the longest; of
   different types by a copy each.
3. `masked_fill` copies first, and then overwrites.

Source: `aten/src/ATen/native/cuda/Shape.cu` (`cat_out_cuda`), `aten/src/ATen/native/cuda/Indexing.cu` and
`aten/src/ATen/native/TensorAdvancedIndexing.cpp` (`masked_fill`).
"""

from __future__ import annotations

from math import prod

from analyzer.graph.model import Operator, TensorMeta
from analyzer.tables import by_name
from analyzer_timing import traffic
from analyzer_timing.elementwise import size_of
from analyzer_timing.orders import pattern_of_run, repetition
from analyzer_timing.rates import Rates
from analyzer_timing.work import Work, log

# Name without namespace and overload -> its name in the table.
MOVES = by_name(
    {
        "roll": "roll",
        "flip": "flip tril triu",
        "pad": (
            "constant_pad_nd reflection_pad2d reflection_pad1d replication_pad2d replication_pad3d"
            " reflection_pad2d_backward replication_pad3d_backward"
        ),
        "repeat_kv": "repeat im2col col2im unfold_backward repeat_interleave",
        "apart": "pixel_shuffle pixel_unshuffle",
    }
)


def gradient_of_part(operator: Operator, name: str, rates: Rates) -> list[Work]:
    """Zeros of the whole, then a copy into the part."""
    grad, out = next(iter(operator.inputs), None), operator.outputs[0]
    if grad is None or out is None:
        return []
    nbytes, part = out.element_count * size_of(out), grad.element_count * size_of(grad)
    zeros = traffic.vectors("zero_", size_of(out), nbytes, 0, rates)
    dim = operator.integer("dim") % max(len(out.shape), 1)
    if name == "select_backward" and dim == 0:
        return [zeros, traffic.vectors("clone", size_of(out), 2 * part, part, rates)]
    sizes = pattern_of_run(prod(grad.shape[dim:]), grad.element_count)
    return [zeros, traffic.strided("runs", size_of(out), grad.element_count, 2 * part, part, rates, sizes)]


def joined(operator: Operator, name: str, rates: Rates) -> list[Work]:
    """One kernel; of tensors of different types one each."""
    del name
    out = operator.outputs[0]
    inputs = [tensor for tensor in operator.inputs if tensor.element_count]
    if out is None or not out.element_count or not inputs:
        return []
    dim = operator.integer("dim", default=0) % max(len(out.shape), 1)
    runs = [prod(tensor.shape[dim:]) for tensor in inputs]
    if len({tensor.dtype for tensor in inputs}) > 1:
        return [_one_of_joined(tensor, out, run, rates) for tensor, run in zip(inputs, runs, strict=True)]
    return [joined_rows(size_of(out), out.element_count, runs, rates)]


def joined_rows(itemsize: int, elements: int, runs: list[int], rates: Rates) -> Work:
    """Return the work of joining rows of these lengths to a result of so many elements."""
    nbytes, least = elements * itemsize, min(runs)
    sizes = (log(least), log(len(runs)), log(max(runs) / least))
    return traffic.strided("joined", itemsize, elements, 2 * nbytes, nbytes, rates, sizes)


def _one_of_joined(tensor: TensorMeta, out: TensorMeta, run: int, rates: Rates) -> Work:
    count, read = tensor.element_count, tensor.element_count * size_of(tensor)
    kind = "runs" if tensor.dtype == out.dtype else "runs-cast"
    sizes = pattern_of_run(run, count)
    return traffic.strided(kind, size_of(out), count, read + count * size_of(out), read, rates, sizes)


def filled(operator: Operator, name: str, rates: Rates) -> list[Work]:
    """Return a copy, and what overwrites the elements of a mask."""
    del name
    out, mask = operator.outputs[0], operator.tensor("mask")
    if out is None or mask is None or not out.element_count:
        return []
    count, nbytes = out.element_count, out.element_count * size_of(out)
    copy = traffic.vectors("clone", size_of(out), 2 * nbytes, nbytes, rates)
    read = nbytes + mask.element_count
    if mask.element_count == count:
        return [copy, traffic.vectors("where", size_of(out), read + nbytes, read, rates)]
    kind, sizes = repetition(mask, out)
    return [copy, traffic.strided(kind, size_of(out), count, read + nbytes, read, rates, sizes)]


def moved(operator: Operator, name: str, rates: Rates) -> list[Work]:
    """Return the work of a kernel that reads as much as it writes."""
    out = next((t for t in operator.outputs if t is not None), None)
    if out is None or not out.element_count:
        return []
    nbytes = out.element_count * size_of(out)
    return [traffic.strided(MOVES[name], size_of(out), out.element_count, 2 * nbytes, nbytes, rates)]
