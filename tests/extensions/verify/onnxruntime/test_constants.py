"""What ONNX Runtime takes for a constant, and folds, against a real session on the CPU provider.

Up to IR version 3 every initializer stands among the inputs and is a constant all the same; from version 4 on, one that
stands there may be overridden, and nothing that needs its value is folded.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")

import analyzer
from analyzer import devices
from analyzer.capture.onnx import capture_onnx
from analyzer.errors import InputError
from analyzer.runtimes.onnxruntime import predict
from analyzer_verify.runs import session

_RANDOM = np.random.default_rng(0)


def _weight(name: str, *shape: int) -> Any:
    return numpy_helper.from_array(_RANDOM.random(shape).astype(np.float32), name)


def _convolution(
    ir_version: int, opset: int, middle: str, bias: tuple[int, ...], *, listed: bool, swapped: bool = False
) -> onnx.ModelProto:
    """Conv, then Add, Mul or BatchNormalization with constants, then Relu; `listed`: weights among the inputs."""
    constants = [_weight("w", 16, 3, 3, 3)]
    constants += (
        [_weight(name, 16) for name in "sbmv"] if middle == "BatchNormalization" else [_weight("b", *bias)]
    )
    operands = ["c", *(tensor.name for tensor in constants[1:])]
    operands = list(reversed(operands)) if swapped else operands
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node(middle, operands, ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3, 64, 64])]
    if listed:
        inputs += [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in constants]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16, 64, 64])
    graph = helper.make_graph(nodes, "g", inputs, [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def _both(
    model: onnx.ModelProto, feeds: dict[str, Any], folder: Path
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Peak in use and held, predicted and measured."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    mine = predict(
        str(path), options={"provider": "cpu", "graph_optimization_level": 2}, device=devices.load("h200")
    )
    real = session.measure(path, asdict(mine.settings), feeds, folder)["runs"][-1]
    return (mine.peak_in_use, mine.held), (real["peak_in_use"], real["held"])


@pytest.mark.parametrize(
    ("ir_version", "opset", "middle", "bias", "listed", "swapped"),
    [
        (8, 17, "Add", (16, 1, 1), False, False),
        (8, 17, "Add", (1, 16, 1, 1), False, False),
        (8, 17, "Add", (1, 16, 1, 1), False, True),
        (8, 17, "Add", (1,), False, False),
        (8, 17, "Mul", (16, 1, 1), False, False),
        (8, 17, "Mul", (), False, False),
        (8, 17, "BatchNormalization", (), False, False),
        (8, 17, "BatchNormalization", (), True, False),
        (4, 9, "BatchNormalization", (), True, False),
        (3, 8, "BatchNormalization", (), True, False),
    ],
)
def test_what_is_folded_into_a_convolution(
    ir_version: int,
    opset: int,
    middle: str,
    bias: tuple[int, ...],
    listed: bool,
    swapped: bool,
    tmp_path: Path,
) -> None:
    """Once 182 % too much behind Conv + Add of [C,1,1]; 65 % too little, silently, where weights are among the inputs of IR 4 and
    later (`keep_initializers_as_inputs`); 76 % too little behind batch norm in files of IR 3."""
    model = _convolution(ir_version, opset, middle, bias, listed=listed, swapped=swapped)
    mine, real = _both(model, {"x": _RANDOM.random((4, 3, 64, 64)).astype(np.float32)}, tmp_path)
    assert mine == real


def test_old_files_are_read_like_new_ones(tmp_path: Path) -> None:
    """The same network in an old file (IR 3) with its weights among the inputs, once refused with a hint that blamed the user's
    shapes, and in a new one without."""
    found = []
    for ir_version, opset, listed in ((3, 8, True), (8, 17, False)):
        path = tmp_path / f"{ir_version}.onnx"
        onnx.save(_convolution(ir_version, opset, "Add", (16, 1, 1), listed=listed), path)
        estimate = analyzer.analyze(str(path), device="h200")
        assert not any("guess" in note for note in estimate.notes)
        found.append(
            (estimate.graph_peak, estimate.naive.total, estimate.peak_allocated, estimate.device_used)
        )
    assert found[0] == found[1]


def test_a_reshape_that_contradicts_its_input_is_refused_in_old_files_too(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6])
    shape = numpy_helper.from_array(np.array([5, 5]), "shape")
    listed = helper.make_tensor_value_info("shape", TensorProto.INT64, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])], "g", [x, listed], [y], [shape]
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3), path)
    with pytest.raises(InputError, match="Reshape"):
        analyzer.analyze(str(path), device="h200")


def _squeezed(opset: int) -> onnx.ModelProto:
    """What TorchScript exports for `x.squeeze(0)`: an If by the first dimension's size."""
    bare = helper.make_tensor_value_info
    squeeze = (
        helper.make_node("Squeeze", ["x", "axes"], ["t"])
        if opset >= 13
        else helper.make_node("Squeeze", ["x"], ["t"], axes=[0])
    )
    then = helper.make_graph([squeeze], "then", [], [bare("t", TensorProto.FLOAT, None)])
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["e"])], "else", [], [bare("e", TensorProto.FLOAT, None)]
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["d"], axis=0),
        helper.make_node("Equal", ["d", "one"], ["c"]),
        helper.make_node("If", ["c"], ["i"], then_branch=then, else_branch=other),
        helper.make_node("Relu", ["i"], ["y"]),
    ]
    constants = [numpy_helper.from_array(np.array(v), n) for n, v in (("zero", 0), ("one", 1), ("axes", [0]))]
    graph = helper.make_graph(
        nodes,
        "g",
        [bare("x", TensorProto.FLOAT, ["N", 128])],
        [bare("y", TensorProto.FLOAT, None)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize("batch", [1, 8])
def test_a_branch_that_shapes_rule_out_is_none(opset: int, batch: int, tmp_path: Path) -> None:
    """An If whose other branch cannot be taken at this batch: once it refused the whole model (Silero VAD)."""
    path = tmp_path / "model.onnx"
    onnx.save(_squeezed(opset), path)
    estimate = analyzer.analyze(str(path), batch=batch, device="h200")
    assert estimate.peak_allocated < 1 << 20


def test_what_a_custom_operator_makes_is_what_the_file_declares(tmp_path: Path) -> None:
    """An unknown operator's declared result wins over the guess that it is like the largest operand."""
    nodes = [
        helper.make_node("Tokens", ["x"], ["a"], domain="mine"),
        helper.make_node("Identity", ["a"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["N"])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, ["N", 16])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    path = tmp_path / "model.onnx"
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets, ir_version=8), path
    )
    (made,) = capture_onnx(str(path), batch=8).operators[-1].outputs
    assert made is not None
    assert (made.dtype, made.shape) == ("int64", (8, 16))


def _by_rate() -> onnx.ModelProto:
    """An If by a scalar input, whose branches make results of different sizes."""
    bare = helper.make_tensor_value_info
    then = helper.make_graph(
        [helper.make_node("Concat", ["x", "x"], ["t"], axis=1)],
        "then",
        [],
        [bare("t", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["e"])], "else", [], [bare("e", TensorProto.FLOAT, None)]
    )
    nodes = [
        helper.make_node("Equal", ["sr", "known"], ["c"]),
        helper.make_node("If", ["c"], ["y"], "branch", then_branch=then, else_branch=other),
    ]
    inputs = [bare("x", TensorProto.FLOAT, [8, 1024]), bare("sr", TensorProto.INT64, [])]
    constants = [numpy_helper.from_array(np.array(16000), "known")]
    graph = helper.make_graph(nodes, "g", inputs, [bare("y", TensorProto.FLOAT, None)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("said", "columns"),
    [
        ({}, 2048),  # the larger branch
        ({"values": {"sr": 16000}}, 2048),
        ({"values": {"sr": 8000}}, 1024),
        ({"assume": {"c": True}}, 2048),
        ({"assume": {"branch": False}}, 1024),
    ],
)
def test_what_the_user_says_of_a_condition(said: dict[str, Any], columns: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_by_rate(), path)
    estimate = analyzer.analyze(str(path), device="h200", **said)
    plain = analyzer.analyze(str(path), device="h200")
    assert (estimate.graph_peak < plain.graph_peak) == (columns == 1024)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"values": {"rate": 1}}, "no input 'rate'"),
        ({"values": {"x": 1}}, "not one number"),
        ({"assume": {"d": True}}, "no If has the condition"),
    ],
)
def test_what_nothing_in_the_model_answers_to(said: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_by_rate(), path)
    with pytest.raises(InputError, match=words):
        analyzer.analyze(str(path), device="h200", **said)
