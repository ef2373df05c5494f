"""ONNX's layers as PyTorch code writes them: convolution, pooling, normalization, resizing, recurrent layers.

BatchNormalization normalizes with batch statistics, as a model in training does. Asymmetric padding is a copy
before the layer; symmetric padding is the layer's own.

Source: operator definitions of ONNX (`docs/Operators.md`) and ONNX Runtime (`docs/ContribOperators.md`).
Not modelled: pooling with asymmetric padding pads with zeros, which changes values but no sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from analyzer.capture.lowering.call import NodeCall, Results, lowers, opaque


@lowers("Conv")
def _conv(call: NodeCall, x: Tensor, w: Tensor, b: Tensor | None = None) -> Results:
    rank = w.dim() - 2
    x, padding = _padded(call, x, w.shape[2:], rank)
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    return function(
        x,
        w,
        b,
        call.get("strides", (1,) * rank),
        padding,
        call.get("dilations", (1,) * rank),
        call.get("group", 1),
    )


def _padded(call: NodeCall, x: Tensor, kernel: Sequence[int], rank: int) -> tuple[Tensor, tuple[int, ...]]:
    """Return the input and the symmetric padding PyTorch's kernel gets; asymmetric padding is a copy before
    it."""
    begin, end = _pads(call, x.shape[2:], kernel, rank)
    if begin == end:
        return x, begin
    flat = [size for axis in reversed(range(rank)) for size in (begin[axis], end[axis])]
    return F.pad(x, flat), (0,) * rank


def _pads(
    call: NodeCall, sizes: Sequence[int], kernel: Sequence[int], rank: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each spatial axis, also for `auto_pad`."""
    auto = call.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        pads = tuple(call.get("pads", (0,) * 2 * rank))
        return pads[:rank], pads[rank:]
    if auto == "VALID":
        return (0,) * rank, (0,) * rank
    strides, dilations = call.get("strides", (1,) * rank), call.get("dilations", (1,) * rank)
    total = [
        max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    small, large = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    return (small, large) if auto == "SAME_UPPER" else (large, small)


@lowers("ConvTranspose")
def _conv_transpose(call: NodeCall, x: Tensor, w: Tensor, b: Tensor | None = None) -> Results:
    rank = w.dim() - 2
    strides, dilations = call.get("strides", (1,) * rank), call.get("dilations", (1,) * rank)
    padding = _pads(call, x.shape[2:], w.shape[2:], rank)[0]
    natural = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1
        for n, s, p, d, k in zip(x.shape[2:], strides, padding, dilations, w.shape[2:], strict=True)
    ]
    extra = tuple(max(0, want - have) for want, have in zip(call.shapes[0][2:], natural, strict=True))
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    return function(x, w, b, strides, padding, extra, call.get("group", 1), dilations)


@lowers("MaxPool", "AveragePool")
def _pool(call: NodeCall, x: Tensor) -> Results:
    kernel = call.attributes["kernel_shape"]
    rank = len(kernel)
    x, padding = _padded(call, x, kernel, rank)
    strides, ceil = call.get("strides", (1,) * rank), bool(call.get("ceil_mode", 0))
    if call.name == "AveragePool":
        average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
        return average(x, kernel, strides, padding, ceil, bool(call.get("count_include_pad", 0)))
    largest: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
    results: Results = largest(
        x, kernel, strides, padding, call.get("dilations", 1), ceil, len(call.shapes) > 1
    )
    return results


@lowers("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(call: NodeCall, x: Tensor) -> Results:
    axes = tuple(range(2, x.dim()))
    return x.mean(axes, keepdim=True) if call.name == "GlobalAveragePool" else x.amax(axes, keepdim=True)


@lowers("BatchNormalization")
def _batch_norm(call: NodeCall, x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Results:
    momentum = 1 - call.get("momentum", 0.9)
    # Statistics that the graph computes from weights are statistics all the same: nothing is learnt through
    # them.
    mean, var = (value.detach() if value.requires_grad else value for value in (mean, var))
    result = F.batch_norm(x, mean, var, w, b, training=True, momentum=momentum, eps=call.get("epsilon", 1e-5))
    return (result, mean, var)[: len(call.shapes)]


@lowers("InstanceNormalization")
def _instance_norm(call: NodeCall, x: Tensor, w: Tensor, b: Tensor) -> Results:
    return F.instance_norm(x, None, None, w, b, eps=call.get("epsilon", 1e-5))


@lowers("GroupNormalization")
def _group_norm(call: NodeCall, x: Tensor, w: Tensor, b: Tensor) -> Results:
    groups = call.attributes["num_groups"]
    if w.numel() != x.shape[1]:  # operator set 18: one scale a group
        w, b = (t.repeat_interleave(x.shape[1] // groups) for t in (w, b))
    return F.group_norm(x, groups, w, b, call.get("epsilon", 1e-5))


@lowers("LayerNormalization")
def _layer_norm(call: NodeCall, x: Tensor, w: Tensor, b: Tensor | None = None) -> Results:
    axis = call.get("axis", -1) % x.dim()
    return _with_statistics(call, x, F.layer_norm(x, x.shape[axis:], w, b, call.get("epsilon", 1e-5)))


@lowers("SimplifiedLayerNormalization", "RMSNormalization")
@lowers("SimplifiedLayerNormalization", domain="com.microsoft")
def _rms_norm(call: NodeCall, x: Tensor, w: Tensor) -> Results:
    axis = call.get("axis", -1) % x.dim()
    return _with_statistics(call, x, F.rms_norm(x, x.shape[axis:], w, call.get("epsilon", 1e-5)))


@lowers("SkipLayerNormalization", domain="com.microsoft")
def _skip_layer_norm(
    call: NodeCall, x: Tensor, skip: Tensor, w: Tensor, b: Tensor | None = None, bias: Tensor | None = None
) -> Results:
    total = x + skip if bias is None else x + skip + bias
    result = F.layer_norm(total, total.shape[-1:], w, b, call.get("epsilon", 1e-12))
    return (result, None, None, total)


def _with_statistics(call: NodeCall, x: Tensor, result: Tensor) -> tuple[Tensor, ...]:
    rest = (torch.empty(shape, dtype=torch.float32, device=x.device) for shape in call.shapes[1:3])
    return (result, *rest)


@lowers("Resize", "Upsample")
def _resize(call: NodeCall, x: Tensor, *_: Any) -> Results:
    """Interpolate the spatial axes; opaque where batch or channels change, or another number of axes."""
    mode = call.get("mode", "nearest")
    spatial = x.dim() - 2
    if tuple(x.shape[:2]) != call.shapes[0][:2] or spatial not in (1, 2, 3):
        return opaque(call, x)
    names = {
        "nearest": "nearest",
        "linear": ("linear", "bilinear", "trilinear")[spatial - 1],
        "cubic": "bicubic",
    }
    if mode == "nearest":
        return F.interpolate(x, call.shapes[0][2:], mode="nearest")
    corners = call.get("coordinate_transformation_mode", "half_pixel") == "align_corners"
    return F.interpolate(x, call.shapes[0][2:], mode=names[mode], align_corners=corners)


@lowers("LSTM", "GRU", "RNN")
def _recurrent(
    call: NodeCall, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, *more: Tensor | None
) -> Results:
    """Run one recurrent layer. ONNX's weights [directions, gates * H, ...] become views; results get a
    directions axis."""
    if call.get("layout", 0) or call.get("direction", "forward") == "reverse" or call.get("clip", 0):
        return opaque(call, x, w, r, b, *more)
    directions, hidden = w.shape[0], r.shape[-1]
    flat: list[Tensor] = []
    for direction in range(directions):
        flat += [w[direction], r[direction]]
        if b is not None:
            flat += list(b[direction].chunk(2))
    state = [
        s if s is not None else x.new_zeros(directions, x.shape[1], hidden) for s in (more + (None,) * 3)[1:3]
    ]
    settings = (b is not None, 1, 0.0, True, directions == 2, False)
    library: Any = torch._VF
    if call.name == "LSTM":
        y, *rest = library.lstm(x, state, flat, *settings)
    else:
        y, *rest = (library.gru if call.name == "GRU" else library.rnn_tanh)(x, state[0], flat, *settings)
    return (y.reshape(*y.shape[:2], directions, hidden).transpose(1, 2), *rest)
