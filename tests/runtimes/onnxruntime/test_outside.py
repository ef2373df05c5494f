"""What a session takes beside its arena on an H200, and what values may leave out of the arena."""

from __future__ import annotations

from typing import Any

import pytest

from analyzer import devices
from analyzer.runtimes.onnxruntime.frame import frame
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.outside import around, bytes_outside
from analyzer.runtimes.onnxruntime.session import record
from tests.runtimes.onnxruntime.graphs import build

H200 = devices.load("h200")
MIB = 1 << 20


def with_bodies(op: str, bodies: dict[str, RuntimeGraph]) -> RuntimeGraph:
    graph = build("Neg x -> a; Abs a -> y", {"x": (4,)})
    node = graph.nodes[0]
    node.op, node.bodies, node.counted = op, bodies, "then_branch" if op == "If" else ""
    return graph


def body(provider: str = "cuda") -> RuntimeGraph:
    return build("Neg b -> c", {"b": (4,)}, outputs=("c",), provider=provider)


@pytest.mark.parametrize(
    ("graph", "count"),
    [
        (build("Neg x -> y", {"x": (4,)}), 0),
        (with_bodies("Loop", {"body": body()}), 1),
        (with_bodies("Loop", {"body": body("cpu")}), 0),
        (with_bodies("If", {"then_branch": body(), "else_branch": body()}), 1),
        (with_bodies("Loop", {"body": with_bodies("If", {"then_branch": body()})}), 2),
    ],
)
def test_a_subgraph_has_handles_of_its_own(graph: RuntimeGraph, count: int) -> None:
    """Measured in five processes each: scan_ssm 741 MiB beside the arena, loop_if 813, where a file without takes 669."""
    assert bytes_outside(graph, SessionOptions(), H200) == (669 + 72 * count) * MIB
    assert bytes_outside(graph, SessionOptions(), H200, 4) == (669 + 72 * 4) * MIB


@pytest.mark.parametrize(
    ("op", "search", "measured"),
    [
        ("MatMul", "EXHAUSTIVE", (665, 670)),  # minilm, rnn_mix
        ("Conv", "EXHAUSTIVE", (665, 680)),  # dtln, crnn
        ("Conv", "HEURISTIC", (669, 669)),  # eca_nfnet
        ("Conv", "DEFAULT", (665, 666)),  # resnest
    ],
)
def test_code_is_loaded_by_what_runs(op: str, search: Any, measured: tuple[int, int]) -> None:
    graph = build(f"{op} x w -> y", {"x": (1, 3, 8, 8), "y": (1, 3, 8, 8)}, {"w": (3, 3, 1, 1)})
    settings = SessionOptions(cudnn_conv_algo_search=search)
    span = around(bytes_outside(graph, settings, H200), graph, settings)
    assert span is not None
    assert span[0] <= measured[0] * MIB and measured[1] * MIB <= span[1] <= 681 * MIB
    assert around(0, graph, SessionOptions(provider="cpu")) is None


def test_results_as_many_as_values_make_may_not_be_there() -> None:
    """a and b are as large as values can make them, 2 KiB each: both at once in the first run, as results; in the next
    within the pattern's block."""
    graph = build("NonZero x -> a; Exp a -> b; Abs b -> y", {"x": (4,), "a": (512,), "b": (512,), "y": (4,)})
    recording = record(frame(graph, SessionOptions()), SessionOptions(), H200)
    assert recording.bounded_bytes() == 0
    for name in ("a", "b"):
        graph.values[name].bounded = True
    recording = record(frame(graph, SessionOptions()), SessionOptions(), H200)
    assert recording.bounded_bytes() >= 4096
