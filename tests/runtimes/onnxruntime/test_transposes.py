"""The transpose optimizer by hand: what a Transpose passes, what each operator's axes become, and when it is worth it.

Where a graph is pushed, its meaning is checked too: shapes of every value follow from the operators again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.rewrite import transposes
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.transposes.permutation import (
    inverse_of,
    perm_of,
    permuted,
    without,
)
from tests.runtimes.onnxruntime.graphs import build, made, shown

TURN = (1, 2, 0)  # not its own inverse
BACK = (2, 0, 1)


def run(graph: RuntimeGraph, *, layout: bool = False) -> list[str]:
    editor = Editor(graph)
    transposes.run(editor, layout=layout)
    fresh = Editor(graph)
    assert {name: users for name, users in editor.readers.items() if users} == fresh.readers
    assert {name: node.index for name, node in editor.maker.items()} == {
        name: node.index for name, node in fresh.maker.items()
    }
    for node in graph.nodes.values():
        if node.op == "Transpose":
            source, result = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
            perm = perm_of(editor, node)
            if perm is not None and source.symbols is not None:
                assert permuted(source.symbols, perm) == result.symbols
                assert permuted(source.shape, perm) == result.shape
    return shown(graph)


def between(
    text: str, shapes: dict[str, Any], constants: dict[str, Any] | None = None, **more: Any
) -> RuntimeGraph:
    """x [2, 3, 5] → Transpose → t [3, 5, 2] → the operator → o → y."""
    attributes = {"t": {"perm": TURN}, **more.pop("attributes", {})}
    return build(
        f"Transpose x -> t; {text}",
        {"x": (2, 3, 5), "t": (3, 5, 2), **shapes},
        constants,
        attributes=attributes,
        **more,
    )


def test_permutations() -> None:
    """Axis i of the result is axis perm[i] of what is read."""
    assert inverse_of(TURN) == BACK
    assert permuted((2, 3, 5), TURN) == (3, 5, 2)
    assert permuted((2, 3), TURN) is None and permuted(None, TURN) is None
    assert without(TURN, [1]) == (1, 0)
    assert without((0, 2, 1), [1]) == (0, 1)
    assert without(TURN, [2, 0]) == (0,)


@pytest.mark.parametrize(
    ("perm", "expected"),
    [(None, (2, 1, 0)), (TURN, TURN), ((0, 1, 1), None), ((0, 1, 3), None)],
)
def test_what_a_transpose_does(perm: Any, expected: Any) -> None:
    graph = build("Transpose x -> y", {"x": (2, 3, 5)}, attributes={"y": {"perm": perm} if perm else {}})
    assert perm_of(Editor(graph), graph.nodes[0]) == expected
    unknown = build("Transpose x -> y", {"x": None})
    assert perm_of(Editor(unknown), unknown.nodes[0]) is None


def test_two_in_a_row_merge_or_cancel() -> None:
    """TURN after TURN is its inverse; BACK after TURN is nothing."""
    graph = between(
        "Transpose t -> o; Exp o -> y", {"o": (5, 2, 3), "y": (5, 2, 3)}, attributes={"o": {"perm": TURN}}
    )
    assert run(graph) == ["Transpose x -> o", "Exp o -> y"]
    assert made(graph, "o").attributes["perm"] == BACK
    gone = between("Transpose t -> o; Exp o -> y", {"o": (2, 3, 5)}, attributes={"o": {"perm": BACK}})
    assert run(gone) == ["Exp x -> y"]


def test_a_cancelled_transpose_stays_where_the_graph_returns_it_or_others_read_it() -> None:
    final = between("Transpose t -> y", {"y": (2, 3, 5)}, attributes={"y": {"perm": BACK}})
    assert run(final) == ["Identity x -> y"]
    shared = between(
        "Transpose t -> o; Exp o -> y; Det t -> z",
        {"o": (2, 3, 5), "z": (3,)},
        attributes={"o": {"perm": BACK}},
        outputs=("y", "z"),
    )
    assert sorted(run(shared)) == ["Det t -> z", "Exp x -> y", "Transpose x -> t"]
    kept = between(
        "Transpose t -> o; Exp o -> y", {"o": (2, 3, 5)}, attributes={"o": {"perm": BACK}}, outputs=("y", "t")
    )
    assert sorted(run(kept)) == ["Exp x -> y", "Transpose x -> t"]


def test_ranks_that_differ_do_not_merge() -> None:
    odd = build(
        "Transpose x -> t; Transpose t -> y",
        {"x": (2, 3), "t": (3, 2), "y": (2, 3)},
        attributes={"t": {"perm": (1, 0)}, "y": {"perm": (0, 1, 2)}},
    )
    before = shown(odd)
    transposes.run(Editor(odd))
    assert shown(odd) == before


def pushed(graph: RuntimeGraph, op: str) -> tuple[Any, list[int], list[tuple[int, ...]]]:
    """(node, shape of its result, permutations of the Transposes behind it)."""
    run(graph)
    (node,) = [node for node in graph.nodes.values() if node.op == op]
    behind = [
        tuple(user.attributes["perm"])
        for name in node.outputs
        for user in graph.consumers().get(name, [])
        if user.op == "Transpose"
    ]
    return node, [graph.values[name].shape for name in node.outputs], behind  # type: ignore[return-value]


def test_what_leads_to_another_transpose_is_passed() -> None:
    """Pushing costs nothing then; BACK behind it cancels what comes out."""
    graph = between(
        "Exp t -> o; Transpose o -> p; Neg p -> y",
        {"o": (3, 5, 2), "p": (2, 3, 5)},
        attributes={"p": {"perm": BACK}},
    )
    run(graph)
    assert [node.op for node in graph.nodes.values() if node.op != "Transpose"] == ["Exp", "Neg"]
    assert not [node for node in graph.nodes.values() if node.op == "Transpose"]


def tail(shape: tuple[int, ...], perm: tuple[int, ...]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A Transpose behind `o`, so that pushing is worth it."""
    result = tuple(shape[axis] for axis in perm)
    return "; Transpose o -> p; Det p -> y", {"o": shape, "p": result, "y": result[:1]}, {"p": {"perm": perm}}


CASES: list[tuple[str, tuple[int, ...], dict[str, Any], dict[str, Any], tuple[int, ...], dict[str, Any]]] = [
    # operator, o's shape, constants, attributes; then the shape before the Transpose, and attributes as they become
    ("Exp t -> o", (3, 5, 2), {}, {}, (2, 3, 5), {}),
    ("Softmax t -> o", (3, 5, 2), {}, {"axis": 0}, (2, 3, 5), {"axis": 1}),
    ("Softmax t -> o", (3, 5, 2), {}, {}, (2, 3, 5), {"axis": 0}),
    ("LogSoftmax t -> o", (3, 5, 2), {}, {"axis": -2}, (2, 3, 5), {"axis": 2}),
    ("Concat t t -> o", (3, 10, 2), {}, {"axis": 1}, (2, 3, 10), {"axis": 2}),
    (
        "ReduceMean t -> o",
        (3, 1, 2),
        {},
        {"axes": (1,), "keepdims": 1},
        (2, 3, 1),
        {"axes": (2,), "keepdims": 1},
    ),
    ("ReduceMax t -> o", (3, 2), {}, {"axes": (1,), "keepdims": 0}, (2, 3), {"axes": (2,), "keepdims": 0}),
    ("ReduceMax t -> o", (3, 1, 1), {}, {"axes": (2, 1)}, (1, 3, 1), {"axes": (0, 2)}),
    ("ReduceSum t -> o", (1, 1, 1), {}, {}, (1, 1, 1), {}),
    ("ArgMax t -> o", (1, 5, 2), {}, {}, (2, 1, 5), {"axis": 1}),
    ("ArgMin t -> o", (3, 2), {}, {"axis": 1, "keepdims": 0}, (2, 3), {"axis": 2, "keepdims": 0}),
    ("Squeeze t -> o", (3, 2), {}, {"axes": (1,)}, (2, 3), {"axes": (2,)}),
    ("Unsqueeze t -> o", (3, 1, 5, 2), {}, {"axes": (1,)}, (2, 1, 3, 5), {"axes": (1,)}),
    ("Unsqueeze t -> o", (3, 5, 2, 1), {}, {"axes": (-1,)}, (2, 3, 5, 1), {"axes": (-1,)}),
]


@pytest.mark.parametrize(("text", "shape", "constants", "attributes", "inner", "after"), CASES)
def test_axes_follow(
    text: str,
    shape: tuple[int, ...],
    constants: dict[str, Any],
    attributes: dict[str, Any],
    inner: tuple[int, ...],
    after: dict[str, Any],
) -> None:
    """The node works on x's order; its axes name the same dimensions as before."""
    x = (2, 3, 1) if text.startswith("Squeeze") else (2, 3, 5)
    behind, shapes, more = tail(shape, tuple(reversed(range(len(shape)))))
    t = tuple(x[axis] for axis in TURN)
    graph = build(
        f"Transpose x -> t; {text}{behind}",
        {"x": x, "t": t, **shapes},
        constants,
        attributes={"t": {"perm": TURN}, "o": attributes, **more},
    )
    op = text.split(maxsplit=1)[0]
    node, (found,), _ = pushed(graph, op)
    assert set(node.inputs) == {"x"}
    assert found == inner
    assert {key: node.attributes[key] for key in after} == after
    # At most one Transpose is left: what came out merged with the one behind, or cancelled it.
    assert sum(item.op == "Transpose" for item in graph.nodes.values()) <= 1


def test_axes_given_as_an_input_follow() -> None:
    behind, shapes, more = tail((3, 2), (1, 0))
    graph = between(
        f"ReduceSum t ax -> o{behind}",
        shapes,
        {"ax": np.array([1])},
        attributes={"o": {"keepdims": 0}, **more},
    )
    node, _, _ = pushed(graph, "ReduceSum")
    assert node.inputs[0] == "x"
    assert list(graph.constant(node.inputs[1])) == [2]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "constants", "expected"),
    [
        ("Slice t st en ax -> o", {"ax": np.array([1])}, [2]),
        ("Slice t st en ax -> o", {"ax": np.array([2])}, [0]),
        ("Slice t st en -> o", {}, [1]),
    ],
)
def test_slices_follow(text: str, constants: dict[str, Any], expected: list[int]) -> None:
    behind, shapes, more = tail((3, 5, 2), (2, 1, 0))
    graph = between(
        text + behind, shapes, {"st": np.array([0]), "en": np.array([1]), **constants}, attributes=more
    )
    node, _, _ = pushed(graph, "Slice")
    assert node.inputs[:3] == ["x", "st", "en"]
    assert list(graph.constant(node.inputs[3])) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "operand", "expected"),
    [("Tile", [10, 20, 30], [30, 10, 20]), ("Pad", [1, 2, 3, 4, 5, 6], [3, 1, 2, 6, 4, 5])],
)
def test_operands_with_a_number_an_axis_are_reordered(
    op: str, operand: list[int], expected: list[int]
) -> None:
    behind, shapes, more = tail((3, 5, 2), (2, 1, 0))
    graph = between(f"{op} t r -> o{behind}", shapes, {"r": np.array(operand)}, attributes=more)
    node, _, _ = pushed(graph, op)
    assert list(graph.constant(node.inputs[1])) == expected  # type: ignore[arg-type]


def test_operands_that_are_computed_are_gathered() -> None:
    behind, shapes, more = tail((3, 5, 2), (2, 1, 0))
    graph = between(f"Tile t r -> o{behind}", {**shapes, "r": (3,)}, attributes=more)
    node, _, _ = pushed(graph, "Tile")
    gather = made(graph, node.inputs[1])
    assert (gather.op, gather.inputs[0], gather.attributes) == ("Gather", "r", {"axis": 0})
    assert list(graph.constant(gather.inputs[1])) == [2, 0, 1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [({}, [1, 2, 0]), ({"start": 1}, [2, 0]), ({"start": 1, "end": 2}, [2]), ({"end": -1}, [1, 2])],
)
def test_shapes_are_read_before_the_transpose(attributes: dict[str, int], expected: list[int]) -> None:
    graph = between("Shape t -> y", {"y": (len(expected),)}, attributes={"y": attributes})
    found = run(graph)
    assert [entry.split()[0] for entry in found] == ["Shape", "Gather"]
    gather = made(graph, "y")
    shape = made(graph, gather.inputs[0])
    assert shape.inputs == ["x"] and not shape.attributes
    assert graph.values[shape.outputs[0]].shape == (3,)
    assert gather.attributes == {"axis": 0}
    assert list(graph.constant(gather.inputs[1])) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("indices", "axis", "inner"), [(np.array(1), 2, (2, 3)), (np.array([1, 1]), 2, (2, 3, 2))]
)
def test_gather_by_a_number_takes_the_axis_away(indices: Any, axis: int, inner: tuple[int, ...]) -> None:
    shape = (3, 2) if indices.ndim == 0 else (3, 2, 2)
    behind, shapes, more = tail(shape, tuple(reversed(range(len(shape)))))
    graph = between(f"Gather t i -> o{behind}", shapes, {"i": indices}, attributes={"o": {"axis": 1}, **more})
    node, (found,), _ = pushed(graph, "Gather")
    assert (node.inputs[0], node.attributes["axis"], found) == ("x", axis, inner)


def test_split_follows_with_every_result() -> None:
    graph = between(
        "Split t s -> o q; Transpose o -> p; Transpose q -> r; Sum p r -> y",
        {"o": (3, 2, 2), "q": (3, 3, 2), "p": (2, 3, 2), "r": (2, 3, 3), "y": (2, 3, 2)},
        {"s": np.array([2, 3])},
        attributes={"o": {"axis": 1}, "p": {"perm": BACK}, "r": {"perm": BACK}},
    )
    node, found, _ = pushed(graph, "Split")
    assert (node.inputs[0], node.attributes["axis"], found) == ("x", 2, [(2, 3, 2), (2, 3, 3)])
    assert not [item for item in graph.nodes.values() if item.op == "Transpose"]


def test_constants_are_transposed_where_they_stand_and_widened() -> None:
    """c [5, 2] beside t [3, 5, 2] is c [1, 5, 2] before, so [2, 1, 5] beside x."""
    behind, shapes, more = tail((3, 5, 2), (2, 1, 0))
    elements = np.arange(10.0).reshape(5, 2)
    graph = between(f"Add t c -> o{behind}", shapes, {"c": elements}, attributes=more)
    node, _, _ = pushed(graph, "Add")
    data = graph.constant(node.inputs[1])
    assert node.inputs[0] == "x" and data is not None
    assert data.shape == graph.values[node.inputs[1]].shape == (2, 1, 5)
    assert np.array_equal(data[:, 0, :], elements.T)


def test_scalars_are_left_alone_and_computed_operands_widened() -> None:
    behind, shapes, more = tail((3, 5, 2), (2, 1, 0))
    scalar = between(f"Mul c t -> o{behind}", shapes, {"c": np.array(2.0)}, attributes=more)
    node, _, _ = pushed(scalar, "Mul")
    assert node.inputs == ["c", "x"]
    small = between(f"Mul t v -> o{behind}", {**shapes, "v": (2,)}, attributes=more)
    node, _, _ = pushed(small, "Mul")
    assert node.inputs[0] == "x"
    turned = made(small, node.inputs[1])
    widened = made(small, turned.inputs[0])
    assert (turned.op, tuple(turned.attributes["perm"])) == ("Transpose", BACK)
    assert (widened.op, widened.inputs[0]) == ("Unsqueeze", "v")
    assert list(small.constant(widened.inputs[1])) == [0, 1]  # type: ignore[arg-type]
    assert small.values[widened.outputs[0]].shape == (1, 1, 2)


@pytest.mark.parametrize(
    ("text", "shapes", "constants", "attributes", "opset"),
    [
        ("MatMul t w -> o", {"w": (2, 2)}, {}, {}, 17),
        ("mine.Exp t -> o", {}, {}, {}, 17),
        ("Softmax t -> o", {}, {}, {"axis": 1}, 12),
        ("Slice t st en -> o", {}, {"st": np.array([0]), "en": np.array([1])}, {}, 9),
        ("Pad t r -> o", {}, {"r": np.array([0] * 6)}, {}, 10),
        ("ReduceSum t ax -> o", {"ax": (1,)}, {}, {}, 17),
        ("Squeeze t -> o", {}, {}, {}, 17),
        ("Unsqueeze t ax -> o", {"ax": (1,)}, {}, {}, 17),
        ("Slice t st en ax -> o", {"ax": (1,)}, {"st": np.array([0]), "en": np.array([1])}, {}, 17),
        ("Slice t st en -> o", {"st": None}, {"en": np.array([1])}, {}, 17),
        ("Slice t st en -> o", {"st": (1, 1)}, {"en": np.array([1])}, {}, 17),
        ("Gather t i -> o", {"i": (2, 2)}, {}, {}, 17),
        ("Gather t i -> o", {"i": None}, {}, {}, 17),
        ("Gather t i -> o", {"i": ()}, {}, {"axis": 3}, 17),
        ("Concat t t -> o", {}, {}, {}, 17),
        ("ArgMax t -> o", {}, {}, {"axis": -4}, 17),
        ("Add t v -> o", {"v": (1, 3, 5, 2)}, {}, {}, 17),
        ("Add t v -> o", {"v": None}, {}, {}, 17),
    ],
)
def test_what_a_transpose_does_not_pass(
    text: str, shapes: dict[str, Any], constants: dict[str, Any], attributes: dict[str, Any], opset: int
) -> None:
    """No handler, an older operator set, operands that are not known, axes that cannot be."""
    behind, more, tails = tail((3, 5, 2), (2, 1, 0))
    graph = between(
        text + behind, {**more, **shapes}, constants, attributes={"o": attributes, **tails}, opset=opset
    )
    before = shown(graph)
    assert run(graph) == before


@pytest.mark.parametrize(
    ("text", "constants", "attributes", "opset"),
    [
        ("Slice t st en -> o", {"st": np.array([0]), "en": np.array([1])}, {}, 10),
        ("Pad t r -> o", {"r": np.array([0] * 6)}, {}, 11),
        ("Softmax t -> o", {}, {"axis": 1}, 13),
    ],
)
def test_the_operator_set_from_which_a_transpose_passes(
    text: str, constants: dict[str, Any], attributes: dict[str, Any], opset: int
) -> None:
    behind, shapes, more = tail((3, 5, 2), (2, 1, 0))
    graph = between(text + behind, shapes, constants, attributes={"o": attributes, **more}, opset=opset)
    node, _, _ = pushed(graph, text.split(maxsplit=1)[0])
    assert node.inputs[0] == "x"


def test_an_operand_another_operator_makes_is_transposed_behind_it() -> None:
    behind, shapes, more = tail((3, 5, 2), (2, 1, 0))
    graph = between(
        f"Transpose z -> u; Det k -> q; Sum t u q -> o{behind}",
        {"z": (2, 3, 5), "u": (3, 5, 2), "k": (3, 5, 2), "q": (3, 5, 2), **shapes},
        attributes={"u": {"perm": TURN}, **more},
    )
    node, _, _ = pushed(graph, "Sum")
    assert node.inputs[:2] == ["x", "z"]
    turned = made(graph, node.inputs[2])
    assert (turned.op, turned.inputs, tuple(turned.attributes["perm"])) == ("Transpose", ["q"], BACK)


# What pushing costs. Without a Transpose behind, the result's rank is added.


@pytest.mark.parametrize(
    ("text", "shapes", "passes"),
    [
        # One input of rank 3 gained, one result of rank 3 to pay: nothing won.
        ("Exp t -> y", {"y": (3, 5, 2)}, False),
        # Both inputs come from such a Transpose: 6 won, 3 to pay.
        ("Transpose z -> u; Add t u -> y", {"z": (2, 3, 5), "u": (3, 5, 2)}, True),
        # The other would have to be transposed: 3 more to pay.
        ("Add t z -> y", {"z": (3, 5, 2)}, False),
        # A reduction to one number an axis: the result has rank 1.
        ("ReduceMax t ax -> y", {"y": (3, 1, 1)}, True),
        # The Transpose has another reader nobody can push it through: nothing won.
        ("Det t -> z; ReduceMax t ax -> y", {"z": (3,), "y": (3, 1, 1)}, False),
        # Another reader it can be pushed through.
        ("ReduceMin t ax -> z; ReduceMax t ax -> y", {"z": (3, 1, 1), "y": (3, 1, 1)}, True),
    ],
)
def test_pushing_is_weighed(text: str, shapes: dict[str, Any], passes: bool) -> None:
    constants = {"ax": np.array([1, 2])}
    outputs = ("y", "z") if ("z" in text.split("->")[1] and "Det" in text) or "ReduceMin" in text else ("y",)
    graph = between(text, shapes, constants, attributes={"u": {"perm": TURN}}, outputs=outputs)
    before = shown(graph)
    assert (run(graph) != before) == passes


def test_one_dimension_won_and_one_to_pay_is_nothing() -> None:
    graph = build(
        "Transpose x -> t; Exp t -> y",
        {"x": (1, 3, 1), "t": (3, 1, 1)},
        attributes={"t": {"perm": TURN}},
    )
    assert run(graph) == ["Transpose x -> t", "Exp t -> y"]


def test_a_transpose_the_graph_returns_is_not_won() -> None:
    graph = between("ReduceMax t ax -> y", {"y": (3, 1, 1)}, {"ax": np.array([1, 2])}, outputs=("y", "t"))
    before = shown(graph)
    assert run(graph) == before


@pytest.mark.parametrize(("shape", "passes"), [((1, 3, 5), True), ((2, 3, 5), False), (None, False)])
def test_dimensions_of_one_cost_nothing_and_unknown_ranks_five(shape: Any, passes: bool) -> None:
    """t and u come from Transposes (2 x 3 won), v has to be transposed, the result costs 3: v may cost 2, not 3."""
    v = None if shape is None else tuple(shape[axis] for axis in TURN)
    graph = between(
        "Transpose z -> u; Sum t u v -> y",
        {"z": (2, 3, 5), "u": (3, 5, 2), "v": v, "y": (3, 5, 2)},
        attributes={"u": {"perm": TURN}},
    )
    before = shown(graph)
    assert (run(graph) != before) == passes


def test_another_permutation_costs_and_wins_nothing() -> None:
    """u comes from a Transpose of another order: it merges, but does not vanish."""
    behind, shapes, more = tail((3, 5, 2), (2, 1, 0))
    graph = between(
        f"Transpose z -> u; Add t u -> o{behind}",
        {"z": (5, 3, 2), "u": (3, 5, 2), **shapes},
        attributes={"u": {"perm": (1, 0, 2)}, **more},
    )
    node, _, _ = pushed(graph, "Add")
    turned = made(graph, node.inputs[1])
    assert node.inputs[0] == "x"
    # z [5, 3, 2] by (1, 0, 2), then by BACK: [2, 3, 5].
    assert (turned.inputs, tuple(turned.attributes["perm"])) == (["z"], (2, 1, 0))


def test_a_value_transposed_for_someone_is_not_transposed_again() -> None:
    behind, shapes, more = tail((3, 5, 2), (2, 1, 0))
    graph = between(
        f"Transpose v -> k; Det k -> z; Transpose w -> u; Sum t u v -> o{behind}",
        {"v": (3, 5, 2), "k": (2, 3, 5), "z": (2,), "w": (2, 3, 5), "u": (3, 5, 2), **shapes},
        attributes={"k": {"perm": BACK}, "u": {"perm": TURN}, **more},
        outputs=("y", "z"),
    )
    node, _, _ = pushed(graph, "Sum")
    assert node.inputs == ["x", "w", "k"]


def test_after_a_layout_change_its_transposes_are_pushed_at_any_cost() -> None:
    """Channels last to first before Exp: pushed though nothing is won; Concat is weighed as ever; other orders too."""
    shapes = {"x": (2, 6, 7, 3), "t": (2, 3, 6, 7), "y": (2, 3, 6, 7)}
    first = {"t": {"perm": (0, 3, 1, 2)}}
    graph = build("Transpose x -> t; Exp t -> y", shapes, attributes=first)
    assert [entry.split()[0] for entry in run(graph, layout=True)] == ["Exp", "Transpose"]
    last = build(
        "Transpose x -> t; Exp t -> y",
        {"x": (2, 3, 6, 7), "t": (2, 6, 7, 3)},
        attributes={"t": {"perm": (0, 2, 3, 1)}},
    )
    assert [entry.split()[0] for entry in run(last, layout=True)] == ["Exp", "Transpose"]
    plain = build("Transpose x -> t; Exp t -> y", shapes, attributes=first)
    assert [entry.split()[0] for entry in run(plain)] == ["Transpose", "Exp"]
    joined = build(
        "Transpose x -> t; Concat t z -> y",
        {**shapes, "z": (2, 3, 6, 7), "y": (2, 6, 6, 7)},
        attributes={**first, "y": {"axis": 1}},
    )
    assert [entry.split()[0] for entry in run(joined, layout=True)] == ["Transpose", "Concat"]
    other = build(
        "Transpose x -> t; Exp t -> y", {"x": (2, 3, 5), "t": (3, 5, 2)}, attributes={"t": {"perm": TURN}}
    )
    assert [entry.split()[0] for entry in run(other, layout=True)] == ["Transpose", "Exp"]
