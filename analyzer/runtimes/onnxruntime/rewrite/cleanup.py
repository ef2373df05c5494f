"""Small eliminations: nodes that do nothing, constants and computations that are there twice.

1. Identity, Dropout (inference), a Cast to the same type or before Shape alone, an Expand to the shape there
   is, a Slice of everything, Add of zero and Mul by one go; a node whose result is a graph output stays, but
   an Identity that alone reads what it copies.
2. Constants of at most eight elements and equal type, shape and values are one constant, if these are float,
   double, half precision, or integers of 32 or 64 bits. This is done once, at the very start: what folding
   and fusions make later is not shared (`ShouldOnlyApplyOnce`).
3. Two nodes of the same operator, inputs and attributes are one; the first in execution order stays.

Source: `core/optimizer/identity_elimination.cc`, `dropout_elimination.cc`, `cast_elimination.cc`,
`pre_shape_node_elimination.cc`, `expand_elimination.cc`, `noop_elimination.cc`, `constant_sharing.cc`,
`common_subexpression_elimination.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor

_SHARED_TYPES = frozenset({"float16", "float32", "float64", "int32", "int64"})
_SHARED_ELEMENTS = 8
_SHAPE_OPSET = 13
_STEPS, _LARGEST = 4, (1 << 63) - 1
_RANDOM = "RandomUniform RandomNormal RandomUniformLike RandomNormalLike Multinomial Bernoulli"
_NOT_SHARED = frozenset((*_RANDOM.split(), "DequantizeLinear"))


def run(editor: Editor) -> None:
    """Remove nodes that do nothing, but not those whose result is a graph output."""
    for node in editor.order():
        if _does_nothing(editor, node):
            bypass(editor, node)
        elif node.operator == "Identity":
            _give_result(editor, node)
    editor.rename_inside()


def bypass(editor: Editor, node: Node) -> None:
    """Readers of the node's result read its first input instead, subgraphs at the next `rename_inside`."""
    editor.replace_outside(node.outputs[0], node.inputs[0])
    editor.remove(node)


def _give_result(editor: Editor, node: Node) -> None:
    """Remove an Identity that makes a graph output if nothing else reads its input: the node before makes the
    output."""
    source, result = node.inputs[0], node.outputs[0]
    maker = editor.maker.get(source)
    if (
        maker is None
        or source in editor.final
        or not editor.has_one_use(source)
        or editor.readers.get(result)
    ):
        return
    editor.remove(node)
    editor.take_output(maker, maker.outputs.index(source), result)


def _does_nothing(editor: Editor, node: Node) -> bool:
    """Return whether the node can go (`graph_utils::CanRemoveNode`): it does nothing and has one input, or
    one that a node makes."""
    rule = NO_OPERATION.get(node.operator)
    if rule is None or not node.inputs or not node.inputs[0] or not node.outputs[0]:
        return False
    if node.outputs[0] in editor.final or any(editor.readers.get(name) for name in node.outputs[1:] if name):
        return False
    count = sum(name in editor.maker for name in node.inputs)
    return (count == 1 or len(node.inputs) == 1) and rule(editor, node)


def _identity(editor: Editor, node: Node) -> bool:  # noqa: ARG001
    return True


def _dropout(editor: Editor, node: Node) -> bool:  # noqa: ARG001
    """Return whether a Dropout does nothing: in inference; with a third input the model may train."""
    return len(node.inputs) < 3 or not node.inputs[2]


def _cast(editor: Editor, node: Node) -> bool:
    """Return whether a Cast does nothing: to the same type, or if only the shape is read
    (`PreShapeNodeElimination`, from operator set 13 on)."""
    source, result = editor.value(node.inputs[0]), editor.value(node.outputs[0])
    if source.dtype and source.dtype == result.dtype:
        return True
    readers = editor.users(result.name)
    return (
        bool(readers)
        and editor.graph.opset >= _SHAPE_OPSET
        and all(user.operator == "Shape" for user in readers)
    )


def _expand(editor: Editor, node: Node) -> bool:
    """Return whether an Expand keeps the shape, all of it numbers."""
    source, result = editor.value(node.inputs[0]).symbols, editor.value(node.outputs[0]).symbols
    return source is not None and source == result and all(isinstance(size, int) for size in source)


def _neutral(editor: Editor, node: Node) -> bool:
    """x + 0, x - 0, x * 1, x / 1 with a constant that does not widen x."""
    constant = editor.graph.constant(node.inputs[1]) if len(node.inputs) == 2 else None
    if constant is None or constant.size != 1:
        return False
    source, result = editor.value(node.inputs[0]), editor.value(node.outputs[0])
    if source.symbols is None or result.symbols is None or len(source.symbols) != len(result.symbols):
        return False
    return bool(constant.reshape(-1)[0] == (1 if node.op in ("Mul", "Div") else 0))


def _slice(editor: Editor, node: Node) -> bool:
    """Return whether a Slice keeps everything: from 0 to the end in steps of 1 on all its axes."""
    operands = [editor.graph.constant(name) if name else None for name in node.inputs[1:]]
    starts, ends = (
        operands[:2] if len(operands) > 1 else (node.attributes.get("starts"), node.attributes.get("ends"))
    )
    if starts is None or ends is None:
        return False
    if node.input(_STEPS):
        steps = operands[_STEPS - 1]
        if steps is None or any(int(step) != 1 for step in steps):
            return False
    return all(int(start) == 0 for start in starts) and all(int(end) == _LARGEST for end in ends)


# Operator -> whether a node of it does nothing, given that somebody may read its input instead.
NO_OPERATION: dict[str, Callable[[Editor, Node], bool]] = {
    "Identity": _identity,
    "Dropout": _dropout,
    "Cast": _cast,
    "Expand": _expand,
    "Slice": _slice,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _neutral),
}


def share_constants(editor: Editor) -> None:
    """Merge equal constants of at most eight elements, unless a subgraph reads them."""
    first: dict[tuple[Any, ...], str] = {}
    inside = {name for node in editor.graph.nodes.values() for name in node.implicit}
    for name in list(editor.graph.initializers):
        value = editor.value(name)
        if value.dtype not in _SHARED_TYPES or value.shape is None or name in editor.final:
            continue
        if not 0 < math.prod(value.shape) <= _SHARED_ELEMENTS:
            continue
        if name in inside:
            continue
        data = editor.graph.constant(name)
        if data is None:
            continue
        key = (value.dtype, value.shape, data.tobytes())
        kept = first.setdefault(key, name)
        if kept != name:
            editor.replace_outside(name, kept)
            if not editor.readers.get(name):
                del editor.graph.initializers[name]


def common_subexpressions(editor: Editor) -> None:
    """Nodes of the same operator, inputs and attributes are one: the first in execution order stays, and what
    makes an output of the graph."""
    first: dict[tuple[Any, ...], Node] = {}
    for node in editor.order():
        if node.bodies or node.op in _NOT_SHARED:
            continue
        key = (node.op, node.domain, tuple(node.inputs), len(node.outputs), _attributes(node))
        kept = first.setdefault(key, node)
        if kept is node or any(name in editor.final for name in node.outputs):
            continue
        for old, new in zip(node.outputs, kept.outputs, strict=True):
            if old and new:
                editor.replace_outside(old, new)
        editor.remove(node)
    editor.rename_inside()


def _attributes(node: Node) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (name, value if isinstance(value, int | float | str | tuple) else repr(value))
        for name, value in sorted(node.attributes.items())
        if not name.startswith("pkg.")
    )
