"""ONNX Runtime's extensions (tokenizers, text, images): once a guess like the largest input, now known by name.

Where the library is installed, beside a real session on the CPU provider.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import analyzer
from analyzer.devices import load
from analyzer.runtimes.onnxruntime import predict

STRING, INT64, FLOAT, BOOL = TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL


def model(
    op: str, inputs: dict[str, Any], outputs: dict[str, Any], declared: bool = True, **attributes: Any
) -> onnx.ModelProto:
    """One operator; names -> (type, shape). Results pass an Identity, declared or not."""
    nodes = [
        helper.make_node(
            op, list(inputs), [f"{name}_made" for name in outputs], domain="ai.onnx.contrib", **attributes
        )
    ]
    nodes += [helper.make_node("Identity", [f"{name}_made"], [name]) for name in outputs]
    given = [helper.make_tensor_value_info(name, *what) for name, what in inputs.items()]
    made = [
        helper.make_tensor_value_info(name, kind, shape if declared else None)
        for name, (kind, shape) in outputs.items()
    ]
    graph = helper.make_graph(nodes, "g", given, made)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.contrib", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("op", "kind", "element_bytes"),
    [
        ("StringUpper", STRING, 32),
        ("StringLength", INT64, 8),
        ("StringHash", INT64, 8),
        ("StringEqual", BOOL, 1),
    ],
)
def test_results_like_the_text(op: str, kind: int, element_bytes: int) -> None:
    """Nothing is guessed where no result is declared: 40 texts, 40 results."""
    found = predict(
        model(op, {"s": (STRING, ["N"])}, {"y": (kind, ["N"])}, declared=False).SerializeToString(),
        batch=40,
        options={"provider": "cpu"},
        device=load("h200"),
    )
    assert not found.unknown
    assert found.graph.values["y_made"].nbytes == 40 * element_bytes
    assert not any("guess" in note for note in found.notes)
    assert any(op in note and "extensions" in note for note in found.notes)


def test_a_tokenizer_by_its_padding() -> None:
    """padding_length says how long; without it only the text does, and the estimate says so."""
    told = {"ids": (INT64, None), "mask": (INT64, None)}
    padded = model("GPT2Tokenizer", {"s": (STRING, ["N"])}, told, declared=False, padding_length=77)
    found = predict(padded.SerializeToString(), batch=4, options={}, device=load("h200"))
    assert found.graph.values["ids_made"].shape == (4, 77)
    assert {node.provider for node in found.graph.walk() if node.op == "GPT2Tokenizer"} == {"cpu"}
    free = model("GPT2Tokenizer", {"s": (STRING, ["N"])}, told, declared=False)
    found = predict(free.SerializeToString(), batch=4, options={}, device=load("h200"))
    assert any("may be more" in note for note in found.notes)


def test_the_declaration_says_what_only_data_would(tmp_path: Path) -> None:
    """Sixteen tokens a text, says the file: that wins over any guess."""
    made = model("GPT2Tokenizer", {"s": (STRING, ["N"])}, {"ids": (INT64, ["N", 16])})
    made.graph.value_info.append(helper.make_tensor_value_info("ids_made", INT64, ["N", 16]))
    path = tmp_path / "model.onnx"
    onnx.save(made, path)
    estimate = analyzer.analyze(str(path), batch=8, device="h200")
    assert not any("guess" in note for note in estimate.notes)
    found = predict(str(path), batch=8, options={}, device=load("h200"))
    assert found.graph.values["ids_made"].shape == (8, 16)


FEEDS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("StringUpper", {"s": np.array(["ab"] * 40, object)}, {"y": (STRING, [40])}),
    ("StringLength", {"s": np.array(["ab"] * 40, object)}, {"y": (INT64, [40])}),
    ("StringConcat", {"s": np.array(["ab"] * 400, object), "t": np.array(["c"] * 400, object)}, {"y": (STRING, [400])}),
    ("Inverse", {"x": np.eye(32, dtype=np.float32)}, {"y": (FLOAT, [32, 32])}),
    ("NegPos", {"x": np.ones((50, 8), np.float32)}, {"y": (FLOAT, [50, 8]), "z": (FLOAT, [50, 8])}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "given", "outputs"), FEEDS, ids=[feed[0] for feed in FEEDS])
def test_beside_a_real_session(
    op: str, given: dict[str, Any], outputs: dict[str, Any], tmp_path: Path
) -> None:
    """Peak in use and held, to the byte."""
    extensions = pytest.importorskip("onnxruntime_extensions")
    runtime = pytest.importorskip("onnxruntime")
    inputs = {
        name: (
            helper.np_dtype_to_tensor_dtype(value.dtype) if value.dtype != object else STRING,
            list(value.shape),
        )
        for name, value in given.items()
    }
    made = model(op, inputs, outputs)
    options = runtime.SessionOptions()
    options.register_custom_ops_library(extensions.get_library_path())
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    options.graph_optimization_level = runtime.GraphOptimizationLevel(2)
    session = runtime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for _ in range(3):
        session.run(None, given)
    events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [event["args"] for event in events if event.get("name", "").endswith("_kernel_time")]
    mine = predict(
        made.SerializeToString(),
        options={"provider": "cpu", "graph_optimization_level": 2},
        device=load("h200"),
    )
    assert mine.peak_in_use == max(int(item["mem_in_use_peak"]) for item in kernels)
    assert mine.held == max(int(item["mem_arena_held"]) for item in kernels)
