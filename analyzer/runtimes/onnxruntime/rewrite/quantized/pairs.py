"""QuantizeLinear and DequantizeLinear: what a node of them is, and when two of them undo each other.

1. A node **quantizes** to the type of its zero point; without one to what its attribute says, else uint8.
2. Two nodes are a **pair** if both have scale and zero point, all constant scalars (of rank 0, or one
   element), and these are equal.
3. An **edge** leads from a value to one place of a node that reads it, or (no node) to the graph's result.

Source: `core/optimizer/qdq_transformer/qdq_util.cc` (`IsQDQPairSupported`,
`QOrDQNodeHasConstantScalarScaleAndZeroPoint`, `MatchQNode`, `MatchDQNode`), `core/graph/graph_utils.cc`
(`GetNodeOutputEdges`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import MICROSOFT

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
# ONNX's, and ONNX Runtime's.
QUANTIZES, DEQUANTIZES = ((op, f"{MICROSOFT}.{op}") for op in (QUANTIZE, DEQUANTIZE))
SCALE, ZERO_POINT, OPERANDS = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Edge:
    """A use of a value: by a node at a place, or as the graph's result (node None)."""

    value: str
    node: Node | None
    place: int = 0


def quantizes(node: Node | None) -> TypeGuard[Node]:
    """Return whether it is a QuantizeLinear, ONNX's or ONNX Runtime's."""
    return node is not None and node.operator in QUANTIZES


def dequantizes(node: Node | None) -> TypeGuard[Node]:
    """Return whether it is a DequantizeLinear, ONNX's or ONNX Runtime's."""
    return node is not None and node.operator in DEQUANTIZES


def is_scalar(editor: Editor, name: str) -> bool:
    """Return whether the value has rank 0 or one element."""
    return bool(name) and editor.value(name).shape in ((), (1,))


def constant_scalars(editor: Editor, node: Node) -> bool:
    """Return whether the node's scale, and its zero point if it has one, are constant scalars."""
    names = [node.inputs[SCALE], *(name for name in node.inputs[ZERO_POINT:] if name)]
    return all(is_scalar(editor, name) and editor.is_constant(name) for name in names)


def has_zero_point(node: Node) -> bool:
    """Return whether the third operand is there."""
    return bool(node.input(ZERO_POINT))


def equal(editor: Editor, left: str, right: str) -> bool:
    """Return whether two constants are the same one, or of one type with equal elements."""
    if left == right:
        return True
    a, b = editor.graph.constant(left), editor.graph.constant(right)
    if a is None or b is None or editor.value(left).dtype != editor.value(right).dtype:
        return False
    return bool(np.array_equal(np.reshape(a, -1), np.reshape(b, -1)))


def is_pair(editor: Editor, first: Node, second: Node) -> bool:
    """Return whether one undoes the other: scale and zero point of both are constant scalars, and equal."""
    if not all(len(node.inputs) == OPERANDS and has_zero_point(node) for node in (first, second)):
        return False
    if not (constant_scalars(editor, first) and constant_scalars(editor, second)):
        return False
    return all(equal(editor, first.inputs[place], second.inputs[place]) for place in (SCALE, ZERO_POINT))


def quantized_type(editor: Editor, node: Node) -> str:
    """Return the integer side of the node: what QuantizeLinear makes, what DequantizeLinear reads."""
    return editor.value(node.outputs[0] if quantizes(node) else node.inputs[0]).dtype


def scalar_of(editor: Editor, name: str) -> Any:
    """Return the one element of a constant, None if it is not known."""
    data = editor.graph.constant(name)
    return None if data is None or data.size != 1 else data.reshape(-1)[0]


def edges(editor: Editor, value: str) -> list[Edge]:
    """Return every use of a value as a node's operand, by node and place; the graph's result last."""
    pairs = [Edge(value, node, place) for node in editor.users(value) for place in editor.places(node, value)]
    return [*pairs, *([Edge(value, None)] if value in editor.final else [])]


def read_inside(editor: Editor, value: str) -> bool:
    """Return whether a subgraph reads the value from around it."""
    return any(value in node.implicit for node in editor.users(value))


def only_reader(editor: Editor, node: Node) -> Node | None:
    """Return the node at the only edge of the only result, if that is no result of the graph."""
    uses = edges(editor, node.outputs[0])
    if len(uses) != 1 or uses[0].node is None or read_inside(editor, node.outputs[0]):
        return None
    return uses[0].node


def reroute(editor: Editor, edge: Edge, name: str) -> None:
    """Let the node at the edge's end read another value there."""
    if edge.node is not None:
        editor.set_input(edge.node, edge.place, name)
