"""How a Transpose is moved: the inputs of a node transposed, its outputs transposed back, two in a row
merged.

1. An input is transposed by the inverse permutation: a constant in place; behind a Transpose that it cancels,
   what that one reads; behind another, both become one; if the value is transposed that way for someone
   already, that result.
2. Every output gets a Transpose behind it, unless the permutation changes nothing.
3. Two Transposes in a row become one, or none if they cancel.
"""

from __future__ import annotations

import numpy as np

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.transposes.permutation import (
    Perm,
    inverse_of,
    is_transpose,
    perm_of,
    permuted,
)

_BROADCAST = """
    Add Max Min Mul Sub Div And Or Xor Mod PRelu BitShift Equal Greater Less GreaterOrEqual LessOrEqual Mean
    Sum Pow Where
"""
BROADCAST = frozenset(_BROADCAST.split())


def inputs_of(editor: Editor, node: Node) -> list[int]:
    """Inputs that are transposed when a Transpose is pushed."""
    if node.op in BROADCAST:
        return [i for i, name in enumerate(node.inputs) if editor.value(name).symbols != ()]
    if node.op == "Concat":
        return list(range(len(node.inputs)))
    return [0]


def push(editor: Editor, node: Node, perm: Perm, out_perm: Perm | None = None) -> None:
    """Transpose the inputs by the inverse, the outputs by `out_perm` (default: the permutation itself)."""
    for place in inputs_of(editor, node):
        transpose_input(editor, node, place, inverse_of(perm))
    out = perm if out_perm is None else out_perm
    if out != tuple(range(len(out))):
        for place, name in enumerate(node.outputs):
            if name:
                transpose_output(editor, node, place, out)


def transpose_input(editor: Editor, node: Node, place: int, perm: Perm) -> None:
    """Let the node read its input transposed by `perm`, with as few Transposes as possible."""
    name = node.inputs[place]
    if editor.is_constant(name):
        data = editor.graph.constant(name)
        new = _permuted_value(editor, name, perm)
        editor.value(new).data = None if data is None else np.transpose(data, perm)
        editor.graph.initializers[new] = None
        editor.set_input(node, place, new)
        return
    maker = editor.maker.get(name)
    if maker is not None and is_transpose(maker):
        other = perm_of(editor, maker)
        if other is not None and len(other) == len(perm):
            if other == inverse_of(perm):
                editor.set_input(node, place, maker.inputs[0])
            else:
                combined = tuple(other[axis] for axis in perm)
                result = _permuted_value(editor, name, perm)
                editor.add("Transpose", "Transpose", [maker.inputs[0]], [result], {"perm": list(combined)})
                editor.set_input(node, place, result)
            drop_if_unread(editor, maker)
            return
    for user in editor.users(name):
        if is_transpose(user) and perm_of(editor, user) == perm:
            editor.set_input(node, place, user.outputs[0])
            return
    result = _permuted_value(editor, name, perm)
    editor.add("Transpose", "Transpose", [name], [result], {"perm": perm})
    editor.set_input(node, place, result)


def transpose_output(editor: Editor, node: Node, place: int, perm: Perm) -> None:
    """Put a Transpose by `perm` behind the output; the node makes it in the order before."""
    transpose = editor.add("Transpose", "Transpose", [], [""], {"perm": perm})
    new = editor.move_output(node, place, transpose, 0)
    inverse = inverse_of(perm)
    value, old = editor.value(new), editor.value(transpose.outputs[0])
    value.shape, value.symbols = permuted(old.shape, inverse), permuted(old.symbols, inverse)
    editor.set_input(transpose, 0, new)


def merge(editor: Editor, transpose: Node, node: Node, perm: Perm) -> bool:
    """Merge two consecutive Transposes (`node` second) into one or none; return whether it did."""
    second = perm_of(editor, node)
    if second is None or len(second) != len(perm):
        return False
    return merge_by(editor, transpose, node, perm, second)


def merge_by(editor: Editor, transpose: Node, node: Node, perm: Perm, second: Perm) -> bool:
    """Merge a Transpose and a node that permutes by `second` into one Transpose or none."""
    if second == inverse_of(perm):
        _cancel(editor, transpose.inputs[0], node)
    else:
        node.attributes["perm"] = tuple(perm[axis] for axis in second)
        editor.set_input(node, 0, transpose.inputs[0])
    drop_if_unread(editor, transpose)
    return True


def _cancel(editor: Editor, source: str, node: Node) -> None:
    """The node's result is `source`: its readers read that. A result of the graph is made by the node that
    makes `source`, unless that is one too, or nobody's; then by an Identity
    (`RemoveCancelingTransposeNodes`)."""
    result = node.outputs[0]
    editor.remove(node)
    if result not in editor.final and not any(result in user.implicit for user in editor.users(result)):
        editor.replace_uses(result, source)
        return
    maker = editor.maker.get(source)
    shared = source in editor.final or any(source in user.implicit for user in editor.users(source))
    if maker is None or shared:
        editor.add("Identity", "Identity", [source], [result], {}, "", node.provider)
        return
    editor.replace_uses(source, result)
    editor.take_output(maker, maker.outputs.index(source), result)


def drop_if_unread(editor: Editor, node: Node) -> None:
    """Remove a node whose results nobody reads."""
    if not any(editor.readers.get(name) or name in editor.final for name in node.outputs):
        editor.remove(node)


def _permuted_value(editor: Editor, name: str, perm: Perm) -> str:
    value = editor.value(name)
    return editor.new_value(name, permuted(value.shape, perm), permuted(value.symbols, perm))
