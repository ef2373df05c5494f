"""If beside a real session on the CPU provider: both branches are loaded, one runs; to the byte.

The networks are built like Silero's voice activity detector (github.com/snakers4/silero-vad), as its public ONNX files are: a
short-time Fourier transform by a convolution, an encoder, an LSTM whose gates the exporter reorders, a network a sampling rate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")

from analyzer_verify.verify import verify
from tests.runtimes.onnxruntime.rewritten import mine, theirs

BATCH, HIDDEN = 8, 128


class Parts:
    """Nodes and constants of one graph. prefix: of all its names."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Any) -> str:
        """Inside a branch exporters write Constant nodes."""
        tensor = numpy_helper.from_array(np.asarray(value), self.prefix + name)
        self.nodes.append(helper.make_node("Constant", [], [self.prefix + name], value=tensor))
        return self.prefix + name

    def weight(self, name: str, *shape: int) -> str:
        """An initializer, which stands in the outermost graph; no two are equal."""
        values = np.random.default_rng(len(self.constants)).standard_normal(shape, np.float32)
        self.constants.append(numpy_helper.from_array(values, self.prefix + name))
        return self.prefix + name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """A node; returns the name of its first output."""
        name = f"{self.prefix}{op}_{len(self.nodes)}"
        names = [name, *(f"{name}_{place}" for place in range(1, outputs))]
        self.nodes.append(helper.make_node(op, [*inputs], names, **attributes))
        return name


def gates(parts: Parts, weight: str) -> str:
    """Weights in the order of ONNX (i, o, f, c), from PyTorch's (i, f, c, o), as the exporter writes it, for one direction."""
    axis, step = parts.constant(f"{weight}_axis", [0]), parts.constant(f"{weight}_step", [1])
    pieces = [
        parts.add("Slice", weight, parts.constant(f"{weight}_from_{first}", [first * HIDDEN]),
                  parts.constant(f"{weight}_to_{first}", [(first + 1) * HIDDEN]), axis, step)
        for first in (0, 3, 1, 2)
    ]  # fmt: skip
    return parts.add("Unsqueeze", parts.add("Concat", *pieces, axis=0), parts.constant(f"{weight}_new", [0]))


def recurrent(parts: Parts, x: str, state: str, weights: tuple[str, str]) -> str:
    """One step of an LSTM from the state (hidden, cell): the state behind it."""
    zero = parts.constant("time", [0])
    given = [
        parts.add("Unsqueeze", parts.add("Gather", state, parts.constant(f"part_{place}", place)), zero)
        for place in (0, 1)
    ]
    w, r = (gates(parts, weight) for weight in weights)
    parts.add("LSTM", parts.add("Unsqueeze", x, zero), w, r, "", "", *given, outputs=3, hidden_size=HIDDEN)
    made = parts.nodes[-1].output
    return parts.add("Concat", made[1], made[2], axis=0)


def network(parts: Parts, window: int, weights: Parts) -> list[str]:
    """Spectrum, encoder, LSTM, decoder. Returns the names of the speech's probability and of the state."""
    half = window // 2 + 1
    x = parts.add("Unsqueeze", "input", parts.constant("channel", [1]))
    reflected = parts.add("Pad", x, parts.constant("pads", [0, 0, 0, 0, 0, window // 4]), mode="reflect")
    spectrum = parts.add(
        "Conv", reflected, weights.weight("basis", 2 * half, 1, window), strides=[window // 2]
    )
    axis, step, two = (
        parts.constant("axis", [1]),
        parts.constant("step", [1]),
        parts.constant("two", np.float32(2)),
    )
    squares = []
    for place, (first, last) in enumerate(((0, half), (half, 2 * half))):
        part = parts.add(
            "Slice", spectrum, parts.constant(f"first_{place}", [first]), parts.constant(f"last_{place}", [last]), axis, step
        )  # fmt: skip
        squares.append(parts.add("Pow", part, two))
    x = parts.add("Sqrt", parts.add("Add", *squares))
    for place, (channels, filters, stride) in enumerate(((half, 128, 1), (128, 64, 2), (64, 128, 1))):
        convolved = parts.add(
            "Conv", x, weights.weight(f"filters_{place}", filters, channels, 3), strides=[stride], pads=[1, 1]
        )
        x = parts.add("Relu", convolved)
    x = parts.add("ReduceMean", x, parts.constant("last", [2]), keepdims=0)
    state = recurrent(
        parts, x, "state", (weights.weight("w", 4 * HIDDEN, HIDDEN), weights.weight("r", 4 * HIDDEN, HIDDEN))
    )
    hidden = parts.add("Gather", state, parts.constant("first_part", 0))
    decoded = parts.add("Conv", parts.add("Unsqueeze", parts.add("Relu", hidden), parts.constant("end", [2])),
                        weights.weight("decoder", 1, HIDDEN, 1))  # fmt: skip
    return [parts.add("Sigmoid", decoded), state]


def value(name: str, shape: list[Any] | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def branch(name: str, window: int, weights: Parts) -> onnx.GraphProto:
    parts = Parts(f"{name}/")
    made = network(parts, window, weights)
    results = [value(made[0], ["n", "a", "b"]), value(made[1], ["c", "n", "d"])]
    return helper.make_graph(parts.nodes, name, [], results)


def model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], weights: list[onnx.TensorProto], opset: int) -> onnx.ModelProto:  # fmt: skip
    results = [value("output", [BATCH, 1, 1]), value("next", [2, BATCH, HIDDEN])]
    graph = helper.make_graph(nodes, "vad", inputs, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


GIVEN = [value("input", [BATCH, 512]), value("state", [2, BATCH, HIDDEN])]


def a_network_a_rate(condition: onnx.NodeProto | None = None, opset: int = 18) -> onnx.ModelProto:
    """Two networks in an If. condition: a node that makes "fast"; without one the sampling rate decides."""
    weights = Parts("")
    weights.prefix = "a."
    first = branch("a", 256, weights)
    weights.prefix = "b."
    second = branch("b", 128, weights)
    asked = condition or helper.make_node("Equal", ["sr", "rate"], ["fast"])
    chosen = helper.make_node("If", ["fast"], ["output", "next"], then_branch=first, else_branch=second)
    rate = numpy_helper.from_array(np.array(16000), "rate")
    given = [*GIVEN, value("sr", [], TensorProto.INT64)] if condition is None else GIVEN
    return model([asked, chosen], given, [*weights.constants, rate], opset)


def two_ways_with_one_weight() -> onnx.ModelProto:
    """An If whose branches both have an LSTM of the same weights, as where a state may be left out."""
    weights = Parts("")
    w, r = weights.weight("w", 4 * HIDDEN, HIDDEN), weights.weight("r", 4 * HIDDEN, HIDDEN)
    branches = {}
    for name, op in (("then_branch", "Tanh"), ("else_branch", "Neg")):
        parts = Parts(f"{name}/")
        state = recurrent(parts, "frame", parts.add(op, "state"), (w, r))
        branches[name] = helper.make_graph(parts.nodes, name, [], [value(state, None)])
    cut = Parts("cut/")
    frame = cut.add(
        "Slice", "input", cut.constant("from", [0]), cut.constant("to", [HIDDEN]), cut.constant("axis", [1])
    )
    nodes = [
        *cut.nodes,
        helper.make_node("Relu", [frame], ["frame"]),
        helper.make_node("Shape", ["sr"], ["rank"]),
        helper.make_node("ReduceSum", ["sr"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["is_there"]),
        helper.make_node("If", ["is_there"], ["next"], **branches),
        helper.make_node("ReduceMean", ["next"], ["output"]),
    ]
    zero = numpy_helper.from_array(np.array(0), "zero")
    return model(nodes, [*GIVEN, value("sr", [1], TensorProto.INT64)], [*weights.constants, zero], 18)


def to_the_byte(proto: onnx.ModelProto, folder: Path, **values: float) -> None:
    onnx.save(proto, folder / "model.onnx")
    found = verify(
        str(folder / "model.onnx"), graph=False, values=values, runtime_options={"provider": "cpu"}
    )
    assert found.marks
    assert [(mark.predicted_allocated, mark.predicted_reserved) for mark in found.marks] == [
        (mark.measured_allocated, mark.measured_reserved) for mark in found.marks
    ]


@pytest.mark.parametrize(("rate", "opset"), [(16000, 18), (8000, 18), (16000, 19)])
def test_a_network_a_rate(rate: int, opset: int, tmp_path: Path) -> None:
    """The network that does not run has its weights packed too."""
    to_the_byte(a_network_a_rate(opset=opset), tmp_path, sr=rate)


def test_equal_weights_are_packed_once_for_both_branches(tmp_path: Path) -> None:
    to_the_byte(two_ways_with_one_weight(), tmp_path)


@pytest.mark.parametrize("taken", [True, False])
def test_a_constant_condition_leaves_one_branch(taken: bool, tmp_path: Path) -> None:
    """`ConstantFoldIfNode`; the nodes of the branch are those of the graph ONNX Runtime saves."""
    fast = numpy_helper.from_array(np.array(taken))
    proto = a_network_a_rate(helper.make_node("Constant", [], ["fast"], value=fast))
    to_the_byte(proto, tmp_path)
    assert theirs(proto, 2, tmp_path)[0] == mine(proto, 2)[0]
