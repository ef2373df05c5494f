"""Scratch the CUDA and CPU kernels take from the arena while they run.

1. A rule, one topic a file, sizes the scratch of an operator's kernel (`registry`). Operators without a rule
   take none: their kernels (elementwise, normalisation, copies, matrix products, whose workspace cuBLAS keeps
   outside the arena) declare no scratch in the sources below.
2. For an operator with unknown kernels only the results are counted, and it is named.

Source: `core/providers/cuda/{nn,math,tensor,rnn,reduction}`, `contrib_ops/cuda`, `core/providers/cpu`,
`core/mlas/lib/convolve.cpp`; convolutions: `libraries/cudnn/choices.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from analyzer.onnx.shapes import extensions
from analyzer.onnx.shapes.contrib import IN_DEFAULT_DOMAIN
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels import registered
from analyzer.runtimes.onnxruntime.kernels.scratch import (
    attention,
    convolution,
    cpu_arithmetic,
    cpu_attention,
    cpu_integer,
    cpu_recurrent,
    cpu_resize,
    products,
    recurrent,
    reduction,
    tables,
)
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import RULES, KernelSettings, Takes
from analyzer.runtimes.onnxruntime.rewrite.layout import NHWC

__all__ = ["RULES", "KernelSettings", "Takes", "before_outputs", "scratch", "takes_scratch", "unknown"]

# The topics register their rules when they are imported.
_TOPICS = (attention, convolution, products, recurrent, reduction, tables)
_CPU_TOPICS = (cpu_arithmetic, cpu_attention, cpu_integer, cpu_recurrent, cpu_resize)
_KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", NHWC})
# Copies between host and device that ONNX Runtime inserts (`rewrite/copies.py`): the result, and nothing
# besides.
_COPIES = frozenset({"MemcpyFromHost", "MemcpyToHost"})
_KNOWN_CONTRIB = """
    Attention BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu DequantizeLinear EmbedLayerNormalization
    FastGelu FusedConv FusedGemm FusedMatMul FusedMatMulActivation GatherBlockQuantized Gelu
    GroupQueryAttention MatMulNBits MultiHeadAttention QuantizeLinear DynamicQuantizeMatMul
    MatMulIntegerToFloat QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearConv
    QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax
    QLinearWhere QuickGelu RotaryEmbedding SimplifiedLayerNormalization SkipLayerNormalization
    SkipSimplifiedLayerNormalization
"""
KNOWN_CONTRIB = frozenset(_KNOWN_CONTRIB.split())


def scratch(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:
    """Return the (bytes, basis) of scratch buffers the node's kernel takes besides its outputs, if known."""
    rule = RULES[node.provider].get(node.kernel)
    return [] if rule is None else [(n, basis) for n, basis in rule.takes(node, graph, settings) if n > 0]


def takes_scratch(node: Node) -> bool:
    """Return whether the node may need scratch at some size, or nothing is known of it."""
    return node.kernel in RULES[node.provider] or unknown(node)


def unknown(node: Node) -> bool:
    """Operators whose kernels these rules know nothing of: custom domains, rarer contrib operators, names
    ONNX does not know, functions of ONNX that no provider has a kernel for and that kept their place
    (`rewrite/bodies.py`)."""
    if node.domain == "com.microsoft":
        return node.op not in KNOWN_CONTRIB
    if node.domain in extensions.DOMAINS:
        return not extensions.known(node.op)
    if not node.domain and not _in_onnx(node.op):
        return node.op not in IN_DEFAULT_DOMAIN and node.op not in _COPIES
    if node.kernel == node.op and _is_function(node.op):
        return not any(registered.knows(provider, "", node.op) for provider in (node.provider, "cpu"))
    return node.domain not in _KNOWN_DOMAINS


@lru_cache(maxsize=1024)
def _in_onnx(op: str) -> bool:
    import onnx

    return bool(onnx.defs.has(op))


@lru_cache(maxsize=1024)
def _is_function(op: str) -> bool:
    import onnx

    if not onnx.defs.has(op):
        return False
    schema: Any = onnx.defs.get_schema(op)
    return bool(schema.has_function or schema.has_context_dependent_function)


def before_outputs(node: Node) -> bool:
    """Return whether the kernel takes its scratch before its outputs."""
    rule = RULES[node.provider].get(node.kernel)
    return rule is not None and rule.before_outputs
