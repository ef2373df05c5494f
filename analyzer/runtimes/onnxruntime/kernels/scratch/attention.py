"""Attention on CUDA, by the kernel that is chosen.

Not modelled: kernels that load cuDNN or cutlass plans (bounded by their unfused intermediates).
"""

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

_EFFICIENT_LENGTH = 256


@rule("cuda", "com.microsoft.MultiHeadAttention")
def _multi_head(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """attention_impl.cu: half precision runs flash attention (a table of splits); float32 runs memory-efficient
    attention from 256 tokens on, below it transposed operands and scores twice."""
    x = graph.values[node.inputs[0]]
    shape = x.shape or ()
    if len(shape) < 3:
        return [(3 * x.nbytes, "bounded")]
    if x.dtype != "float32":
        return [(256, "measured")]
    if shape[1] >= _EFFICIENT_LENGTH:
        return []
    heads = int(node.attributes.get("num_heads", 1))
    return [(3 * x.nbytes + 2 * 4 * shape[0] * heads * shape[1] ** 2, "measured")]


@rule("cuda", "com.microsoft.Attention")
def _attention(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:
    """attention.cc: the joint projection, then as MultiHeadAttention on operands that must be transposed."""
    x = graph.values[node.inputs[0]]
    shape = x.shape or ()
    joint = shape_of(graph, node.inputs[1])
    width = joint[-1] if joint else 0
    projected = math.prod(shape[:-1]) * width * element_bytes(graph, node.inputs[0])
    inner = _multi_head(node, graph, settings)
    if x.dtype == "float32" and inner:
        return [(projected, "measured"), *inner]
    return [(projected, "measured"), (projected, "measured"), *inner]


@rule("cuda", "Attention")
def _onnx_attention(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """llm/attention.cc: ONNX's own operator has no projection; bounded by three transposed operands."""
    return [(graph.values[name].nbytes, "bounded") for name in node.inputs[:3] if name]


@rule("cuda", "com.microsoft.GroupQueryAttention")
def _grouped_attention(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """group_query_attention.cc: bounded by transposed operands and unfused scores."""
    x = graph.values[node.inputs[0]]
    shape = x.shape or ()
    heads = int(node.attributes.get("num_heads", 1))
    scores = 2 * shape[0] * heads * shape[1] ** 2 * element_bytes(graph, x.name) if len(shape) == 3 else 0
    return [(3 * x.nbytes, "bounded"), (scores, "bounded")]
