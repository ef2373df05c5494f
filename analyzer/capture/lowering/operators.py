"""ONNX's pointwise, shape, indexing, matrix and reduction operators as PyTorch code writes them.

Where PyTorch has one kernel for the operator, that one is called: Gemm is `addmm`, a Gather of rows
`embedding`.

Source: operator definitions of ONNX (`docs/Operators.md`) and ONNX Runtime (`docs/ContribOperators.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from analyzer.capture.lowering.call import FUNCTIONS, NodeCall, Results, lowers, opaque, torch_dtype


def _simple(domain: str = "", **functions: Callable[..., Tensor]) -> None:
    """Register operators that are one call on their inputs."""
    for name, function in functions.items():
        FUNCTIONS[domain, name] = lambda _call, *inputs, function=function: function(*inputs)


_simple(
    Abs=torch.abs,
    Acos=torch.acos,
    Add=torch.add,
    And=torch.logical_and,
    Asin=torch.asin,
    Atan=torch.atan,
    Ceil=torch.ceil,
    Cos=torch.cos,
    Cosh=torch.cosh,
    Div=torch.div,
    Equal=torch.eq,
    Erf=torch.erf,
    Exp=torch.exp,
    Floor=torch.floor,
    Greater=torch.gt,
    GreaterOrEqual=torch.ge,
    HardSwish=F.hardswish,
    Identity=lambda x: x,
    IsNaN=torch.isnan,
    Less=torch.lt,
    LessOrEqual=torch.le,
    Log=torch.log,
    MatMul=torch.matmul,
    Mish=F.mish,
    Mul=torch.mul,
    Neg=torch.neg,
    Not=torch.logical_not,
    Or=torch.logical_or,
    Pow=torch.pow,
    Reciprocal=torch.reciprocal,
    Relu=torch.relu,
    Round=torch.round,
    Sigmoid=torch.sigmoid,
    Sign=torch.sign,
    Sin=torch.sin,
    Sinh=torch.sinh,
    Softplus=F.softplus,
    Softsign=F.softsign,
    Sqrt=torch.sqrt,
    Sub=torch.sub,
    Tan=torch.tan,
    Tanh=torch.tanh,
    Where=torch.where,
    Xor=torch.logical_xor,
)
_simple("com.microsoft", Gelu=F.gelu, BiasGelu=lambda x, b: F.gelu(x + b), Inverse=torch.inverse)


@lowers("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshape(call: NodeCall, x: Tensor, *_: Any) -> Results:
    return x.reshape(call.shapes[0])


@lowers("Expand")
def _expand(call: NodeCall, x: Tensor, *_: Any) -> Results:
    return x.expand(call.shapes[0])


@lowers("ConstantOfShape")
def _constant_of_shape(call: NodeCall, shape: Tensor) -> Results:
    return torch.zeros(call.shapes[0], dtype=torch_dtype(call.dtypes[0]), device=shape.device)


@lowers("Cast", "CastLike")
def _cast(call: NodeCall, x: Tensor, *_: Any) -> Results:
    return x.to(torch_dtype(call.dtypes[0]))


@lowers("Transpose")
def _transpose(call: NodeCall, x: Tensor) -> Results:
    return x.permute(call.get("perm", tuple(reversed(range(x.dim())))))


@lowers("Dropout")
def _dropout(call: NodeCall, x: Tensor, *_: Any) -> Results:
    ratio = call.constant(1)
    result = F.dropout(x, call.get("ratio", 0.5) if ratio is None else ratio, training=True)
    return (
        (result, torch.empty(call.shapes[1], dtype=torch.bool, device=x.device))
        if len(call.shapes) > 1
        else result
    )


@lowers("Min", "Max", "Sum", "Mean")
def _variadic(call: NodeCall, x: Tensor, *more: Tensor) -> Results:
    """Lower Sum, Mean, Min and Max of any number of tensors."""
    pairwise = {"Min": torch.minimum, "Max": torch.maximum}.get(call.name, torch.add)
    for y in more:
        x = pairwise(x, y)
    return x / (1 + len(more)) if call.name == "Mean" else x


@lowers("Mod")
def _mod(call: NodeCall, x: Tensor, y: Tensor) -> Results:
    return torch.fmod(x, y) if call.get("fmod", 0) else torch.remainder(x, y)


@lowers("Clip")
def _clip(call: NodeCall, x: Tensor, *_: Any) -> Results:
    low, high = call.get("min", call.constant(1)), call.get("max", call.constant(2))
    return torch.clamp(x, low, high) if low is not None or high is not None else x


@lowers("Gelu")
@lowers("FastGelu", domain="com.microsoft")
def _gelu(call: NodeCall, x: Tensor, bias: Tensor | None = None) -> Results:
    x = x if bias is None else x + bias
    return F.gelu(x, approximate="tanh" if call.name == "FastGelu" else call.get("approximate", "none"))


@lowers("QuickGelu", domain="com.microsoft")
def _quick_gelu(call: NodeCall, x: Tensor) -> Results:
    return x * torch.sigmoid(call.get("alpha", 1.702) * x)


@lowers("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "Selu", "HardSigmoid", "Shrink")
def _activation(call: NodeCall, x: Tensor) -> Results:
    if call.name == "LeakyRelu":
        return F.leaky_relu(x, call.get("alpha", 0.01))
    if call.name == "Elu":
        return F.elu(x, call.get("alpha", 1.0))
    if call.name == "Celu":
        return F.celu(x, call.get("alpha", 1.0))
    if call.name == "Selu":
        return F.selu(x)
    if call.name == "HardSigmoid":
        return F.hardsigmoid(x)
    if call.name == "Shrink":
        return F.hardshrink(x, call.get("lambd", 0.5))
    return F.threshold(x, call.get("alpha", 1.0), 0.0)


@lowers("PRelu")
def _prelu(_call: NodeCall, x: Tensor, slope: Tensor) -> Results:
    channels = x.shape[1] if x.dim() > 1 else 1
    if slope.numel() == 1 or (
        slope.numel() == channels and slope.dim() == x.dim() - 1 and slope.shape[0] == channels
    ):
        return F.prelu(x, slope.reshape(-1))
    return torch.where(x > 0, x, slope * x)


@lowers("Softmax", "LogSoftmax")
def _softmax(call: NodeCall, x: Tensor) -> Results:
    return (F.softmax if call.name == "Softmax" else F.log_softmax)(x, call.get("axis", -1))


@lowers("Gemm")
def _gemm(call: NodeCall, a: Tensor, b: Tensor, c: Tensor | None = None) -> Results:
    a = a.t() if call.get("transA", 0) else a
    b = b.t() if call.get("transB", 0) else b
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    if c is None:
        return a @ b if alpha == 1 else alpha * (a @ b)
    return torch.addmm(c, a, b, beta=beta, alpha=alpha)


@lowers("FusedMatMul", "TransposeMatMul", domain="com.microsoft")
def _fused_matmul(call: NodeCall, a: Tensor, b: Tensor) -> Results:
    a = a.transpose(-1, -2) if call.get("transA", 0) else a
    b = b.transpose(-1, -2) if call.get("transB", 0) else b
    alpha = call.get("alpha", 1.0)
    return torch.matmul(a, b) if alpha == 1 else alpha * torch.matmul(a, b)


@lowers("Einsum")
def _einsum(call: NodeCall, *inputs: Tensor) -> Results:
    return torch.einsum(call.attributes["equation"], *inputs)


@lowers("Concat")
def _concat(call: NodeCall, *inputs: Tensor) -> Results:
    return torch.cat(inputs, call.attributes["axis"])


@lowers("Split")
def _split(call: NodeCall, x: Tensor, *_: Any) -> Results:
    axis = call.get("axis", 0)
    return torch.split(x, [shape[axis % x.dim()] for shape in call.shapes], axis)


@lowers("Slice")
def _slice(call: NodeCall, x: Tensor, *_: Any) -> Results:
    """Slice by known bounds; a negative step flips the axis first, since PyTorch's slices only go forward."""
    starts = call.get("starts", call.constant(1))
    ends = call.get("ends", call.constant(2))
    if starts is None or ends is None:
        return opaque(call, x)
    axes = call.get("axes", call.constant(3)) or range(len(starts))
    steps = call.constant(4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0:
            x = x.flip(axis)
            size = x.shape[axis]
            low, high = (
                max(-1, min(size - 1, v + size if v < 0 else v)) for v in (start, max(end, -size - 1))
            )
            end = size - 1 - high if end >= -size else size  # noqa: PLW2901
            start, step = size - 1 - low, -step  # noqa: PLW2901
        index = [slice(None)] * x.dim()
        index[axis] = slice(start, end, step)
        x = x[tuple(index)]
    return x


@lowers("Gather")
def _gather(call: NodeCall, x: Tensor, indices: Tensor) -> Results:
    axis = call.get("axis", 0) % x.dim()
    constant = call.constant(1)
    if isinstance(constant, int):
        return x.select(axis, constant)
    if axis == 0 and x.dim() == 2:
        return F.embedding(indices, x)
    return x.index_select(axis, indices.reshape(-1)).reshape(call.shapes[0])


@lowers("GatherElements")
def _gather_elements(call: NodeCall, x: Tensor, indices: Tensor) -> Results:
    return torch.gather(x, call.get("axis", 0), indices.to(torch.int64))


@lowers("ScatterElements")
def _scatter_elements(call: NodeCall, x: Tensor, indices: Tensor, updates: Tensor) -> Results:
    return torch.scatter(x, call.get("axis", 0), indices.to(torch.int64), updates)


@lowers("GatherND")
def _gather_nd(call: NodeCall, x: Tensor, indices: Tensor) -> Results:
    if call.get("batch_dims", 0):
        return opaque(call, x, indices)
    return x[tuple(indices.unbind(-1))]


@lowers("ScatterND")
def _scatter_nd(_call: NodeCall, x: Tensor, indices: Tensor, updates: Tensor) -> Results:
    return torch.index_put(x, tuple(indices.unbind(-1)), updates)


@lowers("Tile")
def _tile(call: NodeCall, x: Tensor, *_: Any) -> Results:
    return x.repeat([have // size if size else 1 for have, size in zip(call.shapes[0], x.shape, strict=True)])


@lowers("Pad")
def _pad(call: NodeCall, x: Tensor, *_: Any) -> Results:
    """Pad by known widths; modes but "constant" take no trailing axes without padding."""
    pads = call.get("pads", call.constant(1))
    if pads is None:
        return opaque(call, x)
    axes = call.constant(3) or range(x.dim())
    before, after = [0] * x.dim(), [0] * x.dim()
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    flat = [size for axis in reversed(range(x.dim())) for size in (before[axis], after[axis])]
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}[
        call.get("mode", "constant")
    ]
    while mode != "constant" and len(flat) > 2 and flat[-2:] == [0, 0]:
        flat = flat[:-2]
    return F.pad(x, flat, mode)


@lowers(
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL2",
    "ReduceL1",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)
def _reduce(call: NodeCall, x: Tensor, *_: Any) -> Any:
    axes, keep = call.axes(x.dim()), bool(call.get("keepdims", 1))
    if not call.get("axes", call.constant(1)) and call.get("noop_with_empty_axes", 0):
        return x
    match call.name:
        case "ReduceMean":
            return x.mean(axes, keepdim=keep)
        case "ReduceSum":
            return x.sum(axes, keepdim=keep)
        case "ReduceMax":
            return x.amax(axes, keepdim=keep)
        case "ReduceMin":
            return x.amin(axes, keepdim=keep)
        case "ReduceL2":
            return torch.linalg.vector_norm(x, 2, axes, keep)
        case "ReduceL1":
            return torch.linalg.vector_norm(x, 1, axes, keep)
        case "ReduceLogSumExp":
            return torch.logsumexp(x, axes, keep)
        case "ReduceSumSquare":
            return (x * x).sum(axes, keepdim=keep)
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


@lowers("ArgMax", "ArgMin")
def _arg(call: NodeCall, x: Tensor) -> Results:
    return (torch.argmax if call.name == "ArgMax" else torch.argmin)(
        x, call.get("axis", 0), bool(call.get("keepdims", 1))
    )


@lowers("CumSum")
def _cumsum(call: NodeCall, x: Tensor, *_: Any) -> Results:
    axis = call.constant(1)
    return torch.cumsum(x, int(axis[0] if isinstance(axis, list) else axis or 0), dtype=x.dtype)


@lowers("TopK")
def _top_k(call: NodeCall, x: Tensor, *_: Any) -> Results:
    axis = call.get("axis", -1) % x.dim()
    return torch.topk(
        x, call.shapes[0][axis], axis, bool(call.get("largest", 1)), bool(call.get("sorted", 1))
    )


@lowers("Trilu")
def _trilu(call: NodeCall, x: Tensor, *_: Any) -> Results:
    return (torch.triu if call.get("upper", 1) else torch.tril)(x, int(call.constant(1) or 0))
