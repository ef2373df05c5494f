"""What the room hands from stage to stage cannot be changed; only the graph that is being rewritten, and who records."""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.kernels.scratch.tables import _concat
from tests.runtimes.onnxruntime.graphs import build
from tests.values import not_values


def test_stages_hand_on_what_cannot_change() -> None:
    assert not_values("analyzer.runtimes.onnxruntime") == {"Node", "RuntimeGraph", "Value", "SessionRecorder"}


def test_concat_counts_the_axis_from_the_end_too() -> None:
    """Pieces of 2 and 3 rows along axis -2, the first: pointers, sizes and ranges of 2, a map of 5 entries of 8 bytes."""
    graph = build("Concat a b -> y", {"a": [2, 8], "b": [3, 8], "y": [5, 8]}, attributes={"y": {"axis": -2}})
    (node,) = graph.nodes.values()
    assert [nbytes for nbytes, _ in _concat(node, graph, None)] == [16, 16, 40, 16]  # type: ignore[arg-type]
