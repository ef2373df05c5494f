"""Normalizations: recognised where a model spells them out, and joined with the sums before them."""

from __future__ import annotations

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

LAYER_NORM_OPSET = 17  # before it, LayerNormalization is one of ONNX Runtime's own operators
_SKIP_TYPES = frozenset({"float32", "float16", "bfloat16"})


@fusion(
    "LayerNormFusion",
    "layer_norm_fusion.cc",
    begins=("ReduceMean",),
    takes=("Sub", "Pow", "Mul", "Add", "Sqrt", "Div"),
    makes=("LayerNormalization",),
)
def layer_norm(editor: Editor, node: Node) -> None:
    """(x - mean) / sqrt(mean((x - mean)^2) + eps) * scale + bias."""
    x = node.inputs[0]
    subs = editor.users(node.outputs[0])
    if not 1 <= len(subs) <= 2 or not all(is_op(sub, "Sub") and sub.inputs[0] == x for sub in subs):
        return
    for sub in subs:
        for square in editor.users(sub.outputs[0]):
            if not is_op(square, "Pow") or not close_to(scalar(editor, square.inputs[1]), 2.0):
                continue
            nodes = chain(editor, square, "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add")
            if nodes is None:
                continue
            if not all(_over_last_axis(editor, mean) for mean in (node, nodes[1])):
                continue
            div, mul, add = nodes[4], nodes[5], nodes[6]
            numerator = editor.maker.get(div.inputs[0])
            if numerator not in subs or div.inputs[1] != nodes[3].outputs[0]:
                continue
            scale, bias = other_operand(mul, div.outputs[0]), other_operand(add, mul.outputs[0])
            widths = [editor.value(name).symbols for name in (scale, bias)]
            if widths[0] != widths[1] or len(widths[0] or ()) != 1:
                continue
            replace(editor, add, [*nodes[:-1], *subs, node], "LayerNormalization", [x, scale, bias])
            return


@fusion(
    "SimplifiedLayerNormFusion",
    "layer_norm_fusion.cc",
    begins=("Pow",),
    takes=("ReduceMean", "Add", "Sqrt", "Div", "Mul"),
    makes=("SimplifiedLayerNormalization",),
)
def rms_norm(editor: Editor, node: Node) -> None:
    """x / sqrt(mean(x^2) + eps) * scale, the quotient by Div: a product with the root's Reciprocal, as dynamo
    writes it, is not looked for."""
    nodes = chain(editor, node, "ReduceMean", "Add", "Sqrt", "Div", "Mul")
    if nodes is None or not close_to(scalar(editor, node.inputs[1]), 2.0):
        return
    mean, quotient, scaled = nodes[1], nodes[4], nodes[5]
    scale = other_operand(scaled, quotient.outputs[0])
    if not _over_last_axis(editor, mean) or len(editor.value(scale).symbols or ()) != 1:
        return
    if quotient.inputs != [node.inputs[0], nodes[3].outputs[0]]:
        return
    replace(editor, scaled, nodes[:-1], "SimplifiedLayerNormalization", [node.inputs[0], scale])


@fusion(
    "SkipLayerNormFusion",
    "skip_layer_norm_fusion.cc",
    begins=("LayerNormalization",),
    takes=("Add",),
    makes=(f"{MICROSOFT}.SkipLayerNormalization",),
)
def skip_layer_norm(editor: Editor, node: Node) -> None:
    """The sum of two tensors of three dimensions and LayerNormalization; one summand may carry a bias
    (formats 1 to 3)."""
    if editor.value(node.inputs[0]).dtype not in _SKIP_TYPES:
        return
    add = maker_of(editor, node, 0)
    if not is_op(add, "Add") or not _first_add(editor, add) or add.provider != node.provider:
        return
    inputs = [*add.inputs, node.inputs[1], node.input(2)]
    rest = [add]
    for place in (0, 1):
        bias = maker_of(editor, add, place)
        if is_op(bias, "Add") and _second_add(editor, bias) and bias.provider == node.provider:
            inputs[place] = bias.inputs[0]
            inputs.append(bias.inputs[1])
            rest.append(bias)
            break
    replace(editor, node, rest, "SkipLayerNormalization", inputs, MICROSOFT)


def _over_last_axis(editor: Editor, mean: Node) -> bool:
    """Return whether a mean keeps its dimensions and is over the last axis alone, an axis that is named
    (`CheckAxesOnReduceMean`; normalizations over several axes are joined by training builds only)."""
    axes = editor.graph.axes(mean)
    if axes is None or len(axes) != 1 or not mean.attributes.get("keepdims", 1):
        return False
    symbols = editor.value(mean.inputs[0]).symbols
    return axes[0] == -1 or (symbols is not None and axes[0] == len(symbols) - 1)


def _first_add(editor: Editor, add: Node) -> bool:
    if editor.only_user(add) is None:
        return False
    left, right = (editor.value(name).symbols for name in add.inputs)
    return left is not None and left == right and len(left) == 3 and "" not in left


def _second_add(editor: Editor, add: Node) -> bool:
    if editor.only_user(add) is None or not editor.is_constant(add.inputs[1]):
        return False
    left, right = (editor.value(name).symbols for name in add.inputs)
    return (
        left is not None
        and right is not None
        and len(left) == 3
        and right == (left[2],)
        and isinstance(left[2], int)
    )
