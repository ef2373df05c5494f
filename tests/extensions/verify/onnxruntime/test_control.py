"""Loop and Scan beside a real session on the CPU provider: what iterations leave behind, to the byte."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")

from analyzer.devices import load
from analyzer.runtimes.onnxruntime import predict
from analyzer_verify.runs import session

WIDTH = 300


def _value(name: str, shape: list[int], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _model(node: onnx.NodeProto, scanned: list[int], constants: list[onnx.TensorProto]) -> onnx.ModelProto:
    """x -> Abs -> the node -> r, and its scan output through Neg -> z."""
    nodes = [
        helper.make_node("Abs", ["x"], ["y"]),
        node,
        helper.make_node("Neg", ["s"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes, "control", [_value("x", [WIDTH])], [_value("r", [WIDTH]), _value("z", scanned)], constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def loop(trips: int) -> onnx.ModelProto:
    """Carries one value, and stacks another of each iteration."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["carried", "one"], ["next"]),
            helper.make_node("Mul", ["next", "next"], ["stacked"]),
            helper.make_node("Identity", ["going"], ["on"]),
        ],
        "body",
        [
            _value("number", [], TensorProto.INT64),
            _value("going", [], TensorProto.BOOL),
            _value("carried", [WIDTH]),
        ],
        [_value("on", [], TensorProto.BOOL), _value("next", [WIDTH]), _value("stacked", [WIDTH])],
        [numpy_helper.from_array(np.ones(1, np.float32), "one")],
    )
    constants = [
        numpy_helper.from_array(np.array(trips), "trips"),
        numpy_helper.from_array(np.array(True), "yes"),
    ]
    node = helper.make_node("Loop", ["trips", "yes", "y"], ["r", "s"], body=body)
    return _model(node, [trips, WIDTH], constants)


def scan(steps: int) -> onnx.ModelProto:
    """One state, and one of its values a step."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "item"], ["sum"]),
            helper.make_node("Exp", ["sum"], ["half"]),
            helper.make_node("Mul", ["half", "half"], ["next"]),
            helper.make_node("Identity", ["next"], ["kept"]),
        ],
        "body",
        [_value("state", [WIDTH]), _value("item", [WIDTH])],
        [_value("next", [WIDTH]), _value("kept", [WIDTH])],
    )
    items = numpy_helper.from_array(np.zeros((steps, WIDTH), np.float32), "items")
    node = helper.make_node("Scan", ["y", "items"], ["r", "s"], body=body, num_scan_inputs=1)
    return _model(node, [steps, WIDTH], [items])


def scan_along_columns(steps: int) -> onnx.ModelProto:
    """As `scan`, its items and results in the columns: one axis from the front, one from the back."""
    model = scan(steps)
    model.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(np.zeros((WIDTH, steps), np.float32), "items")
    )
    for name, axis in (("scan_input_axes", 1), ("scan_output_axes", -1)):
        model.graph.node[1].attribute.append(helper.make_attribute(name, [axis]))
    model.graph.output[1].CopyFrom(_value("z", [WIDTH, steps]))
    return model


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("make", [loop, scan, scan_along_columns])
def test_iterations(make: Any, count: int, tmp_path: Path) -> None:
    """What a Loop stacks stays until it is joined; a Scan's states take turns in two buffers, and what it scans
    along columns is transposed."""
    model = make(count)
    predicted = predict(
        model.SerializeToString(),
        options={"provider": "cpu", "graph_optimization_level": 2},
        device=load("h200"),
    )
    onnx.save(model, tmp_path / "model.onnx")
    with tempfile.TemporaryDirectory() as folder:
        given = {"x": np.ones(WIDTH, np.float32)}
        measured = session.measure(tmp_path / "model.onnx", asdict(predicted.settings), given, Path(folder))
    last = measured["runs"][-1]
    assert (predicted.peak_in_use, predicted.held) == (last["peak_in_use"], last["held"])


def test_a_loop_of_unknown_length_may_take_more() -> None:
    """Nothing says how often it runs: the estimate says that it may be too low."""
    model = loop(3)
    del model.graph.initializer[0]
    model.graph.input.append(_value("trips", [], TensorProto.INT64))
    predicted = predict(model.SerializeToString(), options={}, device=load("h200"))
    assert any("number of iterations" in note and "may be more" in note for note in predicted.notes)
