"""Weights the CPU provider packs for its matrix kernels when a session is made.

1. A constant right operand of Gemm, MatMul or FusedMatMul in float32 is packed into panels of 16 columns: K rows by N
   rounded up to 16, in float32, reserved past the arena's regions once a node.
2. Stacks of matrices are packed matrix by matrix into one buffer; vectors are not packed.

Source: `core/providers/cpu/math/{gemm,matmul}.cc` (`PrePack`), `core/mlas/lib/sgemm.cpp` (`MlasGemmPackBSize`).
Measured: onnxruntime 1.31, `CPUExecutionProvider`, log line "Reserving memory in BFCArena for Cpu".
Not modelled: quantized and half-precision packing, NCHWc filters; the CUDA provider packs nothing by default.
"""

from __future__ import annotations

import math

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph

_COLUMNS = 16


def packed(node: Node, graph: RuntimeGraph) -> list[tuple[int, str]]:
    """Bytes of each packed operand, and how they are known."""
    if node.provider != "cpu" or node.op not in ("Gemm", "MatMul", "FusedMatMul") or len(node.inputs) < 2:
        return []
    name = node.inputs[1]
    value = graph.values[name]
    if (
        name not in graph.initializers
        or value.dtype != "float32"
        or value.shape is None
        or len(value.shape) < 2
    ):
        return []
    transposed = node.attributes.get("transB", 0)
    rows, columns = value.shape[-2:] if not transposed else reversed(value.shape[-2:])
    stack = math.prod(value.shape[:-2])
    if not rows or not columns:
        return []
    return [(4 * stack * rows * (-(-columns // _COLUMNS) * _COLUMNS), "exact")]
