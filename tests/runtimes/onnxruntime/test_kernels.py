"""Single kernels: sharing, scratch and temporaries against measurements, and rules by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import devices, releases
from analyzer.devices import DeviceProfile
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.libraries.cudnn.convolution import Convolution, Question
from analyzer.runtimes.onnxruntime.kernels import declared, registered
from analyzer.runtimes.onnxruntime.kernels.einsum import temporaries
from analyzer.runtimes.onnxruntime.kernels.packing import cached
from analyzer.runtimes.onnxruntime.kernels.scratch import KernelSettings, scratch
from analyzer.runtimes.onnxruntime.load import load
from analyzer.runtimes.onnxruntime.plan.placement import assign
from tests.runtimes.onnxruntime import ort_reference as reference

H200 = devices.load("h200")
_BYTES = 4 * 8 * 16 * 4


@pytest.mark.parametrize("provider", ["cuda", "cpu"])
def test_sharing_tables_match_every_measured_operator(provider: str) -> None:
    """A result that shares its input's buffer asks the arena for nothing."""
    checked = 0
    for op, domain, _, rows in reference.kernels()["sharing"][provider]:
        own = [
            row for row in rows if row[0] == op and not any(other[0].startswith("Memcpy") for other in rows)
        ]
        copied = [row for row in rows if row[0] == "MemcpyToHost"]
        if provider == "cuda" and domain == "" and any(row[0] == op for row in rows):
            assert registered.has_kernel("cuda", domain, op, 20, ["float32"], []) == (not copied), op
        if op in ("Exp", "Cast", "Mish", "HardSwish") or len(own) != 1 or own[0][1] not in ("CUDA", "CPUE"):
            continue
        ran = "cuda" if own[0][1] == "CUDA" else "cpu"
        shares = bool(declared.alias(ran, op, 1, 1) or declared.in_place(ran, op))
        if shares or own[0][2] >= _BYTES:
            if op == "ScatterND" and provider == "cpu":
                continue
            assert shares == (own[0][2] == 0), op
            checked += 1
    assert checked > 60


def _single(op: str, shapes: list[list[int]], attributes: dict[str, Any], constants: dict[str, Any]) -> Any:
    names = [f"x{k}" for k in range(len(shapes))]
    node = helper.make_node(op, [*names, *constants], ["y"], name="node", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes, strict=True)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _takes(model: Any) -> list[int]:
    graph = load(model, None)
    assign(graph, "cuda")
    node = graph.nodes[0]
    return [nbytes for nbytes, _ in scratch(node, graph, KernelSettings("cuda", "EXHAUSTIVE", H200))]


@pytest.mark.parametrize(
    "entry",
    [
        entry
        for entry in reference.kernels()["scratch"]
        if entry["what"][0] == "op"
        and entry["what"][1] in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2")
    ],
    ids=lambda entry: "-".join(map(str, entry["what"][1:4])),
)
def test_reductions(entry: dict[str, Any]) -> None:
    """Sums by rows or columns, everything else through a copy."""
    _, op, shape, axes, _ = entry["what"]
    found = _takes(_single(op, [shape], {"keepdims": 1}, {"a": np.array(axes, np.int64)}))
    assert found == entry["run"][2:]


@pytest.mark.parametrize(
    "entry",
    [entry for entry in reference.kernels()["scratch"] if entry["what"][0] == "rnn"],
    ids=lambda entry: "-".join(map(str, entry["what"][1:])),
)
def test_recurrent_layers(entry: dict[str, Any]) -> None:
    """Dropout state and weights at the session's start, cuDNN's work space in the run: a formula for 246 measurements."""
    _, op, steps, batch, features, hidden, directions = entry["what"]
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    weights = {
        "w": np.zeros((directions, gates * hidden, features), np.float32),
        "r": np.zeros((directions, gates * hidden, hidden), np.float32),
    }
    way = "bidirectional" if directions == 2 else "forward"
    attributes = {"hidden_size": hidden, "direction": way} | (
        {"linear_before_reset": 1} if op == "GRU" else {}
    )
    model = _single(op, [[steps, batch, features]], attributes, weights)
    graph = load(model, None)
    assign(graph, "cuda")
    assert cached(graph.nodes[0], graph, H200) == entry["session"][2:]
    found = _takes(model)
    work = max(entry["run"][2:])
    assert max(found) == work
    if directions == 2:
        assert found[-1] == entry["run"][-1]


@pytest.mark.parametrize(
    "entry",
    [entry for entry in reference.kernels()["scratch"] if entry["what"][1] == "Einsum"],
    ids=lambda entry: f"{entry['what'][3]}-{entry['what'][2][0][0]}",
)
def test_einsum(entry: dict[str, Any]) -> None:
    """Temporaries one by one; the output comes last."""
    _, _, shapes, equation, _ = entry["what"]
    found = temporaries(equation, [tuple(shape) for shape in shapes], 4)
    assert found == entry["run"][2:-1]


def test_einsum_by_hand() -> None:
    """[2,3,4] x [2,4,5]: the right operand from b,j,k to b,j,k,(i): copied; product 2*3*5; no reordering."""
    assert temporaries("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)], 4) == [2 * 4 * 5 * 4, 2 * 3 * 5 * 4]
    assert temporaries("ii->i", [(3, 3)], 4) is None


STEM = Convolution("forward", "float32", False, (64, 3, 224, 224), (64, 3, 7, 7), (3, 3), (2, 2), (1, 1))
RESNET_STEM = Question(STEM, STEM.y_shape, "EXHAUSTIVE")


def workspace(question: Question, device: DeviceProfile = H200) -> tuple[int, str]:
    (found,) = choices_of(device).frontend([question])
    return found.nbytes, found.source


def test_convolution_workspaces() -> None:
    """Measured shapes give their figure, as the arena's log shows it; DEFAULT needs a small table."""
    assert workspace(RESNET_STEM) == (244_093_712, "measured")
    layer = Convolution("forward", "float32", False, (64, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
    assert workspace(Question(layer, layer.y_shape, "EXHAUSTIVE")) == (102_908_051, "measured")
    assert workspace(RESNET_STEM._replace(searcher="DEFAULT"))[0] < 4096


def test_a_convolution_nobody_can_be_asked_about_lies_between_nothing_and_the_most() -> None:
    """Between two recorded batches the figure is on the straight line; its range says that it is unknown."""
    odd = STEM._replace(x_shape=(60, 3, 224, 224))
    (found,) = choices_of(H200).frontend([Question(odd, odd.y_shape, "EXHAUSTIVE")])
    assert (found.source, found.low_bytes) == ("unknown", 0)
    assert 0 < found.nbytes < found.high_bytes
    assert workspace(RESNET_STEM, devices.load("b200"))[1] == "unknown"


# Operands that say what to do rather than hold data, by the names ONNX gives them.
_SETTINGS = {
    "shape", "axes", "repeats", "starts", "ends", "steps", "split", "pads", "constant_value", "roi", "scales", "sizes", "K",
    "depth", "axis", "min", "max", "k", "ratio", "training_mode", "cond", "M", "max_output_boxes_per_class", "iou_threshold",
    "score_threshold", "start", "limit", "delta",
}  # fmt: skip


@pytest.mark.parametrize(
    "op", [op for op in declared.HOST_INPUTS if onnx.defs.has(op) and op != "ConstantOfShape"]
)
def test_operands_on_the_host_are_those_that_say_what_to_do(op: str) -> None:
    """Beside the operator's definition: exactly the settings among its operands are read on the host."""
    names = [item.name for item in onnx.defs.get_schema(op).inputs]
    if op == "Upsample":  # its last definition has been withdrawn
        names = [item.name for item in onnx.defs.get_schema(op, 9).inputs]
    host = [declared.input_on_host("cuda", op, place) for place in range(len(names))]
    assert host == [name in _SETTINGS for name in names]
    assert all(declared.input_on_host("cpu", op, place) for place in range(len(names)))


def test_operands_and_results_of_other_operators_are_on_the_device() -> None:
    assert not declared.input_on_host("cuda", "Exp", 0)
    assert declared.input_on_host("cuda", "ConstantOfShape", 0)
    assert [
        declared.input_on_host("cuda", "com.microsoft.GroupQueryAttention", place) for place in (5, 6, 7)
    ] == [
        False,
        True,
        False,
    ]
    assert declared.input_on_host("cuda", "MemcpyFromHost", 0)
    assert not declared.input_on_host("cuda", "MemcpyToHost", 0)
    for op, host in (("Shape", True), ("Size", True), ("MemcpyToHost", True), ("Exp", False)):
        assert declared.output_on_host("cuda", op, 0) is host
        assert not declared.output_on_host("cuda", op, 1)
        assert declared.output_on_host("cpu", op, 0)


def test_aliases_need_both_ends() -> None:
    """An operator without the operand, or without the result, shares nothing; control flow never."""
    assert declared.alias("cuda", "Reshape", 2, 1) == ((0, 0),)
    assert declared.alias("cuda", "Reshape", 0, 1) == declared.alias("cuda", "Reshape", 1, 0) == ()
    assert declared.alias("cpu", "Optional", 1, 1) == ((0, 0),)
    assert declared.alias("cuda", "Loop", 1, 1) == ()
    assert declared.in_place("cuda", "Exp") == ()


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        # In order, nothing to multiply.
        ("ij->ij", [(2, 3)], []),
        # Order i, j, k: kj is brought to jk, then to j, k, i; the product.
        ("ij,kj->ik", [(2, 3), (4, 3)], [12, 12, 8]),
        # j is in both, i in the left only: both operands to j, i; the product, and back to i, j.
        ("ij,j->ij", [(2, 3), (3,)], [6, 3, 6, 6]),
        ("bij,bkj->bik", [(2, 3, 5), (2, 7, 5)], [70, 70, 42]),
        # Two products; the right operands go to b, c, (d, a) and b, c, d, (a).
        ("ab,bc,cd->ad", [(2, 3), (3, 5), (5, 7)], [15, 10, 35, 14]),
        # The product is a, c, the result c, a: one copy more.
        ("ab,cb->ca", [(2, 3), (5, 3)], [15, 15, 10, 10]),
        ("i,i", [(2,), (2,)], None),
        ("...i->i", [(2,)], None),
        ("ij,jk->ik", [(2, 3)], None),
        ("ij->ij", [(2, 3, 4)], None),
    ],
)
def test_einsum_equations(equation: str, shapes: list[tuple[int, ...]], expected: list[int] | None) -> None:
    """Elements of every temporary, by the rules; None for equations they do not cover."""
    found = temporaries(equation, shapes, 4)
    assert found == (None if expected is None else [4 * count for count in expected])


def test_the_kernels_of_both_providers_are_of_the_release_that_figures_are_of() -> None:
    """1.31 has CUDA kernels that 1.24's list lacks (TopK of bfloat16, LabelEncoder), and none without an end for
    what an operator became later (Dropout of version 22)."""
    table = json.loads(registered.TABLE.read_text())
    assert releases.parse(table["onnxruntime"]) == releases.RECORDED["onnxruntime"]
    assert registered.has_kernel("cuda", "", "TopK", 24, ["bfloat16", "int64"], ["bfloat16", "int64"])
    assert registered.has_kernel("cuda", "", "Dropout", 21, ["float32"], ["float32"])
    assert not registered.has_kernel("cuda", "", "Dropout", 22, ["float32"], ["float32"])
    assert registered.knows("cuda", "ai.onnx.ml", "LabelEncoder")
