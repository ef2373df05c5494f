"""Kernels of the CPU provider that compute element by element, or normalize, beside an intermediate
tensor."""

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

_LAST_AXIS_OPSET = 13  # from it on, these operators work on one axis instead of all behind one


@rule("cpu", "Softmax", "LogSoftmax", "Hardmax")
def _cpu_softmax(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """softmax.cc: over another axis than the last, the input transposed and a result to transpose back."""
    source = graph.values[node.inputs[0]]
    rank = len(source.shape or ())
    if graph.opset < _LAST_AXIS_OPSET or not rank or int(node.attributes.get("axis", -1)) % rank == rank - 1:
        return []
    return [(source.nbytes, "exact")] * 2


@rule("cpu", "MeanVarianceNormalization")
def _cpu_mean_variance(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """mean_variance_normalization.cc: unless the axes are the last ones, input and result once more,
    transposed."""
    source = graph.values[node.inputs[0]]
    rank = len(source.shape or ())
    if not rank:
        return []
    axes = sorted({axis % rank for axis in node.ints("axes", (0, 2, 3))})
    if axes == list(range(rank - len(axes), rank)):
        return []
    return [(source.nbytes, "exact")] * 2


@rule("cpu", "LRN")
def _cpu_lrn(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """lrn.cc: a scale for each element, and one image's squares with channels added on both sides."""
    shape = shape_of(graph, node.inputs[0])
    if len(shape) != 4:
        return []
    channels = shape[1] + int(node.attributes.get("size", 1)) - 1
    return [(4 * math.prod(shape), "exact"), (4 * channels * shape[2] * shape[3], "exact")]


@rule("cpu", "BatchNormalization")
def _cpu_batch_norm(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """batch_norm.h: in training mode, this batch's mean and deviation unless they are results."""
    training = bool(node.attributes.get("training_mode", 0))
    if not training or len([name for name in node.outputs if name]) > 3:
        return []
    return [(graph.values[name].nbytes, "exact") for name in node.inputs[3:5]]


@rule("cpu", "Sum", "Mean", "Max", "Min", before_outputs=True)
def _cpu_variadic(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """element_wise_ops.cc (UntypedBroadcastVariadic): inputs are combined one after another, each time in a
    tensor of its own, of which two live at a time; the last combination goes to the result."""
    if len(node.inputs) < 3 or (graph.opset < 8 and node.op in ("Sum", "Mean", "Max", "Min")):
        return []
    size = element_bytes(graph, node.inputs[0])
    shape = shape_of(graph, node.inputs[0])
    sizes = []
    for name in node.inputs[1:-1]:
        shape = broadcast(shape, shape_of(graph, name))
        sizes.append(size * math.prod(shape))
    return [(nbytes, "exact") for nbytes in sizes[-2:]]


@rule("cpu", "Where", before_outputs=True)
def _cpu_where(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """where_op.cc: the choice from each operand, broadcast with the condition, then their merge."""
    size = element_bytes(graph, node.outputs[0])
    condition, *operands = (shape_of(graph, name) for name in node.inputs)
    return [(size * math.prod(broadcast(condition, operand)), "exact") for operand in operands]


def broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape two operands broadcast to."""
    rank = max(len(left), len(right))
    left, right = (1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right
    return tuple(max(a, b) if min(a, b) else 0 for a, b in zip(left, right, strict=True))


@rule("cpu", "DFT")
def _cpu_dft(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """dft.cc: lengths that are no power of two by Bluestein's algorithm: the chirp, its transform, the signal
    and the signal's transform, each of the next power of two from twice the length on."""
    shape = shape_of(graph, node.inputs[0])
    axis = int(node.attributes.get("axis", 1))
    if graph.opset >= 20:
        axis = (graph.integers(node.input(2)) or [-2])[0]
    if not shape or not -len(shape) <= axis < len(shape):
        return []
    length = shape[axis]
    if node.input(1):
        lengths = graph.integers(node.inputs[1])
        result = shape_of(graph, node.outputs[0])
        onesided = int(node.attributes.get("onesided", 0))
        if lengths:
            length = lengths[0]
        elif result:
            length = 2 * result[axis] - 1 if onesided else result[axis]
    if length < 1 or length & (length - 1) == 0:
        return []
    padded = 1 << (2 * length - 2).bit_length()
    return [(2 * padded * element_bytes(graph, node.inputs[0]), "exact")] * 4


@rule("cpu", "DeformConv")
def _cpu_deform_conv(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """deform_conv.cc: for one image, a position (four corners with their weights, 32 bytes) a tap and output,
    outputs in eights, and the column matrix. Measured: onnxruntime 1.31, four shapes
    (`benchmarks/onnx/backend.py`)."""
    w, y = shape_of(graph, node.inputs[1]), shape_of(graph, node.outputs[0])
    if len(w) < 3 or len(y) != len(w):
        return []
    taps, outputs = math.prod(w[2:]), math.prod(y[2:])
    offsets = int(node.attributes.get("offset_group", 1))
    channels = w[1] * int(node.attributes.get("group", 1))
    return [
        (32 * offsets * taps * (-(-outputs // 8) * 8), "measured"),
        (element_bytes(graph, node.inputs[0]) * channels * taps * outputs, "measured"),
    ]
