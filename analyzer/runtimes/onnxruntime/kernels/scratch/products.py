"""Matrix products on CUDA: stacks through tables of pointers, Einsum, dequantized weights."""

from __future__ import annotations

import math

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.einsum import temporaries
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import (
    KernelSettings,
    Takes,
    element_bytes,
    rule,
    shape_of,
)

_N_BITS_ROWS = 8


@rule("cuda", "MatMul", "com.microsoft.FusedMatMul")
def _matmul(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """matmul.cc: stacks of unequal batch shapes, or by one vector, are multiplied through tables of
    pointers."""
    left, right = (_batch(node, graph, place) for place in (0, 1))
    if 1 in (len(shape_of(graph, name)) for name in node.inputs):
        count = math.prod((*left, *right))
        return [(8 * count, "exact")] * 3 if count > 1 else []
    count = math.prod(shape_of(graph, node.outputs[0])[:-2])
    if count <= 1 or left == right or math.prod(right) == 1 or math.prod(left) == 1:
        return []
    return [(8 * count, "exact")] * 3


def _batch(node: Node, graph: RuntimeGraph, place: int) -> tuple[int, ...]:
    """Return an operand's batch axes: all but the last two, or all but the first and last."""
    shape = shape_of(graph, node.inputs[place])
    return shape[1:-1] if node.attributes.get(f"transBatch{'AB'[place]}", 0) else shape[:-2]


@rule("cuda", "Einsum", before_outputs=True)
def _einsum(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """`einsum.py`; for equations it does not cover, a copy of each operand and two of the result."""
    shapes = [shape_of(graph, name) for name in node.inputs]
    size = element_bytes(graph, node.inputs[0])
    requests = temporaries(str(node.attributes.get("equation", "")), shapes, size)
    if requests is not None:
        return [(nbytes, "exact") for nbytes in requests]
    operands = [(graph.values[name].nbytes, "bounded") for name in node.inputs]
    return [*operands, *[(graph.values[node.outputs[0]].nbytes, "bounded")] * 2]


@rule("cuda", "com.microsoft.MatMulNBits")
def _n_bits(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """matmul_nbits.cc: more than a few rows are multiplied after the weights are dequantized."""
    k, n = int(node.attributes.get("K", 0)), int(node.attributes.get("N", 0))
    rows = math.prod(shape_of(graph, node.inputs[0])[:-1])
    return [(k * n * element_bytes(graph, node.inputs[0]), "measured")] if rows > _N_BITS_ROWS else []
