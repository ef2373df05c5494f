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

from analyzer.devices import DeviceProfile
from analyzer.graph import dtype_bits
from analyzer.runtimes.onnxruntime.convolution import Convolution, workspace
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph

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
    rule = (_CUDA if node.provider == "cuda" else _CPU).get(node.op)
    return [] if rule is None else [(n, basis) for n, basis in rule(node, graph, settings) if n > 0]


def _shape(graph: RuntimeGraph, name: str) -> tuple[int, ...]:
    return graph.values[name].shape or ()


def _element_bytes(graph: RuntimeGraph, name: str) -> int:
    return max(1, dtype_bits(graph.values[name].dtype or "float32") // 8)


def convolution_of(node: Node, graph: RuntimeGraph) -> Convolution | None:
    """The node's convolution, None if its shapes are unknown."""
    x, w, y = (_shape(graph, name) for name in (node.inputs[0], node.inputs[1], node.outputs[0]))
    if len(x) < 3 or len(w) != len(x) or len(y) != len(x):
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
        node.op == "ConvTranspose", x, w, y, stride, tuple(pads[:rank]), dilation, int(node.attributes.get("group", 1)),
        graph.values[node.inputs[0]].dtype,
    )  # fmt: skip


def _cuda_conv(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:
    found = convolution_of(node, graph)
    return [] if found is None else [workspace(found, settings.search, settings.device)]


def _cpu_conv(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:
    """MLAS: a product of matrices where the input already is one, otherwise a column buffer a thread."""
    found = convolution_of(node, graph)
    if found is None or len(found.x) not in (4, 5):
        return []
    kernel_ones = all(size == 1 for size in found.w[2:])
    if kernel_ones and not any(node.ints("pads")) and all(size == 1 for size in found.stride):
        return []
    if found.groups > 1 and found.w[1] == 1 and found.x[1] == found.groups:
        return []
    return [(65536 * settings.threads, "exact")]


def _lstm(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """cudnn_rnn_base.cc: weights in cuDNN's layout, reserve and work space (bounded: they follow cuDNN's layout)."""
    x, w, r = (_shape(graph, name) for name in node.inputs[:3])
    size = _element_bytes(graph, node.inputs[0])
    hidden = int(node.attributes.get("hidden_size", r[-1] if r else 0))
    if len(x) != 3 or not w or not r:
        return []
    steps, batch, _ = x
    gates = w[1] // max(hidden, 1)
    directions = w[0]
    weights = size * (math.prod(w) + math.prod(r) + 2 * directions * gates * hidden)
    state = size * steps * batch * hidden * directions
    return [(weights, "bounded"), (state * (gates + 2), "bounded"), (state * gates, "bounded")]


def _einsum(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """einsum_compute_preprocessor.cc: operands are transposed into temporaries before the batched product."""
    return [(graph.values[name].nbytes, "bounded") for name in node.inputs if name]


def _top_k(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """topk_impl.cuh: the sorted row and its indices, for rows too long for the block-wide kernel."""
    x = _shape(graph, node.inputs[0])
    if not x:
        return []
    axis = int(node.attributes.get("axis", -1))
    aligned = 1 << max(0, (x[axis] - 1).bit_length())
    if aligned <= 1024:
        return []
    return [(aligned * _element_bytes(graph, node.inputs[0]), "exact"), (aligned * 8, "exact")]


def _non_zero(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """nonzero_impl.cu: one counter a block of 256 elements, and the prefix sum's temporary."""
    count = math.prod(_shape(graph, node.inputs[0]))
    blocks = -(-count // 256)
    return [(4 * blocks, "exact"), (4 * blocks + 1024, "bounded")]


def _instance_norm(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """instance_norm.cc: with more than one sample, scale and bias are repeated for each and cuDNN's statistics kept."""
    x = _shape(graph, node.inputs[0])
    size = _element_bytes(graph, node.inputs[0])
    if len(x) < 2:
        return []
    stats = x[0] * x[1] * size
    return [(stats, "exact")] * 4 if x[0] > 1 else []


def _attention(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """attention_impl.cu: projections in the layout of the product, and scores twice where no fused kernel serves."""
    x = graph.values[node.inputs[0]]
    shape = x.shape or ()
    heads = int(node.attributes.get("num_heads", 1))
    if len(shape) < 3:
        return [(3 * x.nbytes, "bounded")]
    batch, length = shape[0], shape[1]
    return [
        (3 * x.nbytes, "bounded"),
        (2 * batch * heads * length * length * _element_bytes(graph, x.name), "bounded"),
    ]


def _n_bits(node: Node, graph: RuntimeGraph, settings: Settings) -> Takes:  # noqa: ARG001
    """matmul_nbits.cc: several rows are multiplied after the weights are dequantized."""
    k, n = int(node.attributes.get("K", 0)), int(node.attributes.get("N", 0))
    rows = math.prod(_shape(graph, node.inputs[0])[:-1])
    return [(k * n * _element_bytes(graph, node.inputs[0]), "exact")] if rows > 1 else []


_CUDA: dict[str, Rule] = {
    "Conv": _cuda_conv,
    "ConvTranspose": _cuda_conv,
    "LSTM": _lstm,
    "GRU": _lstm,
    "RNN": _lstm,
    "Einsum": _einsum,
    "TopK": _top_k,
    "NonZero": _non_zero,
    "InstanceNormalization": _instance_norm,
    "Attention": _attention,
    "MultiHeadAttention": _attention,
    "GroupQueryAttention": _attention,
    "MatMulNBits": _n_bits,
}
_CPU: dict[str, Rule] = {"Conv": _cpu_conv, "FusedConv": _cpu_conv}
