"""Convolutions: cuDNN's workspace on CUDA, MLAS's column matrix on the CPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from analyzer.libraries.cudnn.choices import UNKNOWN
from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES, Convolution, Question
from analyzer.parametric.lanes import Lanes, NotTogether
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import KernelSettings, Takes, rule, shape_of
from analyzer.runtimes.onnxruntime.rewrite.layout import NHWC

_COLUMN_BYTES = 65536


def convolution_of(node: Node, graph: RuntimeGraph, search: str = "") -> Question | None:
    """Return the node's convolution, channels first, as cuDNN is asked about it; None if its shapes are
    unknown. search: the provider's `cudnn_conv_algo_search`.

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
    operation, dtype = "data" if transposed else "forward", graph.values[node.inputs[0]].dtype
    return Question(Convolution(operation, dtype, nhwc, x, w, padding, stride, dilation), y, search)


@rule("cuda", "Conv", "ConvTranspose")
def _cuda_conv(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:
    """conv.cc: the workspace of the first plan of the heuristics that are searched
    (`cudnn_conv_algo_search`), as cuDNN answers it (`libraries/cudnn/choices.py`)."""
    question = convolution_of(node, graph, settings.search)
    if question is None or question.call.dtype not in ELEMENT_BYTES:
        return []
    each = _at_each_batch(question) if _at_many(question) else [question]
    workspaces = settings.choices.frontend(each)
    known = "bounded" if any(one.source == UNKNOWN for one in workspaces) else "measured"
    # A request that is not made has no range: nothing, where that is a guess, is a byte.
    sizes = [max(one.nbytes, int(one.source == UNKNOWN)) for one in workspaces]
    size: Any = Lanes(np.array(sizes, np.int64)) if _at_many(question) else sizes[0]
    return [(size, known)]


def doubt(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> int:
    """Return the bytes by which the workspace of a convolution cuDNN was not asked about may be larger or
    smaller. A search over many batches at once keeps no ranges."""
    question = convolution_of(node, graph, settings.search)
    if question is None or question.call.dtype not in ELEMENT_BYTES or _at_many(question):
        return 0
    (workspace,) = settings.choices.frontend([question])
    return max(workspace.high_bytes - workspace.nbytes, workspace.nbytes - workspace.low_bytes)


def _at_many(question: Question) -> bool:
    """Return whether a size is another one at each of many batches."""
    sizes = (*question.call.x_shape, *question.call.w_shape, *question.y_shape)
    return any(isinstance(size, Lanes) for size in sizes)


def _at_each_batch(question: Question) -> list[Question]:
    """Return the question at each of many batches. Raises NotTogether if more than the batch differs."""
    call, x, y = question.call, question.call.x_shape[1:], question.y_shape[1:]
    batch: Any = question.call.x_shape[0]
    others: Any = question.y_shape[0]
    if any(isinstance(size, Lanes) for size in (*x, *y, *call.w_shape)):
        raise NotTogether
    if not (isinstance(batch, Lanes) and isinstance(others, Lanes)):
        raise NotTogether
    every = batch.values.tolist()
    if every != others.values.tolist():
        raise NotTogether
    return [question._replace(call=call._replace(x_shape=(one, *x)), y_shape=(one, *y)) for one in every]


@rule("cpu", "Conv", "com.microsoft.FusedConv")
def _cpu_conv(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:
    """convolve.cpp (MLAS): a product of matrices where the input already is one; with more filters than
    positions the whole column matrix; otherwise a part of it a thread."""
    question = convolution_of(node, graph)
    if question is None:
        return []
    kernel_ones = all(size == 1 for size in question.call.w_shape[2:])
    if kernel_ones and not any(node.ints("pads")) and all(size == 1 for size in question.call.stride):
        return []
    positions = math.prod(question.y_shape[2:])
    if question.call.w_shape[0] // question.call.groups > positions:
        return [(4 * positions * math.prod(question.call.w_shape[1:]), "exact")]
    return [(_COLUMN_BYTES * settings.threads, "exact")]


@rule("cpu", "ConvTranspose")
def _cpu_conv_transpose(node: Node, graph: RuntimeGraph, settings: KernelSettings) -> Takes:  # noqa: ARG001
    """conv_transpose.cc: the column buffer of one image."""
    question = convolution_of(node, graph)
    if question is None:
        return []
    return [(4 * math.prod(question.call.w_shape[1:]) * math.prod(question.y_shape[2:]), "exact")]
