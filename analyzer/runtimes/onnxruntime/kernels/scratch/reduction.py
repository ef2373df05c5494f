"""Reductions, arguments of extrema, softmax and instance normalization on CUDA."""

from __future__ import annotations

import math

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import (
    KernelSettings,
    Takes,
    element_bytes,
    rule,
    shape_of,
)

_SUMS = frozenset({"ReduceSum", "ReduceMean"})


@rule(
    "cuda",
    *(
        f"Reduce{kind}"
        for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    ),
)
def _reduce(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """reduction_ops.cc: sums and means over leading axes need nothing, over trailing ones partial sums and a
    counter a row (reduction_functions.cu); everything else a copy of the input in float32 for cuDNN, bfloat16
    also input and result in float32."""
    source = graph.values[node.inputs[0]]
    shape = source.shape or ()
    axes = _axes(node, graph, len(shape))
    if axes is None:
        copies = 2 if node.op == "ReduceSumSquare" else 1
        return [(max(source.nbytes, 4 * math.prod(shape)), "bounded")] * copies
    if len(axes) == len(shape) or not shape:
        return [] if node.op in _SUMS else [(source.nbytes, "exact")]
    if node.op in _SUMS:
        wide = [axis for axis, size in enumerate(shape) if size != 1]
        reduced = [axis for axis in wide if axis in axes]
        if not reduced and axes:
            reduced, wide = sorted(axes), list(range(len(shape)))
        if wide and reduced == wide[: len(reduced)] and len(reduced) < len(wide):
            kept = [axis for axis in wide if axis not in reduced]
            if kept == wide[len(reduced) :] and any(shape[axis] != 1 for axis in reduced):
                return []
        if (
            not wide
            or reduced == wide[len(wide) - len(reduced) :]
            or all(shape[axis] == 1 for axis in reduced)
        ):
            columns = math.prod(shape[axis] for axis in reduced)
            rows = math.prod(shape) // max(columns, 1)
            blocks = min(max(columns // 1024, 1), 256)
            return [(rows * 4 * (blocks + 1) + 15, "exact")]
    single = 4 * math.prod(shape)
    if source.dtype == "bfloat16":
        return [
            (single, "exact"),
            (4 * math.prod(shape_of(graph, node.outputs[0])), "exact"),
            (single, "exact"),
        ]
    return [(max(single, source.nbytes) if source.dtype == "float16" else source.nbytes, "exact")]


def _axes(node: Node, graph: RuntimeGraph, rank: int) -> list[int] | None:
    """Return the axes of a reduction: all of them if none are given, None if they are not known."""
    axes = graph.axes(node)
    if axes is None and node.input(1):
        return None
    return sorted(axis % rank for axis in axes) if axes and rank else list(range(rank))


@rule("cuda", "ArgMax", "ArgMin")
def _arg(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """reduction_ops.cc (ArgMax, ArgMin): the last axis by partial results, others by cuDNN."""
    source = graph.values[node.inputs[0]]
    shape = source.shape or (1,)
    axis = int(node.attributes.get("axis", 0)) % len(shape)
    rows = math.prod(shape) // max(shape[axis], 1)
    if axis == len(shape) - 1:
        return [(rows * (8 * min(max(shape[axis] // 1024, 1), 256) + 4) + 15, "exact")]
    return [(2 * source.nbytes, "exact"), (4 * rows, "exact"), (4 * rows, "exact")]


@rule("cuda", "Softmax", "LogSoftmax")
def _softmax(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """softmax.cc: another axis than the last is transposed there and back."""
    source = graph.values[node.inputs[0]]
    rank = len(source.shape or ())
    if graph.opset < 13 or not rank or int(node.attributes.get("axis", -1)) % rank == rank - 1:
        return []
    return [(source.nbytes, "exact")] * 2


@rule("cuda", "BatchNormalization")
def _batch_norm(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """batch_norm.cc: in half precision scale, bias, mean and variance once more in float32."""
    if element_bytes(graph, node.inputs[0]) != 2:
        return []
    return [(4 * math.prod(shape_of(graph, name)), "exact") for name in node.inputs[1:5]]


@rule("cuda", "InstanceNormalization")
def _instance_norm(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """instance_norm.cc: with more than one sample, scale and bias are repeated for each and statistics kept,
    in float32."""
    x = shape_of(graph, node.inputs[0])
    if len(x) < 2 or x[0] <= 1:
        return []
    return [(4 * x[0] * x[1], "exact")] * 4
