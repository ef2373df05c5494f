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
            if not (is_op(square, "Pow", "Mul") and _squares(editor, square)):
                continue
            found = chain(editor, square, "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add")
            if found is None:
                continue
            if not all(_over_last_axes(editor, mean) for mean in (node, found[1])):
                continue
            div, mul, add = found[4], found[5], found[6]
            numerator = editor.maker.get(div.inputs[0])
            if numerator not in subs or div.inputs[1] != found[3].outputs[0]:
                continue
            scale, bias = other_operand(mul, div.outputs[0]), other_operand(add, mul.outputs[0])
            if not (editor.is_constant(scale) and editor.is_constant(bias)):
                continue
            replace(editor, add, [*found[:-1], *subs, node], "LayerNormalization", [x, scale, bias])
            return


@fusion(
    "SimplifiedLayerNormFusion",
    "layer_norm_fusion.cc",
    begins=("Pow",),
    takes=("ReduceMean", "Add", "Sqrt", "Div", "Reciprocal", "Mul"),
    makes=("SimplifiedLayerNormalization",),
)
def rms_norm(editor: Editor, node: Node) -> None:
    """x / sqrt(mean(x^2) + eps) * scale."""
    x = node.inputs[0]
    found = chain(editor, node, "ReduceMean", "Add", "Sqrt")
    if found is None or not _squares(editor, node) or not _over_last_axes(editor, found[1]):
        return
    root = found[3]
    after = editor.only_user(root)
    if after is None:
        return
    rest: list[Node] = []
    if is_op(after, "Reciprocal") or (is_op(after, "Div") and close_to(scalar(editor, after.inputs[0]), 1.0)):
        rest.append(after)
        product = editor.only_user(after)
        if not is_op(product, "Mul") or x not in product.inputs:
            return
    elif is_op(after, "Div") and after.inputs[0] == x:
        product = after
    else:
        return
    scaled = editor.only_user(product)
    if not is_op(scaled, "Mul"):
        return
    scale = other_operand(scaled, product.outputs[0])
    if not editor.is_constant(scale) or len(editor.value(scale).shape or ()) != 1:
        return
    replace(editor, scaled, [*found, *rest, product], "SimplifiedLayerNormalization", [x, scale])


@fusion(
    "SkipLayerNormFusion",
    "skip_layer_norm_fusion.cc",
    begins=("LayerNormalization",),
    takes=("Add",),
    makes=(f"{MICROSOFT}.SkipLayerNormalization",),
)
def skip_layer_norm(editor: Editor, node: Node) -> None:
    """The sum of two tensors of three dimensions and LayerNormalization; one summand may carry a bias (formats 1 to 3)."""
    if editor.value(node.inputs[0]).dtype not in _SKIP_TYPES:
        return
    add = maker_of(editor, node, 0)
    if not is_op(add, "Add") or not _first_add(editor, add) or add.provider != node.provider:
        return
    inputs = [add.inputs[0], add.inputs[1], node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else ""]
    rest = [add]
    for place in (0, 1):
        bias = maker_of(editor, add, place)
        if is_op(bias, "Add") and _second_add(editor, bias) and bias.provider == node.provider:
            inputs[place] = bias.inputs[0]
            inputs.append(bias.inputs[1])
            rest.append(bias)
            break
    replace(editor, node, rest, "SkipLayerNormalization", inputs, MICROSOFT)


def _squares(editor: Editor, node: Node) -> bool:
    """x ** 2, or x * x."""
    if node.op == "Mul":
        return node.inputs[0] == node.inputs[1]
    return close_to(scalar(editor, node.inputs[1]), 2.0)


def _over_last_axes(editor: Editor, mean: Node) -> bool:
    """Whether a mean keeps its dimensions, and is over the last axes without a gap."""
    axes = mean.attributes.get("axes")
    if axes is None and len(mean.inputs) > 1 and mean.inputs[1]:
        data = editor.graph.constant(mean.inputs[1])
        axes = None if data is None else [int(axis) for axis in data.reshape(-1)]
    rank = len(editor.value(mean.inputs[0]).symbols or ())
    if not mean.attributes.get("keepdims", 1):
        return False
    if axes is None:
        return len(mean.inputs) < 2 or not mean.inputs[1]  # all of them
    if not rank:
        return sorted(axes) == list(range(-len(axes), 0))
    return sorted(axis % rank for axis in axes) == list(range(rank - len(axes), rank))


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
