"""Kernels that copy or choose elements, through tables of pointers, positions, counts or choices."""

from __future__ import annotations

import math

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import (
    Settings,
    Takes,
    element_bytes,
    rule,
    shape_of,
)


@rule("cuda", "Concat")
def _concat(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """concat.cc: equal pieces (up to 32) need no tables; otherwise pointers, sizes, ranges and the axis map."""
    shapes = [shape_of(graph, name) for name in node.inputs]
    axis = int(node.attributes.get("axis", 0))
    count = len(shapes)
    sizes = [shape[axis] if -len(shape) <= axis < len(shape) else 1 for shape in shapes]
    if len(set(sizes)) <= 1:
        return [(8 * count, "exact")] if count > 32 else []
    return [(8 * count, "exact"), (8 * count, "exact"), (8 * sum(sizes), "exact"), (8 * count, "exact")]


@rule("cuda", "Split")
def _split(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """split.cc: as Concat."""
    shape = shape_of(graph, node.inputs[0])
    axis = int(node.attributes.get("axis", 0))
    parts = [shape_of(graph, name) for name in node.outputs if name]
    if not all(-len(part) <= axis < len(part) for part in (shape, *parts)):
        return []
    sizes = [part[axis] for part in parts]
    count = len(sizes)
    if len(set(sizes)) <= 1:
        return [(8 * count, "exact")] if count > 32 else []
    return [(8 * count, "exact")] * 3 + [(8 * shape[axis], "exact")]


@rule("cuda", "Resize")
def _resize(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """resize_impl.cu: the map from output to input positions."""
    shape = shape_of(graph, node.outputs[0])
    mode = node.attributes.get("mode", "nearest")
    if mode == "nearest":
        return [(8 * (sum(shape) + 4), "bounded")]
    return [((24 if mode == "cubic" else 12) * sum(shape[-2:]), "exact")]


@rule("cuda", "MaxPool")
def _max_pool(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """pool.cc: 8-bit integers are pooled in float32, input and result. Measured: int8 and uint8 on an H200."""
    if graph.values[node.inputs[0]].dtype not in ("int8", "uint8"):
        return []
    return [(4 * math.prod(shape_of(graph, name)), "exact") for name in (node.inputs[0], node.outputs[0])]


@rule("cuda", "DeformConv")
def _deform_conv(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """deform_conv.cc: the column matrix of all images, at most. Measured: a batch of 2 on an H200."""
    x, w, y = (shape_of(graph, name) for name in (node.inputs[0], node.inputs[1], node.outputs[0]))
    if len(w) < 3 or len(y) != len(w) or not x:
        return []
    groups = int(node.attributes.get("group", 1))
    columns = w[1] * groups * math.prod(w[2:]) * math.prod(y[2:])
    nbytes = element_bytes(graph, node.inputs[0]) * columns * x[0]
    return [(nbytes, "exact" if x[0] <= 2 else "bounded")]


@rule("cuda", "NonMaxSuppression")
def _non_max_suppression(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """non_max_suppression_impl.cu: one class at a time: sorted scores and indices, boxes, a bit a pair of boxes."""
    boxes = shape_of(graph, node.inputs[0])
    if len(boxes) < 2:
        return []
    count = boxes[1]
    return [(4 * count, "exact")] * 4 + [(16 * count, "exact"), (8 * count * -(-count // 64), "bounded")]


@rule("cuda", "TopK")
def _top_k(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """topk_impl.cuh: one long row is selected by radix with four tables; other shapes fit into a block."""
    shape = shape_of(graph, node.inputs[0])
    if not shape:
        return []
    axis = int(node.attributes.get("axis", -1))
    return [(4096, "measured")] * 4 if math.prod(shape) == shape[axis] > 1024 else []


@rule("cuda", "NonZero", before_outputs=True)
def _non_zero(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """nonzero_op.cc: a counter a block of 256 elements, and the prefix sum's temporary."""
    blocks = -(-math.prod(shape_of(graph, node.inputs[0])) // 256)
    return [(4 * blocks, "exact"), (1023, "measured")]


@rule("cpu", "com.microsoft.BiasGelu")
def _cpu_bias_gelu(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """bias_gelu.cc: the biased input."""
    return [(graph.values[node.inputs[0]].nbytes, "exact")]
