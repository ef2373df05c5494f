"""Every graph transformer of ONNX Runtime is followed, named in a note, or known never to run in a session predicted here."""

from __future__ import annotations

from pathlib import Path

import pytest

import analyzer
from analyzer.runtimes.onnxruntime.rewrite import transformers, unmodelled
from analyzer.runtimes.onnxruntime.rewrite.fusions import ORDER
from tests.paths import DATA
from tests.runtimes.onnxruntime.graphs import build

HERE = Path(analyzer.__file__).parent / "runtimes" / "onnxruntime"
NAMES = (DATA / "ort" / "transformers.txt").read_text().split()


def test_nothing_is_missing() -> None:
    """The classes of ONNX Runtime 1.30's library and those its sources register: 83."""
    assert len(NAMES) == 83
    assert [name for name in NAMES if transformers.about(name) is None] == []
    assert set(transformers.names()) == set(NAMES)


def test_what_is_followed_is_there() -> None:
    assert all((HERE / file).exists() for file in transformers.FOLLOWED.values())
    assert not set(transformers.FOLLOWED) & (transformers.named() | set(transformers.ELSEWHERE))
    assert {turn.fusion.name for turn in ORDER} <= set(transformers.FOLLOWED)


@pytest.mark.parametrize(
    ("text", "apart", "name"),
    [
        (
            "DequantizeLinear x -> a; Reshape a x -> b; Transpose b -> c; MatMul x c -> y",
            "DequantizeLinear x -> a; Reshape x x -> b; Transpose b -> c; MatMul x c -> y",
            "DQMatMulNBitsFusion",
        ),
        (
            "Slice x -> a; Slice a -> b; Concat b -> c; Conv c x -> y",
            "Slice x -> a; Slice x -> b; Concat x -> c; Conv c x -> y",
            "SliceConcatToSpaceToDepthFusion",
        ),
    ],
)
def test_a_chain_is_recognised(text: str, apart: str, name: str) -> None:
    """One after the other; side by side they are left alone by ONNX Runtime too."""
    said = " ".join(unmodelled.notes(build(text, {"x": (2, 2)}), "cuda", 1))
    assert name in said and "memory may be less" in said
    assert name not in " ".join(unmodelled.notes(build(apart, {"x": (2, 2)}), "cuda", 1))


def test_layouts_of_the_highest_level() -> None:
    graph = build("Conv x w -> y", {"x": (1, 2, 4, 4)}, {"w": (2, 2, 1, 1)})
    assert "NchwcTransformer" in " ".join(unmodelled.notes(graph, "cpu", 99))
    assert unmodelled.notes(graph, "cpu", 2) == () and unmodelled.notes(graph, "cuda", 99) == ()
