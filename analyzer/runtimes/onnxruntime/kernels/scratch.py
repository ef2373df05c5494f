"""Scratch the CUDA and CPU kernels take from the arena while they run.

A rule is a function (node, graph, settings) -> [(bytes, basis), ...]: memory taken after the outputs, in order, given
back when the kernel returns. Operators without a rule take none: their kernels (elementwise, normalisation, copies,
matrix products, whose workspace cuBLAS keeps outside the arena) declare no scratch in the sources below.

Source: `core/providers/cuda/{nn,math,tensor,rnn,reduction}`, `contrib_ops/cuda`, `core/providers/cpu/nn/conv.cc`,
`core/mlas/lib/convolve.cpp`; convolutions: `convolution.py`.

Not modelled: attention kernels that load cuDNN or cutlass plans (bounded by their unfused intermediates).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from analyzer.devices import DeviceProfile
from analyzer.graph import dtype_bits
from analyzer.libraries.cudnn.frontend_plans import Convolution, workspace
from analyzer.onnx.shapes.contrib import IN_DEFAULT_DOMAIN
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels import packing
from analyzer.runtimes.onnxruntime.kernels.einsum import temporaries
from analyzer.runtimes.onnxruntime.rewrite.layout import NHWC

Takes = list[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Settings:
    """What decides scratch: provider, convolution search mode, device, threads of the CPU provider."""

    provider: str
    search: str
    device: DeviceProfile
    threads: int = 1


Rule = Callable[[Node, RuntimeGraph, Settings], Takes]


def scratch(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:
    """What the node's kernel takes besides its outputs."""
    if unknown(node):
        return _everything(node, graph)
    rule = (_CUDA if node.provider == "cuda" else _CPU).get(node.op)
    return [] if rule is None else [(n, basis) for n, basis in rule(node, graph, settings) if n > 0]


def unknown(node: Node) -> bool:
    """Operators whose kernels these rules know nothing of: custom domains, rarer contrib operators, names ONNX does not
    know, functions that ONNX Runtime expands (`rewrite/bodies.py` names them)."""
    if node.domain == "com.microsoft":
        return node.op not in _KNOWN_CONTRIB
    if not node.domain and not _in_onnx(node.op):
        return node.op not in IN_DEFAULT_DOMAIN
    return node.domain not in _KNOWN_DOMAINS or node.op in _EXPANDED


@lru_cache(maxsize=1024)
def _in_onnx(op: str) -> bool:
    import onnx

    return bool(onnx.defs.has(op))


def _everything(node: Node, graph: RuntimeGraph) -> Takes:
    """A bound for an unknown kernel: every operand and result once more."""
    names = dict.fromkeys(name for name in (*node.inputs, *node.outputs) if name)
    return [(sum(graph.values[name].nbytes for name in names), "bounded")]


def before_outputs(node: Node) -> bool:
    """Kernels that take their scratch before their outputs."""
    return node.op in _BEFORE_OUTPUTS[node.provider]


def _shape(graph: RuntimeGraph, name: str) -> tuple[int, ...]:
    return graph.values[name].shape or () if name else ()


def _element_bytes(graph: RuntimeGraph, name: str) -> int:
    return max(1, dtype_bits(graph.values[name].dtype or "float32") // 8)


def convolution_of(node: Node, graph: RuntimeGraph) -> Convolution | None:
    """The node's convolution, channels first, None if its shapes are unknown."""
    x, w, y = (_shape(graph, name) for name in (node.inputs[0], node.inputs[1], node.outputs[0]))
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
    return Convolution(
        node.op == "ConvTranspose", x, w, y, stride, tuple(pads[:rank]), dilation, groups,
        graph.values[node.inputs[0]].dtype, nhwc,
    )  # fmt: skip


def _cuda_conv(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:
    found = convolution_of(node, graph)
    return [] if found is None else [workspace(found, settings.search, settings.device)]


def _cpu_conv(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:
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


def _cpu_bias_gelu(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """bias_gelu.cc: the biased input."""
    return [(graph.values[node.inputs[0]].nbytes, "exact")]


def _cpu_where(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """where_op.cc: the choice from each operand, then their merge."""
    return [(graph.values[node.outputs[0]].nbytes, "exact")] * 2


def _cpu_conv_transpose(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """conv_transpose.cc: the column buffer of one image."""
    found = convolution_of(node, graph)
    if found is None:
        return []
    return [(4 * found.w[1] * math.prod(found.w[2:]) * math.prod(found.x[2:]), "exact")]


def _recurrent(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:
    """cudnn_rnn_base.cc: sequence lengths, Y where the model does not ask for it, weights in cuDNN's layout unless
    cached, cuDNN's work space, and Y once more to reorder two directions. The work space is a fit without residue to
    246 measurements (H200, cuDNN 9.19; LSTM, GRU, RNN; `tests/data/ort/kernels.json.gz`)."""
    x, w = _shape(graph, node.inputs[0]), _shape(graph, node.inputs[1])
    size = _element_bytes(graph, node.inputs[0])
    hidden = int(node.attributes.get("hidden_size", 0))
    if len(x) != 3 or len(w) != 3 or hidden <= 0:
        return []
    steps, batch, features = x
    directions, gates = w[0], w[1] // hidden
    state = steps * batch * hidden * directions
    takes: Takes = [(4 * batch, "exact")]
    if not node.outputs[0]:
        takes.append((size * state, "exact"))
    if not all(name in graph.initializers for name in node.inputs[1:3]):
        takes += [(nbytes, "exact") for nbytes in packing.recurrent(node, graph)]
    one = (
        _RECURRENT_BYTES // 4
        + gates * hidden * (features + hidden)
        + (gates + 1) * steps * batch * hidden
        + (gates + (6 if node.op == "LSTM" else 2)) * batch * hidden
    )
    both = 4 * batch * hidden * (steps + 1) if directions == 2 else 0
    work = size * (directions * one + both + steps * batch * features) + 256 + -(-8 * batch // 32) * 32
    basis = "measured" if settings.device.name == "h200" and size == 4 else "bounded"
    takes.append((work, basis))
    return [*takes, (size * state, "exact")] if directions == 2 else takes


def _reduce(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """reduction_ops.cc: sums and means over leading axes need nothing, over trailing ones partial sums and a counter a
    row (reduction_functions.cu); everything else a copy of the input for cuDNN."""
    source = graph.values[node.inputs[0]]
    shape = source.shape or ()
    axes = _axes(node, graph, len(shape))
    if axes is None:
        return [(source.nbytes, "bounded")]
    if len(axes) == len(shape) or not shape:
        return [] if node.op in _SUMS else [(source.nbytes, "exact")]
    if node.op in _SUMS:
        wide = [axis for axis, size in enumerate(shape) if size != 1]
        reduced = [axis for axis in wide if axis in axes]
        if not reduced and axes:
            reduced, wide = sorted(axes), list(range(len(shape)))
        if wide and reduced == wide[: len(reduced)] and len(reduced) < len(wide):
            kept = [axis for axis in wide if axis not in reduced]
            if kept == wide[len(reduced) :] and any(shape[axis] != 1 for axis in reduced):
                return []
        if (
            not wide
            or reduced == wide[len(wide) - len(reduced) :]
            or all(shape[axis] == 1 for axis in reduced)
        ):
            columns = math.prod(shape[axis] for axis in reduced)
            rows = math.prod(shape) // max(columns, 1)
            blocks = min(max(columns // 1024, 1), 256)
            return [(rows * 4 * (blocks + 1) + 15, "exact")]
    return [(source.nbytes, "exact")]


def _axes(node: Node, graph: RuntimeGraph, rank: int) -> list[int] | None:
    """The axes of a reduction; all of them if none are given."""
    axes = node.attributes.get("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1]:
        data = graph.constant(node.inputs[1])
        if data is None:
            return None
        axes = [int(axis) for axis in data.reshape(-1)]
    return sorted(int(axis) % rank for axis in axes) if axes else list(range(rank))


def _arg(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """reduction_ops.cc (ArgMax, ArgMin): the last axis by partial results, others by cuDNN."""
    source = graph.values[node.inputs[0]]
    shape = source.shape or (1,)
    axis = int(node.attributes.get("axis", 0)) % len(shape)
    rows = math.prod(shape) // max(shape[axis], 1)
    if axis == len(shape) - 1:
        return [(rows * (8 * min(max(shape[axis] // 1024, 1), 256) + 4) + 15, "exact")]
    return [(2 * source.nbytes, "exact"), (4 * rows, "exact"), (4 * rows, "exact")]


def _softmax(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """softmax.cc: another axis than the last is transposed there and back."""
    source = graph.values[node.inputs[0]]
    rank = len(source.shape or ())
    if graph.opset < 13 or not rank or int(node.attributes.get("axis", -1)) % rank == rank - 1:
        return []
    return [(source.nbytes, "exact")] * 2


def _concat(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """concat.cc: equal pieces (up to 32) need no tables; otherwise pointers, sizes, ranges and the axis map."""
    shapes = [_shape(graph, name) for name in node.inputs]
    axis = int(node.attributes.get("axis", 0))
    count = len(shapes)
    sizes = [shape[axis] if -len(shape) <= axis < len(shape) else 1 for shape in shapes]
    if len(set(sizes)) <= 1:
        return [(8 * count, "exact")] if count > 32 else []
    return [(8 * count, "exact"), (8 * count, "exact"), (8 * sum(sizes), "exact"), (8 * count, "exact")]


def _split(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """split.cc: as Concat."""
    shape = _shape(graph, node.inputs[0])
    axis = int(node.attributes.get("axis", 0))
    parts = [_shape(graph, name) for name in node.outputs if name]
    if not all(-len(part) <= axis < len(part) for part in (shape, *parts)):
        return []
    sizes = [part[axis] for part in parts]
    count = len(sizes)
    if len(set(sizes)) <= 1:
        return [(8 * count, "exact")] if count > 32 else []
    return [(8 * count, "exact")] * 3 + [(8 * shape[axis], "exact")]


def _matmul(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """matmul.cc: stacks of unequal batch shapes are multiplied through tables of pointers."""
    left, right = _shape(graph, node.inputs[0]), _shape(graph, node.inputs[1])
    batch = _shape(graph, node.outputs[0])[:-2]
    count = math.prod(batch)
    if count <= 1 or left[:-2] == right[:-2] or math.prod(right[:-2]) == 1 or math.prod(left[:-2]) == 1:
        return []
    return [(8 * count, "exact")] * 3


def _resize(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """resize_impl.cu: the map from output to input positions."""
    shape = _shape(graph, node.outputs[0])
    mode = node.attributes.get("mode", "nearest")
    if mode == "nearest":
        return [(8 * (sum(shape) + 4), "bounded")]
    return [((24 if mode == "cubic" else 12) * sum(shape[-2:]), "exact")]


def _non_max_suppression(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """non_max_suppression_impl.cu: one class at a time: sorted scores and indices, boxes, a bit a pair of boxes."""
    boxes = _shape(graph, node.inputs[0])
    if len(boxes) < 2:
        return []
    count = boxes[1]
    return [(4 * count, "exact")] * 4 + [(16 * count, "exact"), (8 * count * -(-count // 64), "bounded")]


def _einsum(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """`einsum.py`; for equations it does not cover, a copy of each operand and two of the result."""
    shapes = [_shape(graph, name) for name in node.inputs]
    size = _element_bytes(graph, node.inputs[0])
    found = temporaries(str(node.attributes.get("equation", "")), shapes, size)
    if found is not None:
        return [(nbytes, "exact") for nbytes in found]
    operands = [(graph.values[name].nbytes, "bounded") for name in node.inputs]
    return [*operands, *[(graph.values[node.outputs[0]].nbytes, "bounded")] * 2]


def _top_k(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """topk_impl.cuh: one long row is selected by radix with four tables; other shapes fit into a block."""
    shape = _shape(graph, node.inputs[0])
    if not shape:
        return []
    axis = int(node.attributes.get("axis", -1))
    return [(4096, "measured")] * 4 if math.prod(shape) == shape[axis] > 1024 else []


def _non_zero(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """nonzero_op.cc: a counter a block of 256 elements, and the prefix sum's temporary."""
    blocks = -(-math.prod(_shape(graph, node.inputs[0])) // 256)
    return [(4 * blocks, "exact"), (1023, "measured")]


def _instance_norm(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """instance_norm.cc: with more than one sample, scale and bias are repeated for each and statistics kept."""
    x = _shape(graph, node.inputs[0])
    if len(x) < 2 or x[0] <= 1:
        return []
    return [(x[0] * x[1] * _element_bytes(graph, node.inputs[0]), "exact")] * 4


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


def _attention(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:
    """attention.cc: the joint projection, then as MultiHeadAttention on operands that must be transposed. The operator
    of ONNX itself (opset 23) has no projection: bounded by three transposed operands."""
    if not node.domain:
        return [(graph.values[name].nbytes, "bounded") for name in node.inputs[:3] if name]
    x = graph.values[node.inputs[0]]
    shape = x.shape or ()
    joint = _shape(graph, node.inputs[1])
    width = joint[-1] if joint else 0
    projected = math.prod(shape[:-1]) * width * _element_bytes(graph, node.inputs[0])
    inner = _multi_head(node, graph, settings)
    if x.dtype == "float32" and inner:
        return [(projected, "measured"), *inner]
    return [(projected, "measured"), (projected, "measured"), *inner]


def _grouped_attention(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """group_query_attention.cc: bounded by transposed operands and unfused scores."""
    x = graph.values[node.inputs[0]]
    shape = x.shape or ()
    heads = int(node.attributes.get("num_heads", 1))
    scores = 2 * shape[0] * heads * shape[1] ** 2 * _element_bytes(graph, x.name) if len(shape) == 3 else 0
    return [(3 * x.nbytes, "bounded"), (scores, "bounded")]


def _n_bits(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """matmul_nbits.cc: more than a few rows are multiplied after the weights are dequantized."""
    k, n = int(node.attributes.get("K", 0)), int(node.attributes.get("N", 0))
    rows = math.prod(_shape(graph, node.inputs[0])[:-1])
    return [(k * n * _element_bytes(graph, node.inputs[0]), "measured")] if rows > _N_BITS_ROWS else []


_KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", NHWC})
_EXPANDED = frozenset({"GroupNormalization", "AffineGrid", "CenterCropPad", "NegativeLogLikelihoodLoss"})
_KNOWN_CONTRIB = frozenset(
    {
        "Attention", "BiasAdd", "BiasDropout", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "DequantizeLinear",
        "EmbedLayerNormalization", "FastGelu", "FusedConv", "FusedGemm", "FusedMatMul", "FusedMatMulActivation",
        "GatherBlockQuantized", "Gelu", "GroupQueryAttention", "MatMulNBits", "MultiHeadAttention", "QuantizeLinear",
        "QuickGelu", "RotaryEmbedding", "SimplifiedLayerNormalization", "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
    }
)  # fmt: skip
_BEFORE_OUTPUTS = {"cuda": frozenset({"Einsum", "NonZero"}), "cpu": frozenset({"Where"})}
_COLUMN_BYTES = 65536
_SUMS = frozenset({"ReduceSum", "ReduceMean"})
_RECURRENT_BYTES = 8 << 20
_EFFICIENT_LENGTH = 256
_N_BITS_ROWS = 8

_CUDA: dict[str, Rule] = {
    "Conv": _cuda_conv,
    "ConvTranspose": _cuda_conv,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "Einsum": _einsum,
    "TopK": _top_k,
    "NonZero": _non_zero,
    "InstanceNormalization": _instance_norm,
    "Attention": _attention,
    "MultiHeadAttention": _multi_head,
    "GroupQueryAttention": _grouped_attention,
    "MatMulNBits": _n_bits,
    "ArgMax": _arg,
    "ArgMin": _arg,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Concat": _concat,
    "Split": _split,
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "Resize": _resize,
    "NonMaxSuppression": _non_max_suppression,
    **{
        f"Reduce{kind}": _reduce
        for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    },
}
_CPU: dict[str, Rule] = {
    "Conv": _cpu_conv,
    "FusedConv": _cpu_conv,
    "ConvTranspose": _cpu_conv_transpose,
    "Where": _cpu_where,
    "BiasGelu": _cpu_bias_gelu,
}
