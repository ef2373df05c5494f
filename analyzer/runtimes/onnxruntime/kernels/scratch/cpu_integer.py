"""Operators on quantized tensors on the CPU provider: sums in 32 bits, columns and transposed images in 8."""

from __future__ import annotations

import math

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.packing import symmetric
from analyzer.runtimes.onnxruntime.kernels.scratch.convolution import convolution_of
from analyzer.runtimes.onnxruntime.kernels.scratch.cpu_arithmetic import broadcast
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import KernelSettings, Takes, rule, shape_of

_POINTER_BYTES = 8


@rule("cpu", "QLinearMatMul")
def _cpu_qlinear_matmul(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """quantize_linear_matmul.cc: the product in 32-bit integers."""
    return [(4 * math.prod(shape_of(graph, node.outputs[0])), "exact")]


@rule("cpu", "ConvInteger")
def _cpu_conv_integer(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """conv_integer.cc: one group's columns of one image, unless the input already is the matrix."""
    question = convolution_of(node, graph)
    if question is None:
        return []
    ones = all(size == 1 for size in question.call.w_shape[2:])
    if ones and not any(node.ints("pads")) and all(size == 1 for size in question.call.stride):
        return []
    return [(math.prod(question.call.w_shape[1:]) * math.prod(question.y_shape[2:]), "exact")]


@rule("cpu", "QLinearConv", "com.microsoft.QLinearConv")
def _cpu_qlinear_conv(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """qlinearconv.cc: filters that are no constants in another order; one image's sums in 32 bits unless
    products are symmetric; input and result of one image with channels last; pointers to the input for
    depthwise and symmetric convolutions, columns for others that are not pointwise."""
    x, w, y = (shape_of(graph, name) for name in (node.inputs[0], node.inputs[3], node.outputs[0]))
    last = bool(node.attributes.get("channels_last", 0))
    if last and x and y:
        x, y = (x[0], x[-1], *x[1:-1]), (y[0], y[-1], *y[1:-1])
    groups = int(node.attributes.get("group", 1))
    if len(w) < 3 or len(x) != len(w) or len(y) != len(w) or groups < 1 or not math.prod(y):
        return []
    constant = graph.is_constant(node.inputs[3])
    by_symmetry = symmetric(node, graph)
    taps, positions = math.prod(w[2:]), math.prod(y[2:])
    one_each = w[1] == 1 and w[0] == groups
    takes = [] if constant else [math.prod(w)]
    if not by_symmetry:
        takes.append(4 * w[0] * positions)
    if not last:
        takes += [math.prod(x[1:]), w[0] * positions]
    pointwise = (
        taps == 1 and not any(node.ints("pads")) and all(stride == 1 for stride in node.ints("strides"))
    )
    if one_each or (by_symmetry and not pointwise):
        images = x[0] if by_symmetry and last else 1
        takes.append(_POINTER_BYTES * taps * positions * images)
    elif not pointwise:
        takes.append(w[1] * taps * positions * (groups if len(w) > 4 else 1))
    return [(nbytes, "exact") for nbytes in takes]


@rule("cpu", "com.microsoft.DynamicQuantizeMatMul", before_outputs=True)
def _cpu_dynamic_matmul(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """dynamic_quantize_matmul.cc: the left operand in 8 bits."""
    return [(math.prod(shape_of(graph, node.inputs[0])), "exact")]


@rule("cpu", "com.microsoft.QGemm")
def _cpu_qgemm(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """quant_gemm.cc: operands that are read transposed, in the other order, unless packed; the product in
    32-bit integers if the result is quantized."""
    takes = []
    if node.attributes.get("transA", 0):
        takes.append(math.prod(shape_of(graph, node.inputs[0])))
    packed = graph.is_constant(node.inputs[3]) and graph.values[node.inputs[0]].dtype != "int8"
    if node.attributes.get("transB", 0) and not packed:
        takes.append(math.prod(shape_of(graph, node.inputs[3])))
    if node.input(7):
        takes.append(4 * math.prod(shape_of(graph, node.outputs[0])))
    return [(nbytes, "exact") for nbytes in takes]


@rule("cpu", "com.microsoft.QLinearAveragePool")
def _cpu_qlinear_pool(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """qlinear_pool.cc: the input as float32, unless the window is the whole image."""
    x = shape_of(graph, node.inputs[0])
    spatial = x[1:-1] if node.attributes.get("channels_last", 0) else x[2:]
    if not x or (node.ints("kernel_shape") == tuple(spatial) and not any(node.ints("pads"))):
        return []
    return [(4 * math.prod(x), "exact")]


@rule("cpu", "com.microsoft.QLinearSoftmax")
def _cpu_qlinear_softmax(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """qlinear_softmax.cc: over another axis than the last, input and result once more, transposed."""
    shape = shape_of(graph, node.inputs[0])
    if int(node.attributes.get("opset", 1)) < 13 or not shape:
        return []
    axis = int(node.attributes.get("axis", -1)) % len(shape)
    return [] if axis == len(shape) - 1 else [(math.prod(shape), "exact")] * 2


@rule("cpu", "com.microsoft.QLinearWhere", before_outputs=True)
def _cpu_qlinear_where(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """qlinear_where.cc: the choice from each operand, broadcast with the condition, in 8 bits."""
    condition = shape_of(graph, node.inputs[0])
    operands = (shape_of(graph, node.inputs[place]) for place in (1, 4))
    return [(math.prod(broadcast(condition, operand)), "exact") for operand in operands]
