"""Attention on the CPU provider."""

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


@rule("cpu", "Attention")
def _cpu_attention(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """llm/attention.cc: the scores of every head, one head's in float32 where they are in half precision, and
    the mask as numbers where it is boolean or made causal."""
    query, key = shape_of(graph, node.inputs[0]), shape_of(graph, node.inputs[1])
    size = element_bytes(graph, node.inputs[0])
    if len(query) not in (3, 4) or len(key) != len(query):
        return []
    heads = int(node.attributes.get("q_num_heads", 0)) if len(query) == 3 else query[1]
    length = query[-2]
    past = shape_of(graph, node.input(4))
    total = key[-2] + (past[2] if len(past) == 4 else 0)
    takes = [(size * query[0] * heads * length * total, "exact")]
    if size < 4:
        takes.append((4 * length * total, "exact"))  # one head's softmax in float32
    causal = bool(node.attributes.get("is_causal", 0)) and length > 1
    mask = node.input(3)
    if mask and (graph.values[mask].dtype == "bool" or causal):
        takes.append((size * math.prod(shape_of(graph, mask)), "exact"))
    elif not mask and causal:
        takes.append((size * length * total, "exact"))
    return takes
