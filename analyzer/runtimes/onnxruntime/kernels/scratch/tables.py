"""Kernels that copy or choose elements, through tables of pointers, positions, counts or choices."""

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

_SORTED_AT_ONCE = 2048  # elements that CUB's radix sort takes without memory of its own


@rule("cuda", "Concat")
def _concat(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """concat.cc: equal pieces (up to 32) need no tables; otherwise pointers, sizes, ranges and the axis
    map."""
    shapes = [shape_of(graph, name) for name in node.inputs]
    axis = int(node.attributes.get("axis", 0))
    count = len(shapes)
    sizes = [shape[axis] if -len(shape) <= axis < len(shape) else 1 for shape in shapes]
    if len(set(sizes)) <= 1:
        return [(8 * count, "exact")] if count > 32 else []
    return [(8 * count, "exact"), (8 * count, "exact"), (8 * sum(sizes), "exact"), (8 * count, "exact")]


@rule("cuda", "Split")
def _split(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """split.cc: as Concat; three parts of the last axis go by a kernel of their own. Sizes only data tells
    may be unequal."""
    shape = shape_of(graph, node.inputs[0])
    axis = int(node.attributes.get("axis", 0))
    parts = [shape_of(graph, name) for name in node.outputs if name]
    if not all(-len(part) <= axis < len(part) for part in (shape, *parts)) or not math.prod(shape):
        return []
    sizes = [part[axis] for part in parts]
    count = len(sizes)
    sizes_known = len(node.inputs) < 2 or not node.inputs[1] or graph.constant(node.inputs[1]) is not None
    if sizes_known and len(set(sizes)) <= 1:
        return [(8 * count, "exact")] if count > 32 else []
    if sizes_known and count == 3 and axis % len(shape) == len(shape) - 1:
        return []
    basis = "exact" if sizes_known else "bounded"
    return [(8 * count, basis)] * 3 + [(8 * shape[axis], basis)]


@rule("cuda", "GatherND")
def _gather_nd(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """gather_nd.cc: the strides of the indexed axes, and where each slice begins."""
    indices = shape_of(graph, node.inputs[1])
    if not indices:
        return []
    return [(8 * indices[-1], "exact"), (8 * math.prod(indices[:-1]), "exact")]


@rule("cuda", "Resize")
def _resize(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """resize_impl.cu: the map from output to input positions. With antialias (resize_antialias_impl.cu) for
    each of two axes weights, where they begin and what lies outside: images of 4 and of 512 rows on an H200,
    halved."""
    shape = shape_of(graph, node.outputs[0])
    mode = node.attributes.get("mode", "nearest")
    if int(node.attributes.get("antialias", 0)) and len(shape) > 1:
        return _antialiased(shape_of(graph, node.inputs[0]), shape, 2 if mode == "cubic" else 1)
    if mode == "nearest":
        return [(8 * (sum(shape) + 4), "bounded")]
    return [((24 if mode == "cubic" else 12) * sum(shape[-2:]), "exact")]


def _antialiased(source: tuple[int, ...], shape: tuple[int, ...], reach: int) -> Takes:
    """Return the tables of an antialiased resize. reach: of the filter on either side, in pixels."""
    takes = [8 * len(shape), 4 * shape[-1]]
    for before, after in zip(source[-2:], shape[-2:], strict=True):
        window = 2 * math.ceil(reach * max(1.0, before / max(after, 1))) + 1
        takes += [4 * after * window, 16 * after, 8 * after]
    return [(nbytes, "measured") for nbytes in takes]


@rule("cuda", "MaxPool")
def _max_pool(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """pool.cc: 8-bit integers are pooled in float32, input and result. Measured: int8 and uint8 on an
    H200."""
    if graph.values[node.inputs[0]].dtype not in ("int8", "uint8"):
        return []
    return [(4 * math.prod(shape_of(graph, name)), "exact") for name in (node.inputs[0], node.outputs[0])]


@rule("cuda", "DeformConv")
def _deform_conv(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """deform_conv.cc: the column matrix of all images, at most. Measured: a batch of 2 on an H200."""
    x, w, y = (shape_of(graph, name) for name in (node.inputs[0], node.inputs[1], node.outputs[0]))
    if len(w) < 3 or len(y) != len(w) or not x:
        return []
    groups = int(node.attributes.get("group", 1))
    columns = w[1] * groups * math.prod(w[2:]) * math.prod(y[2:])
    nbytes = element_bytes(graph, node.inputs[0]) * columns * x[0]
    return [(nbytes, "exact" if x[0] <= 2 else "bounded")]


@rule("cuda", "NonMaxSuppression")
def _non_max_suppression(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """non_max_suppression_impl.cu: one class at a time: indices, scores and boxes before and after sorting,
    what sorting takes, a bit a pair of boxes, what is kept, two numbers, and what choosing the kept takes."""
    boxes = shape_of(graph, node.inputs[0])
    if len(boxes) < 2:
        return []
    count = boxes[1]
    sorting = 1 if count <= _SORTED_AT_ONCE else 8 * count + (64 << 10)
    tables = [4 * count] * 5 + [16 * count] * 2 + [count, 4, 4]
    return [
        *((nbytes, "exact") for nbytes in tables),
        *((nbytes, "bounded") for nbytes in (sorting, 4 * count * -(-count // 32), 1024)),
    ]


@rule("cuda", "TopK")
def _top_k(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """topk_impl.cuh: one long row is selected by radix with four tables; other shapes fit into a block."""
    shape = shape_of(graph, node.inputs[0])
    if not shape:
        return []
    axis = int(node.attributes.get("axis", -1))
    return [(4096, "measured")] * 4 if math.prod(shape) == shape[axis] > 1024 else []


@rule("cuda", "NonZero", before_outputs=True)
def _non_zero(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """nonzero_op.cc: a counter a block of 256 elements, and the prefix sum's temporary."""
    blocks = -(-math.prod(shape_of(graph, node.inputs[0])) // 256)
    return [(4 * blocks, "exact"), (1023, "measured")]


@rule("cpu", "com.microsoft.BiasGelu")
def _cpu_bias_gelu(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """bias_gelu.cc: the biased input."""
    return [(graph.values[node.inputs[0]].nbytes, "exact")]
