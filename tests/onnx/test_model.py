"""A model that is opened once: at every batch what a fresh reading finds."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer.errors import InputError
from analyzer.onnx.model import ShapedModel, opened, read
from tests.paths import MODELS
from tests.runtimes.onnxruntime import ort_models


@pytest.mark.parametrize("name", ["cnn.onnx", *sorted(ort_models.MODELS)])
def test_at_any_batch_as_if_read_for_it(name: str) -> None:
    source = MODELS / name if name.endswith(".onnx") else ort_models.MODELS[name]()
    model = opened(source)
    before: ShapedModel | None = None
    for batch in (4, 3, 7, 4):
        before, fresh = model.at(batch, like=before), read(source, batch)
        assert before.batch == batch and before.refused == fresh.refused
        assert before.shapes.binding == fresh.shapes.binding
        for ours, theirs in (
            (before.shapes.actual, fresh.shapes.actual),
            (before.shapes.symbolic, fresh.shapes.symbolic),
        ):
            assert (ours.types, ours.notes, ours.inexact) == (theirs.types, theirs.notes, theirs.inexact)


def test_what_is_wrong_with_a_batch_is_said_each_time() -> None:
    model = opened(MODELS / "cnn.onnx")
    for _ in range(2):
        with pytest.raises(InputError):
            model.at(0)


def _graph(dims: list[str | int], *, domain: str = "", op: str = "Relu", inputs: int = 1) -> onnx.ModelProto:
    names = [f"x{place}" for place in range(inputs)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in names]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)
    weight = helper.make_tensor("g", TensorProto.FLOAT, [8], [1.0] * 8)
    more = ["g"] if domain else []
    node = helper.make_node(op, [*names, *more], ["y"], domain=domain, name="n")
    graph = helper.make_graph([node], "graph", values, [y], [weight] if domain else [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_a_name_for_two_sizes_of_one_input() -> None:
    """ONNX Runtime compares no sizes by name: an exporter writes `?` for each; across inputs a name is one size."""
    shaped = read(_graph(["batch", "?", "?"]), inputs={"x0": ((2, 64, 96), "")})
    assert shaped.shapes.actual.types["y"].shape == (2, 64, 96)
    with pytest.raises(InputError, match=r"dimension '\?' is 64 and 96"):
        read(_graph(["?"], op="Add", inputs=2), inputs={"x0": ((64,), ""), "x1": ((96,), "")})


def test_a_file_without_the_import_of_its_operator() -> None:
    """SkipLayerNormalization of com.microsoft: ONNX Runtime finds its kernel all the same, and its result is the input's shape."""
    model = _graph(["batch", 4, 8], domain="com.microsoft", op="SkipLayerNormalization", inputs=2)
    assert [entry.domain for entry in model.opset_import] == [""]
    assert read(model, batch=2).shapes.actual.types["y"].shape == (2, 4, 8)
    assert [entry.domain for entry in model.opset_import] == [""], "a prediction changes nothing"
