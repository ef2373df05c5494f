"""Products of quantized tensors on the CPU provider: sums in 32 bits, columns of 8."""

from __future__ import annotations

import math

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch.convolution import convolution_of
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import Settings, Takes, rule, shape_of


@rule("cpu", "QLinearMatMul")
def _cpu_qlinear_matmul(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """quantize_linear_matmul.cc: the product in 32-bit integers."""
    return [(4 * math.prod(shape_of(graph, node.outputs[0])), "exact")]


@rule("cpu", "ConvInteger")
def _cpu_conv_integer(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """conv_integer.cc: one group's columns of one image, unless the input already is the matrix."""
    found = convolution_of(node, graph)
    if found is None:
        return []
    ones = all(size == 1 for size in found.w[2:])
    if ones and not any(node.ints("pads")) and all(size == 1 for size in found.stride):
        return []
    return [(math.prod(found.w[1:]) * math.prod(found.y[2:]), "exact")]
