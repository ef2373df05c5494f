"""Kernels that are asked about many sizes at once: each size's scratch is what the rule says of it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.devices import load
from analyzer.parametric.lanes import Lanes
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch import KernelSettings, scratch
from analyzer.runtimes.onnxruntime.kernels.scratch.lanes import scratch_in_lanes
from tests.runtimes.onnxruntime.graphs import build

CONV = {"pads": (1, 1, 1, 1), "strides": (1, 1)}
HEADS = {"q_num_heads": 8, "kv_num_heads": 8}
# Kernels whose sizes, or number of pieces, depend on the batch in their own way; "n" is the batch.
KERNELS: dict[str, tuple[str, Mapping[str, Sequence[int | str]], Mapping[str, Any]]] = {
    "convolution": ("Conv x w -> y", {"x": ("n", 16, 28, 28), "w": (32, 16, 3, 3), "y": ("n", 32, 28, 28)}, {"attributes": {"y": CONV}}),
    "over a line": ("Conv x w -> y", {"x": ("n", 16, 28), "w": (32, 16, 1), "y": ("n", 32, 28)}, {}),
    "image as large as the batch": ("Conv x w -> y", {"x": (2, 16, "n", 28), "w": (32, 16, 3, 3), "y": (2, 32, "n", 28)}, {"attributes": {"y": CONV}}),
    "transposed": ("ConvTranspose x w -> y", {"x": ("n", 16, 14, 14), "w": (16, 8, 2, 2), "y": ("n", 8, 28, 28)}, {"attributes": {"y": {"strides": (2, 2)}}}),
    "flash attention": ("Attention q k v -> y", dict.fromkeys("qkvy", ("n", 512, 512)), {"attributes": {"y": HEADS}, "dtype": "float16"}),
    "unfused attention": ("Attention q k v -> y", dict.fromkeys("qkvy", ("n", 64, 100)), {"attributes": {"y": HEADS}}),
    "attention over the batch": ("com.microsoft.MultiHeadAttention q k v -> y", dict.fromkeys("qkvy", (4, "n", 64)), {"attributes": {"y": {"num_heads": 8}}}),
    "product of stacks": ("MatMul a b -> y", {"a": ("n", 1, 8, 8), "b": (1, 3, 8, 8), "y": ("n", 3, 8, 8)}, {}),
    "few rows": ("com.microsoft.MatMulNBits x b s -> y", {"x": ("n", 64), "b": (32, 2, 16), "s": (64,), "y": ("n", 32)}, {"attributes": {"y": {"K": 64, "N": 32}}}),
    "einsum": ("Einsum a b -> y", {"a": ("n", 8), "b": (8, "n"), "y": ("n", "n")}, {"attributes": {"y": {"equation": "ij,jk->ik"}}}),
    "joined": ("Concat a b -> y", {"a": ("n", 8), "b": (5, 8), "y": ("n", 8)}, {"attributes": {"y": {"axis": 0}}}),
    "sum over samples": ("ReduceSum x -> y", {"x": ("n", 5, 1), "y": (1, 5, 1)}, {"attributes": {"y": {"axes": (0,)}}}),
    "long sums": ("ReduceMean x -> y", {"x": (3, "n", 900), "y": (3, 1, 1)}, {"attributes": {"y": {"axes": (1, 2)}}}),
    "extremum": ("ArgMax x -> y", {"x": (7, "n"), "y": (7, 1)}, {"attributes": {"y": {"axis": 1}}}),
    "repeated scale": ("InstanceNormalization x s b -> y", {"x": ("n", 6, 9), "s": (6,), "b": (6,)}, {}),
    "larger image": ("Resize x -> y", {"x": (1, 3, "n", 8), "y": (1, 3, 50, 50)}, {"attributes": {"y": {"antialias": 1, "mode": "linear"}}}),
    "boxes": ("NonMaxSuppression b s -> y", {"b": (1, "n", 4), "s": (1, 2, "n"), "y": (9, 3)}, {}),
    "one long row": ("TopK x k -> y z", {"x": ("n", 1500), "k": (1,), "y": ("n", 4), "z": ("n", 4)}, {"attributes": {"y": {"axis": 1}}}),
    "deformed": ("DeformConv x w o -> y", {"x": ("n", 4, 9, 9), "w": (4, 4, 3, 3), "o": ("n", 18, 9, 9)}, {}),
    "unknown": ("my.own.Thing x -> y", {"x": ("n", 3), "y": (3, 3)}, {}),
    "recurrent": ("LSTM x w r -> y", {"x": (10, "n", 32), "w": (2, 256, 32), "r": (2, 256, 64), "y": (10, 2, "n", 64)}, {"attributes": {"y": {"hidden_size": 64}}}),
}  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=15, deadline=None)
@given(batches=st.lists(st.integers(1, 2000) | st.integers(1, 12), min_size=1, max_size=30))
def test_each_size_is_told_as_alone(kernel: str, batches: list[int]) -> None:
    text, shapes, options = KERNELS[kernel]

    def at(batch: Any) -> RuntimeGraph:
        graph = build(text, shapes, **options)
        for value in graph.values.values():
            sizes: list[Any] = [batch if size == "n" else size for size in value.symbols or ()]
            value.shape = tuple(sizes)
        return graph

    setting = KernelSettings("cuda", "EXHAUSTIVE", load("h200"))
    together = at(Lanes(np.array(batches)))
    found: list[tuple[Any, str]] = [
        *scratch_in_lanes(scratch, together.nodes[0], together, setting, len(batches))
    ]
    for place, batch in enumerate(batches):
        alone = at(batch)
        expected = [nbytes for nbytes, _ in scratch(alone.nodes[0], alone, setting)]
        sizes = [int(n.values[place]) if isinstance(n, Lanes) else n for n, _ in found]
        assert [nbytes for nbytes in sizes if nbytes] == expected
