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
    """llm/attention.cc: fused kernels take query and result once more, transposed, where these are of four dimensions, and
    a number a row of scores in half precision (flash attention); float32 with fewer key than query heads, and whatever
    returns scores, takes these twice in float32. With a cache it is bounded by both."""
    q, k, v = (graph.values[name] for name in node.inputs[:3])
    result = graph.values[node.outputs[0]]
    rank = len(q.shape or ())
    if q.shape is None or k.shape is None or rank not in (3, 4):
        return [(graph.values[name].nbytes, "bounded") for name in node.inputs[:3] if name]
    heads = q.shape[1] if rank == 4 else int(node.attributes.get("q_num_heads", 1))
    shared = k.shape[1] if rank == 4 else int(node.attributes.get("kv_num_heads", heads))
    rows = q.shape[0] * heads * q.shape[-2]
    past = any(len(node.inputs) > place and node.inputs[place] for place in (4, 5))
    length = k.shape[-2] + (shape_of(graph, node.inputs[4])[-2] if past and node.inputs[4] else 0)
    scores = 2 * 4 * rows * length
    transposed = q.nbytes + result.nbytes if rank == 4 else 0
    sums = 0 if q.dtype == "float32" else 4 * rows
    if past:
        # Measured: below the scores, with short caches; operands are repeated and split besides.
        return [(scores + transposed + sums + k.nbytes + v.nbytes, "bounded")]
    if (len(node.outputs) > 3 and node.outputs[3]) or (q.dtype == "float32" and shared < heads):
        return [(scores, "measured")]
    return [(transposed, "measured"), (sums, "measured")]


@rule("cuda", "com.microsoft.GroupQueryAttention")
def _grouped_attention(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """group_query_attention.cc: bounded by transposed operands and unfused scores."""
    x = graph.values[node.inputs[0]]
    shape = x.shape or ()
    heads = int(node.attributes.get("num_heads", 1))
    scores = 2 * shape[0] * heads * shape[1] ** 2 * element_bytes(graph, x.name) if len(shape) == 3 else 0
    return [(3 * x.nbytes, "bounded"), (scores, "bounded")]
