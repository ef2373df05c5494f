"""Softmax with the bias (a mask) added before it."""

from __future__ import annotations

from itertools import pairwise

from analyzer.runtimes.onnxruntime.graph import Node, Symbols
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import MICROSOFT, fusion
from analyzer.runtimes.onnxruntime.rewrite.fusions.matching import is_op, replace

AXIS_OPSET = 13  # before it, Softmax's axis is 1 where none is given, afterwards the last


@fusion(
    "BiasSoftmaxFusion",
    "bias_softmax_fusion.cc",
    begins=("Add",),
    takes=("Softmax",),
    makes=(f"{MICROSOFT}.BiasSoftmax",),
)
def bias_softmax(editor: Editor, node: Node) -> None:
    """The bias is broadcast over outer axes, those it does not have among them, or over the axes just before
    the softmax's."""
    if len(node.inputs) != 2:
        return
    softmax = editor.only_user(node)
    if not is_op(softmax, "Softmax") or softmax.provider != node.provider:
        return
    left, right = (editor.value(name).symbols for name in node.inputs)
    result = editor.value(node.outputs[0]).symbols
    if left is None or right is None or result is None or "" in left or "" in right or not left or not right:
        return
    left, right = ((1,) * (len(result) - len(sizes)) + tuple(sizes) for sizes in (left, right))
    axis = int(softmax.attributes.get("axis", -1 if editor.graph.opset >= AXIS_OPSET else 1)) % len(result)
    if left == result and _broadcast_bias(left, right, axis):
        inputs = [node.inputs[0], node.inputs[1]]
    elif right == result and _broadcast_bias(right, left, axis):
        inputs = [node.inputs[1], node.inputs[0]]
    else:
        return
    replace(editor, softmax, [node], "BiasSoftmax", inputs, MICROSOFT, {"axis": axis})


def _broadcast_bias(scores: Symbols, bias: Symbols, axis: int) -> bool:
    """Equal from the softmax's axis on; before it, ones then equal sizes, or equal sizes then ones. Axes of 1
    on both sides are either."""
    if scores[axis:] != bias[axis:]:
        return False
    pairs = [pair for pair in zip(scores[:axis], bias[:axis], strict=True) if pair != (1, 1)]
    same = [a == b for a, b in pairs]
    if not all(equal or b == 1 for equal, (_, b) in zip(same, pairs, strict=True)):
        return False
    changes = sum(a != b for a, b in pairwise(same))
    return changes <= 1
