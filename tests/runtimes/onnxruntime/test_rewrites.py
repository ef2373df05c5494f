"""Small rewrites by hand: eliminations, shared constants, equal computations, folding, bodies, layout, copies, the editor."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.load import load
from analyzer.runtimes.onnxruntime.plan.order import topological
from analyzer.runtimes.onnxruntime.plan.placement import assign
from analyzer.runtimes.onnxruntime.rewrite import bodies, cleanup, copies, folding, layout, optimise
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from tests.runtimes.onnxruntime import ort_models
from tests.runtimes.onnxruntime.graphs import build, line, made, shown


def after(rewrite: Callable[[Editor], None], graph: RuntimeGraph) -> list[str]:
    """The nodes once the rewrite has run; the editor's books are checked against the graph."""
    editor = Editor(graph)
    editor.order()
    rewrite(editor)
    fresh = Editor(graph)
    assert editor.order() == topological(graph)
    assert {name: users for name, users in editor.readers.items() if users} == fresh.readers
    assert {name: node.index for name, node in editor.maker.items()} == {
        name: node.index for name, node in fresh.maker.items()
    }
    return shown(graph)


@pytest.mark.parametrize("name", sorted(ort_models.MODELS))
@pytest.mark.parametrize("provider", ["cpu", "cuda"])
def test_the_order_is_known_after_every_edit(
    name: str, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks an editor gets the order that the graph has at that moment."""
    asked = []

    def order(editor: Editor) -> list[Node]:
        found = remembered(editor)
        asked.append(found == topological(editor.graph))
        return found

    remembered = Editor.order
    monkeypatch.setattr(Editor, "order", order)
    optimise(load(ort_models.MODELS[name](), 3), provider, 99)
    assert asked and all(asked)


ONES = {
    "one": np.array(1.0),
    "zero": np.array(0.0),
    "ones": np.array([1.0, 1.0]),
    "wide": np.array([[[1.0]]]),
}


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        ("Identity x -> a; Exp a -> y", True),
        ("mine.Identity x -> a; Exp a -> y", False),
        ("Dropout x -> a; Exp a -> y", True),
        ("Dropout x one -> a; Exp a -> y", True),
        ("Dropout x one _ -> a; Exp a -> y", True),
        ("Dropout x one t -> a; Exp a -> y", False),
        ("Dropout x -> a k; Exp a -> y", True),
        ("Dropout x -> a k; Add a k -> y", False),
        ("Cast x -> a; Exp a -> y", True),
        ("Cast i -> a; Exp a -> y", False),
        ("Expand x s -> a; Exp a -> y", True),
        ("Expand b s -> a; Exp a -> y", False),
        ("Expand n s -> a2; Exp a2 -> y", False),
        ("Add x zero -> a; Exp a -> y", True),
        ("Sub x zero -> a; Exp a -> y", True),
        ("Mul x one -> a; Exp a -> y", True),
        ("Div x one -> a; Exp a -> y", True),
        ("Add x one -> a; Exp a -> y", False),
        ("Mul x zero -> a; Exp a -> y", False),
        ("Div x zero -> a; Exp a -> y", False),
        ("Pow x one -> a; Exp a -> y", False),
        ("Mul x ones -> a; Exp a -> y", False),
        ("Mul x t -> a; Exp a -> y", False),
        ("Mul u wide -> a3; Exp a3 -> y", False),
    ],
)
def test_nodes_that_do_nothing(text: str, goes: bool) -> None:
    """x: float32 [2, 2]; i is an integer; the second operand of x * 1 must not widen it; what is returned stays."""
    shapes = {
        "x": (2, 2), "i": (2, 2), "a": (2, 2), "b": (1, 2), "s": (2,), "t": (2, 2), "n": ("n", 2), "a2": ("n", 2),
        "u": (2, 2), "a3": (1, 2, 2), "k": (2, 2), "given": (2, 2),
    }  # fmt: skip
    graph = build(f"Tanh given -> x; {text}", shapes, ONES, dtypes={"i": "int64"})
    found = after(cleanup.run, graph)
    assert (len(found) < 1 + len(text.split(";"))) == goes
    if goes:
        assert made(graph, "y").inputs[0] == "x"


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        ("Add x zero -> a; Exp a -> y", False),
        ("Dropout x one -> a; Exp a -> y", False),
        ("Expand x s -> a; Exp a -> y", False),
        ("Dropout x -> a; Exp a -> y", True),
        ("Identity x -> y", False),
    ],
)
def test_what_the_caller_gives_has_no_edge_that_could_take_over(text: str, goes: bool) -> None:
    """A node of several inputs goes only where a node makes one of them, as onnxruntime 1.31 does with `Dropout(x, ratio)` of a
    graph's input (`graph_utils::CanRemoveNode`)."""
    graph = build(text, {"x": (2, 2), "a": (2, 2), "s": (2,)}, ONES)
    assert (len(after(cleanup.run, graph)) < len(text.split(";"))) == goes


def test_unknown_shapes_are_not_compared() -> None:
    graph = build("Mul x one -> a; Exp a -> y", {"x": None, "a": (2, 2)}, ONES)
    assert len(after(cleanup.run, graph)) == 2
    expand = build("Expand x s -> a; Exp a -> y", {"x": None, "a": None, "s": (2,)})
    assert len(after(cleanup.run, expand)) == 2
    untyped = build("Cast x -> a; Exp a -> y", {"x": (2,)}, dtypes={"x": "", "a": ""})
    assert len(after(cleanup.run, untyped)) == 2


def test_equal_numbers_are_one_constant() -> None:
    """Up to eight elements of equal type, shape and values; the rest stays, and what the graph returns."""
    constants = {
        "a": np.array(2.0), "b": np.array(2.0), "c": np.array([2.0]), "d": np.array([2.0]), "e": np.array(3.0),
        "i": np.array(2), "v": np.array([2.0] * 8), "w": np.array([2.0] * 8), "u": (), "f": np.array(2.0),
        "p": np.array([2.0] * 9), "q": np.array([2.0] * 9), "r": np.array([[2.0]]),
    }  # fmt: skip
    graph = build("Sum x a b c d e i v w u f p q r -> y", {"x": (2,)}, constants, outputs=("y", "f"))
    assert after(cleanup.share_constants, graph) == ["Sum x a a c c e i v v u f p q r -> y"]
    assert list(graph.initializers) == ["a", "c", "e", "i", "v", "u", "f", "p", "q", "r"]


@pytest.mark.parametrize(
    ("text", "attributes", "count"),
    [
        ("Exp x -> a; Exp x -> b; Add a b -> y", {}, 2),
        ("Exp x -> a; Neg x -> b; Add a b -> y", {}, 3),
        ("Exp x -> a; mine.Exp x -> b; Add a b -> y", {}, 3),
        ("Exp x -> a; Exp z -> b; Add a b -> y", {}, 3),
        ("Elu x -> a; Elu x -> b; Add a b -> y", {"a": {"alpha": 1.0}, "b": {"alpha": 1.0}}, 2),
        ("Elu x -> a; Elu x -> b; Add a b -> y", {"a": {"alpha": 1.0}, "b": {"alpha": 2.0}}, 3),
        ("Elu x -> a; Elu x -> b; Add a b -> y", {"a": {"pkg.name": "k"}, "b": {}}, 2),
        ("Split x -> a c; Split x -> b; Sum a b c -> y", {}, 3),
        ("RandomNormalLike x -> a; RandomNormalLike x -> b; Add a b -> y", {}, 3),
        ("Exp x -> a; Exp x -> b; Neg a -> c; Neg b -> d; Add c d -> y", {}, 3),
        ("Split x -> a _; Split x -> _ b; Add a b -> y", {}, 2),
    ],
)
def test_equal_computations_are_one(text: str, attributes: dict[str, Any], count: int) -> None:
    graph = build(text, {"x": (2,), "z": (2,), "b": (2,)}, attributes=attributes)
    assert len(after(cleanup.common_subexpressions, graph)) == count


def test_what_the_graph_returns_is_computed_by_itself() -> None:
    graph = build("Exp x -> y; Exp x -> z", {"x": (2,)}, outputs=("y", "z"))
    assert len(after(cleanup.common_subexpressions, graph)) == 2


def test_what_the_graph_returns_stays_of_equal_computations() -> None:
    """As onnxruntime 1.31 writes it down (`optimized_model_filepath`, basic): an output that comes first in execution order."""
    graph = build("Exp x -> a; Neg a -> z; Exp x -> y", {"x": (2,)}, outputs=("y", "z"))
    assert sorted(after(cleanup.common_subexpressions, graph)) == ["Exp x -> y", "Neg y -> z"]
    graph = build("Exp x -> y; Exp x -> a; Neg a -> z", {"x": (2,)}, outputs=("y", "z"))
    assert len(after(cleanup.common_subexpressions, graph)) == 3


# Folding


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Exp c -> a; Add x a -> y", ["Add x a -> y"]),
        ("Exp w -> a; Add x a -> y", ["Add x a -> y"]),
        ("Add c c -> a; Neg a -> b; Add x b -> y", ["Add x b -> y"]),
        ("Add c x -> a; Add x a -> y", None),
        ("mine.Exp c -> a; Add x a -> y", None),
        ("RandomNormalLike c -> a; Add x a -> y", None),
        ("DequantizeLinear c c -> a; Add x a -> y", None),
        ("Exp c -> y", None),
        ("Exp c -> u; Add x u -> y", None),
        ("Split c -> a y", None),
        ("RandomNormal -> u; Add x u -> y", None),
        ("EyeLike -> a; Add x a -> y", None),
        ("Clip c _ d -> a; Add x a -> y", ["Add x a -> y"]),
    ],
)
def test_nodes_of_constants_are_constants(text: str, left: list[str] | None) -> None:
    """w has no elements here and folds all the same; u's shape is not known; what is returned is computed."""
    graph = build(
        text, {"x": (2,), "u": None, "a": (2,), "y": (2,)}, {"c": np.ones(2), "w": (2,), "d": np.array(1.0)}
    )
    before = shown(graph)
    found = after(folding.run, graph)
    assert found == (before if left is None else left)
    assert ("a" in graph.initializers) == (left is not None)


@pytest.mark.parametrize(
    ("shape", "attributes", "expected"),
    [
        ((2, 3, 5), {}, [2, 3, 5]),
        ((2, 3, 5), {"start": 1}, [3, 5]),
        ((2, 3, 5), {"start": 1, "end": 2}, [3]),
        ((2, 3, 5), {"end": -1}, [2, 3]),
        (("n", 3), {}, None),
        (("n", 3), {"start": 1}, None),
        (None, {}, None),
    ],
)
def test_shapes_that_are_numbers_are_constants(
    shape: Any, attributes: dict[str, int], expected: list[int] | None
) -> None:
    graph = build("Shape x -> s; Cast s -> y", {"x": shape, "s": (3,)}, attributes={"s": attributes})
    after(folding.run, graph)
    assert ("s" in graph.initializers) == (expected is not None)
    if expected is not None:
        data = graph.constant("s")
        assert data is not None and data.dtype == np.int64 and list(data) == expected
        assert graph.values["s"].symbols == (3,)


def test_a_shape_the_graph_returns_is_computed() -> None:
    graph = build("Shape x -> y", {"x": (2, 3), "y": (2,)})
    assert after(folding.run, graph) == ["Shape x -> y"]
    foreign = build("mine.Shape x -> s; Cast s -> y", {"x": (2, 3), "s": (2,)})
    assert len(after(folding.run, foreign)) == 2


def test_folded_values_have_numbers_for_names() -> None:
    graph = build("Exp c -> a; Add x a -> y", {"x": (2,), "a": ("n",)}, {"c": np.ones(4)})
    after(folding.run, graph)
    assert graph.values["a"].symbols == (4,)


# Bodies


@pytest.mark.parametrize(
    ("op", "provider", "expected"),
    [
        ("HardSwish", "cpu", ["HardSigmoid x -> a", "Mul x a -> y"]),
        ("HardSwish", "cuda", ["HardSwish x -> y"]),
        ("Mish", "cpu", ["Softplus x -> a", "Tanh a -> b", "Mul x b -> y"]),
        ("Mish", "cuda", ["Softplus x -> a", "Tanh a -> b", "Mul x b -> y"]),
        ("CastLike", "cpu", ["CastLike x -> y"]),  # damaged: nothing says what type it is to be
        ("mine.Mish", "cuda", ["mine.Mish x -> y"]),
    ],
)
def test_operators_without_a_kernel_run_as_others(op: str, provider: str, expected: list[str]) -> None:
    graph = build(f"{op} x -> y", {"x": ("n", 3)}, opset=18)
    found = " ; ".join(after(lambda editor: bodies.expand(editor, provider), graph))
    inner = dict.fromkeys(name for name in re.findall(r"\S+/\S+", found))
    for name, short in zip(inner, "abcd", strict=False):
        found = found.replace(name, short)
    assert found.split(" ; ") == expected
    assert all(graph.values[name].shape == (4, 3) for name in graph.values)


# Layout


@pytest.mark.parametrize(
    ("op", "shape", "dtype", "changed"),
    [
        ("MaxPool", (2, 3, 6, 7), "float32", True),
        ("GlobalAveragePool", (2, 3, 6, 7), "float16", True),
        ("MaxPool", (2, 3, 6, 7), "float64", False),
        ("MaxPool", (2, 3, 6), "float32", False),
        ("MaxPool", (2, 3, 6, 7, 8), "float32", False),
        ("MaxPool", None, "float32", False),
        ("InstanceNormalization", (2, 3, 6, 7), "float32", False),
        ("mine.MaxPool", (2, 3, 6, 7), "float32", False),
    ],
)
def test_layout_sensitive_kernels_run_channels_last(op: str, shape: Any, dtype: str, changed: bool) -> None:
    """Transposed in, transposed out; the node in the internal domain is a new one with the same attributes."""
    graph = build(f"{op} x -> y", {"x": shape}, dtype=dtype, attributes={"y": {"kernel_shape": (1, 1)}})
    found = after(layout.to_channels_last, graph)
    if not changed:
        assert found == [f"{op} x -> y"]
        return
    name = op.rpartition(".")[2]
    assert [entry.split()[0] for entry in found] == ["Transpose", f"com.ms.internal.nhwc.{name}", "Transpose"]
    (node,) = [node for node in graph.nodes.values() if node.op == name]
    assert (node.name, node.attributes) == ("n0", {"kernel_shape": (1, 1)})
    assert graph.values[node.inputs[0]].shape == (2, 6, 7, 3)
    assert graph.values[node.outputs[0]].shape == (2, 6, 7, 3)
    assert graph.values["y"].shape == (2, 3, 6, 7)
    assert made(graph, "y").attributes["perm"] == (0, 3, 1, 2)


def test_between_two_such_kernels_nothing_is_transposed() -> None:
    graph = build("MaxPool x -> a; Relu a -> b; AveragePool b -> y", {"x": (2, 3, 6, 7)})
    found = [entry.split()[0].rpartition(".")[2] for entry in after(layout.to_channels_last, graph)]
    assert found == ["Transpose", "MaxPool", "Relu", "AveragePool", "Transpose"]


# Copies between host and device


def copied(
    text: str, shapes: dict[str, Any], constants: dict[str, Any] | None = None, **providers: str
) -> RuntimeGraph:
    graph = build(text, shapes, constants)
    for name, provider in providers.items():
        made(graph, name).provider = provider
    after(copies.insert, graph)
    return graph


def test_one_copy_to_the_host_for_all_its_readers() -> None:
    graph = copied("Exp x -> a; Neg a -> b; Abs a -> c; Sum a b c -> y", {"x": (2,)}, b="cpu", c="cpu")
    (copy,) = [node for node in graph.nodes.values() if node.op == "MemcpyToHost"]
    assert (copy.inputs, copy.provider) == (["a"], "cuda")
    assert made(graph, "b").inputs == made(graph, "c").inputs == copy.outputs
    back = [node for node in graph.nodes.values() if node.op == "MemcpyFromHost"]
    taken = {node.inputs[0]: node.outputs[0] for node in back}
    assert made(graph, "y").inputs == ["a", taken["b"], taken["c"]]


def test_what_is_read_on_the_host_needs_no_copy_there() -> None:
    """Shape writes to the host, Reshape's target is read there."""
    graph = copied("Shape x -> s; Reshape x s -> y", {"x": (2,), "s": (1,)})
    assert shown(graph) == ["Shape x -> s", "Reshape x s -> y"]
    computed = copied("Abs t -> s; Reshape x s -> y", {"x": (2,), "t": (1,), "s": (1,)})
    assert "MemcpyToHost s -> s_token_1" in shown(computed)


def test_a_graph_input_both_sides_read_stays_on_the_host() -> None:
    """transformer_memcpy.cc copies such an input to the provider; as recorded on an H200 for ViT, quantized dynamically."""
    graph = copied("Exp x -> a; Neg x -> b; Add a b -> y", {"x": (2,)}, b="cpu")
    (copy,) = [node for node in graph.nodes.values() if node.inputs == ["x"] and node.op.startswith("Memcpy")]
    assert copy.op == "MemcpyFromHost"
    assert made(graph, "a").inputs == copy.outputs and made(graph, "b").inputs == ["x"]
    host = copied("Neg x -> b; Abs x -> c; Sum b c -> y", {"x": (2,)}, b="cpu", c="cpu", y="cpu")
    assert not [node for node in host.nodes.values() if node.op.startswith("Memcpy")]


def test_a_constant_both_sides_read_exists_twice() -> None:
    graph = copied("Add x c -> a; Neg c -> b; Add a b -> y", {"x": (2,)}, {"c": np.ones(2)}, b="cpu")
    twin = made(graph, "b").inputs[0]
    assert twin != "c" and twin in graph.initializers and graph.values[twin].shape == (2,)
    assert graph.values[twin].data is graph.values["c"].data
    assert made(graph, "a").inputs == ["x", "c"]
    one_side = copied("Add x c -> a; Neg c -> b; Add a b -> y", {"x": (2,)}, {"c": np.ones(2)})
    assert made(one_side, "b").inputs == ["c"]
    both = copied("Reshape c c -> y", {"y": (2,)}, {"c": np.ones(2)})
    assert made(both, "y").inputs == ["c", "c"]


# The editor


def test_an_only_user_reads_the_only_output_once() -> None:
    graph = build("Exp x -> a; Neg a -> b; Add b b -> c; Split c -> d e; Sum d e -> y", {"x": (2,)})
    editor = Editor(graph)
    assert editor.only_user(graph.nodes[0]) is graph.nodes[1]
    assert editor.only_user(graph.nodes[1]) is None  # read twice
    assert editor.only_user(graph.nodes[2]) is graph.nodes[3]
    assert editor.only_user(graph.nodes[3]) is None  # two outputs
    assert editor.only_user(graph.nodes[4]) is None  # returned
    assert editor.edge_count("b") == 2 and editor.edge_count("a") == 1 and editor.edge_count("y") == 0
    assert [node.name for node in editor.users("c")] == ["n3"]


def test_edits_are_counted_and_inputs_may_be_added_behind() -> None:
    graph = build("Exp x -> a; Neg a -> y", {"x": (2,), "z": (2,)})
    editor = Editor(graph)
    editor.set_input(graph.nodes[1], 2, "z")
    assert (graph.nodes[1].inputs, editor.changes) == (["a", "", "z"], 1)
    editor.replace_uses("a", "z")
    assert (graph.nodes[1].inputs, editor.changes, editor.readers["z"]) == (["z", "", "z"], 2, {1: 2})
    editor.remove(graph.nodes[0])
    assert (editor.changes, "a" in editor.maker) == (3, False)
    node = editor.add("late", "Abs", ["z"], ["a"])
    assert (node.index, editor.changes, graph.next_index) == (2, 4, 3)
    assert editor.move_output(graph.nodes[1], 0, node, 0) == "y_token_1"
    assert line(node) == "Abs z -> y"
    assert editor.maker["y"] is node and editor.maker["y_token_1"] is graph.nodes[1]
    assert editor.changes == 5


def test_constants_nobody_reads_go() -> None:
    graph = build("Exp x -> y", {"x": (2,)}, {"c": (2,), "d": (2,)}, outputs=("y", "d"))
    editor = Editor(graph)
    editor.drop_unread()
    assert list(graph.initializers) == ["d"]


# All of it, by level


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (0, ["Identity x -> i", "Mul i two -> a", "MatMul a w -> p", "Add p b -> y"]),
        (1, ["Mul x two -> a", "Gemm a w b -> y"]),
        (2, ["Mul x two -> a", "Gemm a w b -> y"]),
        (99, ["Mul x two -> a", "Gemm a w b -> y"]),
    ],
)
def test_levels(level: int, expected: list[str]) -> None:
    graph = build(
        "Identity x -> i; Mul i two -> a; MatMul a w -> p; Add p b -> y",
        {"x": (4, 6), "p": (4, 8), "y": (4, 8)},
        {"two": np.array(2.0), "w": (6, 8), "b": (8,)},
    )
    optimise(graph, "cuda", level)
    assert shown(graph) == expected
    assert all(node.provider == "cuda" for node in graph.nodes.values())


def test_the_extended_level_scales_products_and_basic_does_not() -> None:
    for level, count in ((1, 2), (2, 1)):
        graph = build(
            "Mul x two -> a; MatMul a w -> y", {"x": (3, 4, 6)}, {"two": np.array(2.0), "w": (6, 6)}
        )
        optimise(graph, "cuda", level)
        assert len(graph.nodes) == count
        assert ("two" in graph.initializers) == (level == 1)


def test_channels_last_is_for_cuda_and_when_asked() -> None:
    for provider, nhwc, changed in (("cuda", True, True), ("cuda", False, False), ("cpu", True, False)):
        graph = build("MaxPool x -> y", {"x": (2, 3, 6, 7)})
        optimise(graph, provider, 99, nhwc=nhwc)
        assert (len(graph.nodes) == 3) == changed
        assert all(node.provider == provider for node in graph.nodes.values())


def test_copies_are_for_cuda() -> None:
    """x is read on the host only; what Acos makes there goes to the device."""
    for provider, count in (("cuda", 2), ("cpu", 1)):
        graph = build("Acos x -> y; Exp y -> z", {"x": (2,)}, outputs=("z",))
        optimise(graph, provider, 99)
        assert len([node for node in graph.nodes.values() if node.op != "Exp"]) == count


# Placement


@pytest.mark.parametrize(
    ("text", "constants", "dtypes", "expected"),
    [
        # Shape arithmetic follows Shape to the host; Shape itself is a CUDA kernel.
        (
            "Shape x -> s; Gather s i -> g; Add g i -> h; Reshape x h -> y",
            {"i": np.array(0)},
            {},
            "cuda cpu cpu cuda",
        ),
        # With an operand on the device it stays there.
        ("Shape x -> s; Cast s -> g; Add g x -> y", {}, {}, "cuda cpu cuda"),
        # A constant alone moves nothing.
        ("Neg i -> g; Add g i -> y", {"i": np.array(0)}, {}, "cuda cuda"),
        # Results that are data stay.
        ("Shape x -> s; ConstantOfShape s -> y", {}, {}, "cuda cuda"),
        ("Shape x -> s; Cast s -> g; Exp g -> y", {}, {"g": "float16", "y": "float16"}, "cuda cuda cuda"),
        ("Shape x -> s; Cast s -> g; Exp g -> y", {}, {"g": "float64", "y": "float32"}, "cuda cpu cpu"),
        # No CUDA kernel; of another domain there is.
        ("Acos x -> a; mine.Acos a -> y", {}, {}, "cpu cuda"),
        # A node that makes a host value of host values is a CUDA kernel itself.
        ("Shape x -> s; Shape s -> t; Cast t -> y", {}, {}, "cuda cuda cpu"),
    ],
)
def test_placement(text: str, constants: dict[str, Any], dtypes: dict[str, str], expected: str) -> None:
    kinds = {"s": "int64", "g": "int64", "h": "int64", "t": "int64", **dtypes}
    graph = build(text, {"x": (2,)}, constants, dtypes=kinds)
    assign(graph, "cuda")
    assert [node.provider for node in graph.nodes.values()] == expected.split()
    assign(graph, "cpu")
    assert {node.provider for node in graph.nodes.values()} <= {"cpu", ""}  # half precision: no kernel at all
