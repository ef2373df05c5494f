"""Convolutions: cuDNN's workspace on CUDA, MLAS's column matrix on the CPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from analyzer.libraries.cudnn.choices import UNKNOWN, Workspace, choices_of
from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES, Question
from analyzer.parametric.lanes import Lanes, NotTogether
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import KernelSettings, Takes, rule, shape_of
from analyzer.runtimes.onnxruntime.rewrite.layout import NHWC

_COLUMN_BYTES = 65536


def convolution_of(node: Node, graph: RuntimeGraph) -> Question | None:
    """Return the node's convolution, channels first, as cuDNN is asked about it; None if its shapes are
    unknown.

    ConvTranspose is the gradient of the input of the convolution that makes its input of its output.
    """
    x, w, y = (shape_of(graph, name) for name in (node.inputs[0], node.inputs[1], node.outputs[0]))
    nhwc = node.domain == NHWC
    if nhwc and x and y:
        x, y = (x[0], x[-1], *x[1:-1]), (y[0], y[-1], *y[1:-1])
    if len(x) < 3 or len(w) != len(x) or len(y) != len(x) or int(node.attributes.get("group", 1)) < 1:
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
    padding = tuple(pads[:rank])
    if rank == 1:  # the provider gives it a trailing axis of 1
        x, w, y = (*x, 1), (*w, 1), (*y, 1)
        stride, padding, dilation = (*stride, 1), (*padding, 0), (*dilation, 1)
    transposed = node.op == "ConvTranspose"
    if transposed:
        x, y = y, x
    if not 0 < w[1] <= x[1]:  # no session takes such a file
        return None
    return Question(
        "",
        "data" if transposed else "forward",
        graph.values[node.inputs[0]].dtype,
        nhwc,
        x,
        w,
        y,
        padding,
        stride,
        dilation,
    )


@rule("cuda", "Conv", "ConvTranspose")
def _cuda_conv(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:
    """conv.cc: the workspace of the first plan of the heuristics that are searched
    (`cudnn_conv_algo_search`), as cuDNN answers it (`libraries/cudnn/choices.py`)."""
    call = convolution_of(node, graph)
    if call is None or call.dtype not in ELEMENT_BYTES:
        return []
    if _at_many(call):
        return _at_batches(call._replace(searcher=settings.search), settings)
    taken = _taken(call, settings)
    return [(taken.nbytes, "bounded" if taken.source == UNKNOWN else "measured")]


def doubt(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> int:
    """Return the bytes by which the workspace of a convolution cuDNN was not asked about may be larger or
    smaller. A search over many batches at once keeps no ranges."""
    call = convolution_of(node, graph)
    if call is None or call.dtype not in ELEMENT_BYTES or _at_many(call):
        return 0
    taken = _taken(call, settings)
    return max(taken.high_bytes - taken.nbytes, taken.nbytes - taken.low_bytes)


def _at_many(question: Question) -> bool:
    """Return whether a size is another one at each of many batches."""
    return any(isinstance(size, Lanes) for size in (*question.x_shape, *question.w_shape, *question.y_shape))


def _taken(question: Question, settings: KernelSettings) -> Workspace:
    (taken,) = choices_of(settings.device).frontend([question._replace(searcher=settings.search)])
    return taken


def _at_batches(question: Question, settings: KernelSettings) -> Takes:
    """Return the same at many batches at once. Raises NotTogether if more than the batch differs."""
    batches: tuple[Any, Any] = (question.x_shape[0], question.y_shape[0])
    others: tuple[Any, ...] = (*question.x_shape[1:], *question.w_shape, *question.y_shape[1:])
    if any(isinstance(size, Lanes) for size in others) or not all(isinstance(b, Lanes) for b in batches):
        raise NotTogether
    every = batches[0].values.tolist()
    if every != batches[1].values.tolist():
        raise NotTogether
    workspaces = choices_of(settings.device).frontend(
        [
            question._replace(x_shape=(batch, *question.x_shape[1:]), y_shape=(batch, *question.y_shape[1:]))
            for batch in every
        ]
    )
    basis = "bounded" if any(taken.source == UNKNOWN for taken in workspaces) else "measured"
    size: Any = Lanes(np.array([taken.nbytes for taken in workspaces], np.int64))
    return [(size, basis)]


@rule("cpu", "Conv", "com.microsoft.FusedConv")
def _cpu_conv(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:
    """convolve.cpp (MLAS): a product of matrices where the input already is one; with more filters than
    positions the whole column matrix; otherwise a part of it a thread."""
    call = convolution_of(node, graph)
    if call is None:
        return []
    kernel_ones = all(size == 1 for size in call.w_shape[2:])
    if kernel_ones and not any(node.ints("pads")) and all(size == 1 for size in call.stride):
        return []
    positions = math.prod(call.y_shape[2:])
    if call.w_shape[0] // call.convolution().groups > positions:
        return [(4 * positions * math.prod(call.w_shape[1:]), "exact")]
    return [(_COLUMN_BYTES * settings.threads, "exact")]


@rule("cpu", "ConvTranspose")
def _cpu_conv_transpose(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """conv_transpose.cc: the column buffer of one image."""
    call = convolution_of(node, graph)
    if call is None:
        return []
    return [(4 * call.w_shape[1] * math.prod(call.w_shape[2:]) * math.prod(call.y_shape[2:]), "exact")]
