"""Weights that kernels rearrange into buffers of their own when a session is made.

1. CPU: a constant right operand of Gemm, MatMul or FusedMatMul in float32 is packed into panels of 16 columns: K rows by N
   rounded up to 16, in float32, reserved past the arena's regions once a node.
2. Stacks of matrices are packed matrix by matrix into one buffer; vectors are not packed. LSTM and GRU pack both weights,
   MatMulNBits its blocks, ConvTranspose its filter (taken from the arena's regions).
   Kernels of one operator that pack the same weights alike share the first one's buffer; theirs is packed all the same,
   compared, and given back. (Equal weights of different names are shared too, which is not known here.)
3. CUDA: LSTM, GRU and RNN take the state of cuDNN's dropout generator from the arena, 24 bytes a resident thread of
   the device, and, with constant weights, keep these in cuDNN's layout: for each direction and gate, hidden *
   (input + hidden + 2) elements (both biases, whether given or not).

Source: `core/providers/cuda/rnn/cudnn_rnn_base.cc` (`ReorganizeWeights`), `core/providers/cpu/math/{gemm,matmul}.cc` (`PrePack`), `core/mlas/lib/sgemm.cpp` (`MlasGemmPackBSize`).
Measured: onnxruntime 1.31, `CPUExecutionProvider`, log line "Reserving memory in BFCArena for Cpu".
Not modelled: quantized and half-precision packing, NCHWc filters.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from analyzer.devices import DeviceProfile
from analyzer.graph import dtype_bits
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph

_COLUMNS = 16
_DROPOUT_STATE_BYTES = 24


def _constant(graph: RuntimeGraph, name: str) -> bool:
    return graph.is_constant(name) or name in graph.fixed


def recurrent(node: Node, graph: RuntimeGraph) -> list[int]:
    """Bytes of a recurrent layer's weights in cuDNN's layout: for each direction and gate hidden * (input + hidden + 2)
    elements, both biases counted whether given or not."""
    w = graph.values[node.inputs[1]]
    hidden = int(node.attributes.get("hidden_size", 0))
    if w.shape is None or len(w.shape) != 3 or hidden <= 0:
        return []
    directions, rows, size = w.shape
    return [directions * rows * (size + hidden + 2) * max(1, dtype_bits(w.dtype) // 8)]


def cached(node: Node, graph: RuntimeGraph, device: DeviceProfile) -> list[int]:
    """What the CUDA provider keeps from the session's start."""
    if node.provider != "cuda" or node.operator not in CACHED:
        return []
    dropout = _DROPOUT_STATE_BYTES * device.sm_count * device.max_threads_per_sm
    if not all(_constant(graph, name) for name in node.inputs[1:3]):
        return [dropout]
    return [dropout, *recurrent(node, graph)]


Packed = list[tuple[str, int, str]]


def packed(node: Node, graph: RuntimeGraph) -> Packed:
    """Each operand the CPU provider packs, its bytes, and how they are known."""
    rule = PACKED.get(node.operator)
    if node.provider != "cpu" or rule is None or len(node.inputs) < 2:
        return []
    return rule(node, graph)


def _recurrent_weights(node: Node, graph: RuntimeGraph) -> Packed:
    return [*_panels(node, graph, 1), *_panels(node, graph, 2)]


def _blocks(node: Node, graph: RuntimeGraph) -> Packed:
    name = node.inputs[1]
    return [(name, graph.values[name].nbytes, "exact")] if _constant(graph, name) else []


def _filter(node: Node, graph: RuntimeGraph) -> Packed:
    return _blocks(node, graph) if graph.values[node.inputs[1]].dtype == "float32" else []


def _right_operand(node: Node, graph: RuntimeGraph) -> Packed:
    """K rows by N columns, N rounded up to whole panels; stacks matrix by matrix."""
    name = node.inputs[1]
    value = graph.values[name]
    if not _constant(graph, name) or value.dtype != "float32" or value.shape is None or len(value.shape) < 2:
        return []
    transposed = node.attributes.get("transB", 0)
    rows, columns = value.shape[-2:] if not transposed else reversed(value.shape[-2:])
    stack = math.prod(value.shape[:-2])
    if not rows or not columns:
        return []
    return [(name, 4 * stack * rows * (-(-columns // _COLUMNS) * _COLUMNS), "exact")]


def _panels(node: Node, graph: RuntimeGraph, place: int) -> Packed:
    """A recurrent layer's weights [directions, rows, columns], packed transposed."""
    name = node.inputs[place]
    value = graph.values[name]
    if not _constant(graph, name) or value.dtype != "float32" or value.shape is None or len(value.shape) != 3:
        return []
    directions, rows, columns = value.shape
    return [(name, 4 * directions * columns * (-(-rows // _COLUMNS) * _COLUMNS), "exact")]


# Operator -> what its CPU kernel packs.
PACKED: dict[str, Callable[[Node, RuntimeGraph], Packed]] = {
    **dict.fromkeys(("LSTM", "GRU"), _recurrent_weights),
    "com.microsoft.MatMulNBits": _blocks,
    "ConvTranspose": _filter,
    **dict.fromkeys(
        ("Gemm", "MatMul", "com.microsoft.FusedMatMul", "com.microsoft.FusedGemm"), _right_operand
    ),
}
# Operators of whose weights and states the CUDA provider keeps copies.
CACHED = frozenset({"LSTM", "GRU", "RNN"})
