"""Matching and replacement for fusions: questions about the graph around a node, one node for several."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor


def is_op(node: Node | None, *ops: str) -> TypeGuard[Node]:
    """Return whether it is a node of one of ONNX's own operators named."""
    return node is not None and not node.domain and node.op in ops


def maker_of(editor: Editor, node: Node, place: int) -> Node | None:
    """Return the node that makes an input; None for graph inputs and absent ones."""
    return editor.maker.get(node.inputs[place]) if place < len(node.inputs) else None


def scalar(editor: Editor, name: str) -> float | None:
    """Return the number a one-element constant holds."""
    data = editor.graph.constant(name)
    if data is None or data.size != 1:
        return None
    return float(data.reshape(-1)[0])


def other_operand(node: Node, name: str) -> str:
    """Return the operand of a binary operator that is not `name`."""
    return node.inputs[1] if node.inputs[0] == name else node.inputs[0]


def close_to(value: float | None, target: float) -> bool:
    """Return whether the number is known and the one meant, to a thousandth."""
    return value is not None and math.isclose(value, target, rel_tol=1e-3)


def chain(editor: Editor, start: Node, *ops: str) -> list[Node] | None:
    """`start` and the only readers after it, by operator."""
    nodes = [start]
    for op in ops:
        after = editor.only_user(nodes[-1])
        if after is None or not is_op(after, *op.split("|")):
            return None
        nodes.append(after)
    return nodes


def replace(
    editor: Editor,
    last: Node,
    rest: list[Node],
    op: str,
    inputs: list[str],
    domain: str = "",
    attributes: dict[str, Any] | None = None,
    name: str | None = None,
) -> None:
    """Replace `last` and the nodes before it by a fused node, named for its operator by default."""
    editor.add(
        op if name is None else name, op, inputs, list(last.outputs), attributes, domain, last.provider
    )
    editor.remove(last)
    for node in rest:
        editor.remove(node)


def constant_like(editor: Editor, name: str) -> str:
    """Return a new constant of the same type and shape (its elements are computed, not read here)."""
    value = editor.value(name)
    new = editor.new_value(name, value.shape, value.symbols)
    editor.graph.initializers[new] = None
    return new


def drop_chain(editor: Editor, node: Node) -> None:
    """Remove a node nobody reads, and what only it needed."""
    if any(editor.readers.get(name) or name in editor.final for name in node.outputs):
        return
    sources = [editor.maker[name] for name in dict.fromkeys(node.inputs) if name in editor.maker]
    editor.remove(node)
    for source in sources:
        if source.index in editor.graph.nodes:
            drop_chain(editor, source)
