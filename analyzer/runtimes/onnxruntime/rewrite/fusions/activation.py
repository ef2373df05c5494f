"""Gelu in its forms, exact, with a bias, by tanh, by a sigmoid."""

from __future__ import annotations

import math

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import MICROSOFT, fusion
from analyzer.runtimes.onnxruntime.rewrite.fusions.matching import (
    chain,
    close_to,
    is_op,
    maker_of,
    other_operand,
    replace,
    scalar,
)

_QUICK_TYPES = frozenset({"float32", "float16", "bfloat16"})
GELU_OPSET = 20  # before it, Gelu is one of ONNX Runtime's own operators


@fusion(
    "GeluFusion",
    "gelu_fusion.cc",
    begins=("Div", "Mul"),
    takes=("Erf", "Add", "Mul"),
    makes=("Gelu", f"{MICROSOFT}.Gelu"),
)
def gelu(editor: Editor, node: Node) -> None:
    """x * 0.5 * (1 + erf(x / sqrt(2))), the factors in any order."""
    x = node.inputs[0]
    if not close_to(scalar(editor, node.inputs[1]), math.sqrt(2) if node.op == "Div" else 1 / math.sqrt(2)):
        return
    nodes = chain(editor, node, "Erf", "Add", "Mul", "Mul") or chain(editor, node, "Erf", "Add", "Mul")
    if nodes is None or not close_to(scalar(editor, other_operand(nodes[2], nodes[1].outputs[0])), 1.0):
        return
    factor = other_operand(nodes[3], nodes[2].outputs[0])
    rest: list[Node] = []
    if (
        len(nodes) == 5
        and factor == x
        and close_to(scalar(editor, other_operand(nodes[4], nodes[3].outputs[0])), 0.5)
    ):
        pass
    else:
        nodes = nodes[:4]
        half = editor.maker.get(factor)
        if not is_op(half, "Mul") or x not in half.inputs or editor.only_user(half) is not nodes[3]:
            return
        if not close_to(scalar(editor, other_operand(half, x)), 0.5):
            return
        rest = [half]
    domain = "" if editor.graph.opset >= GELU_OPSET else MICROSOFT
    replace(editor, nodes[-1], [*nodes[:-1], *rest], "Gelu", [x], domain)


@fusion(
    "FastGeluFusion",
    "fast_gelu_fusion.cc",
    begins=("Pow", "Mul"),
    takes=("Mul", "Add", "Tanh"),
    makes=(f"{MICROSOFT}.FastGelu",),
)
def fast_gelu(editor: Editor, node: Node) -> None:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), x^3 by Pow; or the same as sqrt(2/pi) x (1 + 0.044715
    x x). Not where the graph returns the result."""
    matched = _by_power(editor, node) if node.op == "Pow" else _by_products(editor, node)
    if matched is None:
        return
    x, inner = matched
    nodes = chain(editor, inner[-1], "Tanh", "Add", "Mul")
    if nodes is None:
        return
    tanh, one, last = nodes[1:]
    if (
        not close_to(scalar(editor, other_operand(one, tanh.outputs[0])), 1.0)
        or last.outputs[0] in editor.final
    ):
        return
    half = editor.maker.get(other_operand(last, one.outputs[0]))
    if not is_op(half, "Mul") or x not in half.inputs or editor.only_user(half) is not last:
        return
    if not close_to(scalar(editor, other_operand(half, x)), 0.5):
        return
    replace(editor, last, [*inner, tanh, one, half], "FastGelu", [x], MICROSOFT, name="GPT2Gelu")


def _by_power(editor: Editor, node: Node) -> tuple[str, list[Node]] | None:
    """x and the nodes of sqrt(2/pi) (x + 0.044715 x^3), from the Pow on (`CheckSecondFormula`)."""
    x, nodes = node.inputs[0], chain(editor, node, "Mul", "Add", "Mul")
    if nodes is None or not close_to(scalar(editor, node.inputs[1]), 3.0):
        return None
    cubed, total, scaled = nodes[1:]
    if not close_to(scalar(editor, other_operand(cubed, node.outputs[0])), 0.044715) or x not in total.inputs:
        return None
    if not close_to(scalar(editor, other_operand(scaled, total.outputs[0])), math.sqrt(2 / math.pi)):
        return None
    return x, nodes


def _by_products(editor: Editor, node: Node) -> tuple[str, list[Node]] | None:
    """Match sqrt(2/pi) x (1 + 0.044715 x x); return x and the nodes (`CheckFirstFormula`)."""
    factors = [name for name in node.inputs if close_to(scalar(editor, name), 0.044715)]
    nodes = chain(editor, node, "Mul", "Add", "Mul") if factors else None
    if nodes is None:
        return None
    x = other_operand(node, factors[0])
    squared, one, scaled = nodes[1:]
    if other_operand(squared, node.outputs[0]) != x:
        return None
    if not close_to(scalar(editor, other_operand(one, squared.outputs[0])), 1.0):
        return None
    outer = editor.maker.get(other_operand(scaled, one.outputs[0]))
    if not is_op(outer, "Mul") or x not in outer.inputs or editor.only_user(outer) is not scaled:
        return None
    if not close_to(scalar(editor, other_operand(outer, x)), math.sqrt(2 / math.pi)):
        return None
    return x, [outer, *nodes]


@fusion(
    "BiasGeluFusion",
    "bias_gelu_fusion.cc",
    begins=("Add",),
    takes=("Gelu", f"{MICROSOFT}.Gelu", f"{MICROSOFT}.FastGelu"),
    makes=(f"{MICROSOFT}.BiasGelu", f"{MICROSOFT}.FastGelu"),
)
def bias_gelu(editor: Editor, node: Node) -> None:
    """The bias is a vector as long as the last axis; Gelu exact (approximate="none") or FastGelu."""
    if len(node.inputs) != 2:
        return
    activation = editor.only_user(node)
    if (
        activation is None
        or not (activation.op in ("Gelu", "FastGelu") and activation.domain in ("", MICROSOFT))
        or len(activation.inputs) != 1
    ):
        return
    fast = activation.op == "FastGelu" or activation.attributes.get("approximate", "none") == "tanh"
    left, right = (editor.value(name).symbols for name in node.inputs)
    if not left or not right:
        return
    if len(right) == 1 and left[-1] == right[0] and isinstance(right[0], int):
        inputs = [node.inputs[0], node.inputs[1]]
    elif len(left) == 1 and right[-1] == left[0] and isinstance(left[0], int):
        inputs = [node.inputs[1], node.inputs[0]]
    else:
        return
    replace(editor, activation, [node], "FastGelu" if fast else "BiasGelu", inputs, MICROSOFT)


@fusion(
    "QuickGeluFusion",
    "quick_gelu_fusion.cc",
    begins=("Sigmoid",),
    takes=("Mul",),
    makes=(f"{MICROSOFT}.QuickGelu",),
)
def quick_gelu(editor: Editor, node: Node) -> None:
    """x * sigmoid(alpha x), alpha 1 if there is no product."""
    if editor.value(node.outputs[0]).dtype not in _QUICK_TYPES:
        return
    last = editor.only_user(node)
    if not is_op(last, "Mul") or last.provider != node.provider:
        return
    other = other_operand(last, node.outputs[0])
    scale = maker_of(editor, node, 0)
    if other == node.inputs[0]:
        rest = [node]
    elif is_op(scale, "Mul") and other in scale.inputs and editor.only_user(scale) is node:
        if scalar(editor, other_operand(scale, other)) is None:
            return
        rest = [scale, node]
    else:
        return
    replace(editor, last, rest, "QuickGelu", [other], MICROSOFT)
