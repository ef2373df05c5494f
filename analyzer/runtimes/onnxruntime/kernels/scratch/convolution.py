"""Convolutions: cuDNN's workspace on CUDA, MLAS's column matrix on the CPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from analyzer.libraries.cudnn.frontend_plans import FrontendConvolution, workspace, workspaces
from analyzer.parametric.lanes import Lanes, NotTogether
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import (
    KernelSettings,
    Takes,
    rule,
    shape_of,
)
from analyzer.runtimes.onnxruntime.rewrite.layout import NHWC

_COLUMN_BYTES = 65536


def convolution_of(node: Node, graph: RuntimeGraph) -> FrontendConvolution | None:
    """The node's convolution, channels first, None if its shapes are unknown."""
    x, w, y = (shape_of(graph, name) for name in (node.inputs[0], node.inputs[1], node.outputs[0]))
    nhwc = node.domain == NHWC
    if nhwc and x and y:
        x, y = (x[0], x[-1], *x[1:-1]), (y[0], y[-1], *y[1:-1])
    groups = int(node.attributes.get("group", 1))
    if len(x) < 3 or len(w) != len(x) or len(y) != len(x) or groups < 1:
        return None
    rank = len(x) - 2
    ones = (1,) * rank
    pads = node.ints("pads", (0,) * (2 * rank))
    stride = node.ints("strides", ones)
    dilation = node.ints("dilations", ones)
    auto = node.attributes.get("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            max(0, (y[i + 2] - 1) * stride[i] + (w[i + 2] - 1) * dilation[i] + 1 - x[i + 2])
            for i in range(rank)
        ]
        pads = tuple(t // 2 for t in total) * 2
    return FrontendConvolution(
        node.op == "ConvTranspose", x, w, y, stride, tuple(pads[:rank]), dilation, groups,
        graph.values[node.inputs[0]].dtype, nhwc,
    )  # fmt: skip


@rule("cuda", "Conv", "ConvTranspose")
def _cuda_conv(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:
    """conv.cc: the workspace of the plan that cuDNN's frontend picks for the convolution, as measured
    (`libraries/cudnn/frontend_plans.py`)."""
    found = convolution_of(node, graph)
    if found is None:
        return []
    if any(isinstance(size, Lanes) for size in (*found.x, *found.w, *found.y)):
        return _at_batches(found, settings)
    return [workspace(found, settings.search, settings.device)]


def _at_batches(found: FrontendConvolution, settings: KernelSettings) -> Takes:
    """The same at many batches at once. Raises NotTogether where they differ in more than the batch."""
    batches: tuple[Any, Any] = (found.x[0], found.y[0])
    others: tuple[Any, ...] = (*found.x[1:], *found.w, *found.y[1:])
    if any(isinstance(size, Lanes) for size in others) or not all(isinstance(b, Lanes) for b in batches):
        raise NotTogether
    every = batches[0].values.tolist()
    if every != batches[1].values.tolist():
        raise NotTogether
    nbytes = workspaces(found, every, settings.search, settings.device)
    if max(nbytes) > np.iinfo(np.int64).max:
        raise NotTogether
    size: Any = Lanes(np.array(nbytes, np.int64))
    return [(size, "measured")]


@rule("cpu", "Conv", "com.microsoft.FusedConv")
def _cpu_conv(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:
    """convolve.cpp (MLAS): a product of matrices where the input already is one; with more filters than positions the
    whole column matrix; otherwise a part of it a thread."""
    found = convolution_of(node, graph)
    if found is None:
        return []
    kernel_ones = all(size == 1 for size in found.w[2:])
    if kernel_ones and not any(node.ints("pads")) and all(size == 1 for size in found.stride):
        return []
    positions = math.prod(found.y[2:])
    if found.w[0] // found.groups > positions:
        return [(4 * positions * math.prod(found.w[1:]), "exact")]
    return [(_COLUMN_BYTES * settings.threads, "exact")]


@rule("cpu", "ConvTranspose")
def _cpu_conv_transpose(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """conv_transpose.cc: the column buffer of one image."""
    found = convolution_of(node, graph)
    if found is None:
        return []
    return [(4 * found.w[1] * math.prod(found.w[2:]) * math.prod(found.x[2:]), "exact")]
