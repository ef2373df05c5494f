"""The transpose optimizer: Transposes are pushed down through other operators to meet and cancel.

1. Nodes are visited in execution order. If an input of a node comes from a Transpose and the node's operator
   has a handler, pushing is weighed: each input that would have to be transposed costs its rank (dimensions
   of 1 not counted), a constant 0, an input from a Transpose by the same permutation, which would vanish,
   minus its rank if all readers of that Transpose have handlers (0 otherwise). If the sum is negative and no
   output leads on to another Transpose, the largest output's rank is added. Negative: push.
2. Pushing (`pushing`, `handlers`) transposes the inputs by the inverse permutation (constants in place,
   cancelling pairs vanish, composing pairs merge) and puts a Transpose behind each output; axis attributes
   follow the permutation.
3. Two Transposes in a row always merge (`pushing`), as a Transpose does with a Reshape that is one; a Reshape
   that splits axes goes first (`reshaping`). `Shape` of a Transpose becomes `Gather(Shape(x), perm)`.

Source: `core/optimizer/transpose_optimization/onnx_transpose_optimization.cc`.
Not modelled: QuantizeLinear/DequantizeLinear units.
"""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import Node, Value
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.transposes import reshaping
from analyzer.runtimes.onnxruntime.rewrite.transposes.handlers import HANDLERS
from analyzer.runtimes.onnxruntime.rewrite.transposes.permutation import Perm, is_transpose, perm_of
from analyzer.runtimes.onnxruntime.rewrite.transposes.pushing import inputs_of, merge

_NO_OUTPUT = frozenset({"Shape", "Transpose", "Reshape"})
_UNKNOWN_RANK = 5


def run(editor: Editor, *, layout: bool = False) -> None:
    """Pass over the graph once in execution order. `layout`: push a layout's Transposes at any cost."""
    nodes = editor.order()
    leading: set[str] = set()
    for node in reversed(nodes):
        if is_transpose(node):
            leading.add(node.inputs[0])
        elif any(name in leading for name in node.outputs) and _handled(node) and node.op not in _NO_OUTPUT:
            leading.update(node.inputs[place] for place in inputs_of(editor, node))
    for node in nodes:
        if node.index not in editor.graph.nodes:
            continue
        for place, name in enumerate(node.inputs):
            maker = editor.maker.get(name)
            if maker is not None and is_transpose(maker):
                perm = perm_of(editor, maker)
                if perm is not None and _push_or_merge(editor, maker, node, perm, place, leading, layout):
                    break


def _handled(node: Node) -> bool:
    return not node.domain and (node.op in HANDLERS or node.op == "Transpose")


def _rank(value: Value) -> int:
    if value.symbols is None:
        return _UNKNOWN_RANK
    return sum(size != 1 for size in value.symbols)


def _cost(editor: Editor, node: Node, perm: Perm, leading: set[str]) -> int:
    """Return the cost of pushing a Transpose past the node; negative if worth it."""
    cost = 0
    for place in inputs_of(editor, node):
        name = node.inputs[place]
        if editor.is_constant(name):
            continue
        maker = editor.maker.get(name)
        if maker is not None and is_transpose(maker) and (other := perm_of(editor, maker)) is not None:
            removable = name not in editor.final and all(
                _handled(user) and (user.op != "Reshape" or reshaping.handled(editor, user))
                for user in editor.users(name)
            )
            if other == perm and removable:
                cost -= _rank(editor.value(name))
            continue
        cost += _rank(editor.value(name))
    leads = any(name in leading and name not in editor.final for name in node.outputs)
    if cost < 0 and node.op not in _NO_OUTPUT and not leads:
        cost += max((_rank(editor.value(name)) for name in node.outputs if name), default=0)
    return cost


def _push_or_merge(
    editor: Editor, transpose: Node, node: Node, perm: Perm, place: int, leading: set[str], layout: bool
) -> bool:
    if not _handled(node) or place not in inputs_of(editor, node):
        return False
    forced = layout and node.op != "Concat" and perm in _layouts(len(perm))
    if not forced and not is_transpose(node) and _cost(editor, node, perm, leading) >= 0:
        return False
    if is_transpose(node):
        return merge(editor, transpose, node, perm)
    return HANDLERS[node.op](editor, node, perm)


def _layouts(rank: int) -> tuple[Perm, Perm]:
    """Channels first to last, and last to first."""
    return (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
