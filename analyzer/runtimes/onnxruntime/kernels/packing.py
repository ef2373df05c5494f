"""Weights that kernels rearrange into buffers of their own when a session is made.

1. CPU: a constant right operand of Gemm, MatMul or FusedMatMul in float32 is packed into panels of 16
   columns: K rows by N rounded up to 16, in float32, reserved past the arena's regions once a node.
2. Stacks of matrices are packed matrix by matrix into one buffer; vectors are not packed. LSTM and GRU pack
   both weights, MatMulNBits its blocks, ConvTranspose its filter (taken from the arena's regions).
   Kernels of one operator that pack the same weights alike share the first one's buffer; theirs is packed all
   the same, compared, and given back, operand by operand. So do kernels inside and beside subgraphs, and
   weights that the same operators made of the same ones (`folding`). (Equal weights of different names in the
   file are shared too, which is not known here.)
3. CPU, integers: the constant right operand of QLinearMatMul, MatMulInteger, MatMulIntegerToFloat,
   DynamicQuantizeMatMul and QGemm is packed with a 32-bit sum for each column; QLinearConv packs its filters
   group by group. Beside signed data (int8) x86 packs none of them. Sizes are those of processors with
   AVX-512; with AVX2 alone rows go in twos.
4. CUDA: LSTM, GRU and RNN take the state of cuDNN's dropout generator from the arena, 24 bytes a resident
   thread of the device, and, with constant weights, keep these in cuDNN's layout: for each direction and
   gate, hidden * (input + hidden + 2) elements (both biases, whether given or not). GroupQueryAttention keeps
   256 zeros of four bytes.

Source: `core/providers/cuda/rnn/cudnn_rnn_base.cc` (`ReorganizeWeights`),
`contrib_ops/cuda/bert/group_query_attention.h` (`kZerosCount`),
`core/providers/cpu/math/{gemm,matmul}.cc` (`PrePack`), `core/mlas/lib/sgemm.cpp` (`MlasGemmPackBSize`).
Measured: onnxruntime 1.31, `CPUExecutionProvider`, log line "Reserving memory in BFCArena for Cpu".
`core/providers/cpu/quantization/{matmul_integer_base.h,qlinearconv.cc}` (`PrePack`, `TryConvSymPrepack`),
`core/mlas/lib/{qgemm,convsym}.cpp` (`MlasGemmPackBSize`, `MlasConvSymPackWSize`).
Not modelled: half-precision packing, NCHWc filters; AMX and VNNI (SqueezeNet's QDQ form takes 2,304 bytes
less on a processor that has both).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from analyzer.devices import DeviceProfile
from analyzer.graph import dtype_bits
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph

_COLUMNS = 16
_ROWS, _SUM_BYTES, _LINE_BYTES = 4, 4, 64
_DROPOUT_STATE_BYTES = 24
_ZEROS_BYTES = 1024


def recurrent(node: Node, graph: RuntimeGraph) -> list[int]:
    """Return the bytes of a recurrent layer's weights in cuDNN's layout: for each direction and gate hidden *
    (input + hidden + 2) elements, both biases counted whether given or not."""
    w = graph.values[node.inputs[1]]
    hidden = int(node.attributes.get("hidden_size", 0))
    if w.shape is None or len(w.shape) != 3 or hidden <= 0:
        return []
    directions, rows, size = w.shape
    return [directions * rows * (size + hidden + 2) * max(1, dtype_bits(w.dtype) // 8)]


def cached(node: Node, graph: RuntimeGraph, device: DeviceProfile) -> list[int]:
    """Return the bytes the node keeps on the CUDA provider from the session's start."""
    if node.provider != "cuda" or node.operator not in CACHED:
        return []
    if node.operator == _GROUPED_ATTENTION:
        return [_ZEROS_BYTES]
    dropout = _DROPOUT_STATE_BYTES * device.sm_count * device.max_threads_per_sm
    if not all(graph.is_constant(name) for name in node.inputs[1:3]):
        return [dropout]
    return [dropout, *recurrent(node, graph)]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory a kernel takes for an operand (name) when it is created. outside_pools: outside the arena's
    regions. kept: until the session ends, otherwise freed once the kernel is created."""

    name: str
    nbytes: int
    basis: str = "exact"
    outside_pools: bool = True
    kept: bool = True


Packed = list[Buffer]


def packed(node: Node, graph: RuntimeGraph) -> Packed:
    """Return the buffers in which the CPU provider rearranges the node's constant operands, in order."""
    rule = PACKED.get(node.operator)
    if node.provider != "cpu" or rule is None or len(node.inputs) < 2:
        return []
    return [buffer for buffer in rule(node, graph) if buffer.nbytes > 0]


def _recurrent_weights(node: Node, graph: RuntimeGraph) -> Packed:
    return [*_panels(node, graph, 1), *_panels(node, graph, 2)]


def _blocks(node: Node, graph: RuntimeGraph) -> Packed:
    name = node.inputs[1]
    return [Buffer(name, graph.values[name].nbytes)] if graph.is_constant(name) else []


def _convolution_filter(node: Node, graph: RuntimeGraph) -> Packed:
    name = node.inputs[1]
    value = graph.values[name]
    if not graph.is_constant(name) or value.dtype != "float32":
        return []
    return [Buffer(name, value.nbytes, outside_pools=False)]


def _right_operand(node: Node, graph: RuntimeGraph) -> Packed:
    """Return the packed buffer of a constant right operand: K rows by N columns, N rounded up to whole
    panels; a stack is packed matrix by matrix."""
    name = node.inputs[1]
    value = graph.values[name]
    if not graph.is_constant(name) or value.dtype != "float32" or value.shape is None or len(value.shape) < 2:
        return []
    transposed = node.attributes.get("transB", 0)
    rows, columns = value.shape[-2:] if not transposed else reversed(value.shape[-2:])
    stack = math.prod(value.shape[:-2])
    if not rows or not columns:
        return []
    return [Buffer(name, 4 * stack * rows * (-(-columns // _COLUMNS) * _COLUMNS))]


def _panels(node: Node, graph: RuntimeGraph, place: int) -> Packed:
    """Return a recurrent layer's weights [directions, rows, columns], packed transposed."""
    name = node.inputs[place]
    value = graph.values[name]
    if (
        not graph.is_constant(name)
        or value.dtype != "float32"
        or value.shape is None
        or len(value.shape) != 3
    ):
        return []
    directions, rows, columns = value.shape
    return [Buffer(name, 4 * directions * columns * (-(-rows // _COLUMNS) * _COLUMNS))]


def _integer_panels(rows: int, columns: int) -> int:
    """Return the bytes of an integer matrix in panels: a 32-bit sum a column, columns in sixteens, rows in
    fours; in whole lines of 64 bytes. 0 where either is."""
    columns = -(-columns // _COLUMNS) * _COLUMNS
    nbytes = columns * (_SUM_BYTES + -(-rows // _ROWS) * _ROWS)
    return -(-nbytes // _LINE_BYTES) * _LINE_BYTES if rows and columns else 0


def _integer_operand(place: int, left: int = 0) -> Callable[[Node, RuntimeGraph], Packed]:
    """Return the right operand of a product of integers, at that place; the left one at `left` decides the
    kernel: x86 packs nothing beside signed integers. A transposed one is laid out the other way first."""

    def packs(node: Node, graph: RuntimeGraph) -> Packed:
        name = node.inputs[place]
        value = graph.values[name]
        if not graph.is_constant(name) or value.shape is None or len(value.shape) != 2:
            return []
        signed = graph.values[node.inputs[left]].dtype == "int8"
        rows, columns = value.shape
        if not node.attributes.get("transB", 0):
            return [Buffer(name, 0 if signed else _integer_panels(rows, columns))]
        return [
            Buffer(name, value.nbytes, outside_pools=False, kept=False),
            Buffer(name, 0 if signed else _integer_panels(columns, rows)),
        ]

    return packs


def symmetric(node: Node, graph: RuntimeGraph) -> bool:
    """Return whether a QLinearConv multiplies without zero points: unsigned data, constant int8 filters whose
    zero points are all zero, one group of channels in fours and at least 16 filters, or one channel a group
    in sixteens."""
    x, w = graph.values[node.inputs[0]], graph.values[node.inputs[3]]
    zeros = graph.constant(node.inputs[5])
    if x.dtype != "uint8" or w.dtype != "int8" or w.shape is None or len(w.shape) < 3:
        return False
    if not (graph.is_constant(w.name) and graph.is_constant(node.inputs[2])) or zeros is None or zeros.any():
        return False
    groups = int(node.attributes.get("group", 1))
    filters, channels = w.shape[0], w.shape[1]
    if groups > 1:
        return channels == 1 and filters == groups and groups % _COLUMNS == 0
    return filters >= _COLUMNS and channels % _ROWS == 0 and filters % _ROWS == 0


def _quantized_filter(node: Node, graph: RuntimeGraph) -> Packed:
    """QLinearConv: filters in sixteens for symmetric products; else a packed matrix a group, beside one
    group's filters in another order; else, where a group has one channel and one filter or the data are
    signed, the filters in that order."""
    name = node.inputs[3]
    value = graph.values[name]
    groups = int(node.attributes.get("group", 1))
    if not graph.is_constant(name) or value.shape is None or len(value.shape) < 3 or groups < 1:
        return []
    filters, channels = value.shape[:2]
    taps = math.prod(value.shape[2:])
    if symmetric(node, graph):
        return [Buffer(name, -(-filters // _COLUMNS) * _COLUMNS * channels * taps, outside_pools=False)]
    each = filters // groups
    if (channels, each) == (1, 1) or graph.values[node.inputs[0]].dtype == "int8":
        return [Buffer(name, value.nbytes)]
    return [
        Buffer(name, groups * _integer_panels(channels * taps, each)),
        Buffer(name, each * channels * taps, kept=False),
    ]


# Operator -> what its CPU kernel packs.
PACKED: dict[str, Callable[[Node, RuntimeGraph], Packed]] = {
    **dict.fromkeys(("LSTM", "GRU"), _recurrent_weights),
    "com.microsoft.MatMulNBits": _blocks,
    "ConvTranspose": _convolution_filter,
    **dict.fromkeys(("QLinearConv", "com.microsoft.QLinearConv"), _quantized_filter),
    "QLinearMatMul": _integer_operand(3),
    "com.microsoft.QGemm": _integer_operand(3),
    **dict.fromkeys(
        ("MatMulInteger", "com.microsoft.MatMulIntegerToFloat", "com.microsoft.DynamicQuantizeMatMul"),
        _integer_operand(1),
    ),
    **dict.fromkeys(
        ("Gemm", "MatMul", "com.microsoft.FusedMatMul", "com.microsoft.FusedGemm"), _right_operand
    ),
}
# Those that pack integers: by instructions, so that a processor with AMX or VNNI takes other sizes.
INTEGERS = frozenset(
    operator
    for operator in PACKED
    if operator.removeprefix("com.microsoft.").startswith(
        ("QLinear", "QGemm", "MatMulInteger", "DynamicQuantize")
    )
)
_GROUPED_ATTENTION = "com.microsoft.GroupQueryAttention"
# Operators whose kernels keep memory on the CUDA provider -> of what, and the rule's name.
CACHED = {
    **dict.fromkeys(("LSTM", "GRU", "RNN"), ("weights in cuDNN's layout", "ort-recurrent-weights")),
    _GROUPED_ATTENTION: ("zeros", "ort-grouped-attention"),
}
