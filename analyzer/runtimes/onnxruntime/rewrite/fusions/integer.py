"""Matrix products of integers with the scaling behind them: files quantized dynamically."""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import MICROSOFT, fusion
from analyzer.runtimes.onnxruntime.rewrite.fusions.matching import is_op, other_operand

_TO_FLOAT = "MatMulIntegerToFloat"


@fusion(
    "MatMulIntegerToFloatFusion",
    "matmul_integer_to_float.cc",
    begins=("Mul",),
    takes=("MatMulInteger", "Cast", "Mul", "Add"),
    makes=(f"{MICROSOFT}.{_TO_FLOAT}",),
)
def integer_to_float(editor: Editor, node: Node) -> None:
    """MatMulInteger, Cast, and Mul by a product of two scales; then Add of a constant [..., 1, N] if there is
    one."""
    if editor.value(node.inputs[0]).dtype == "float16":
        return
    cast, scales = (_first_maker(editor, node, op) for op in ("Cast", "Mul"))
    product = _first_maker(editor, cast, "MatMulInteger") if cast is not None else None
    if cast is None or scales is None or product is None:
        return
    if any(editor.only_user(inner) is None for inner in (cast, scales, product)):
        return
    add, bias = _bias(editor, node)
    zeros = [product.input(place) for place in (2, 3)]
    inputs = [*product.inputs[:2], *scales.inputs[:2], *zeros, *([bias] if bias else [])]
    last = node if add is None else add
    outputs = list(last.outputs)
    editor.add(product.name, _TO_FLOAT, inputs, outputs, {}, MICROSOFT, node.provider)
    for gone in (add, node, scales, cast, product):
        if gone is not None:
            editor.remove(gone)


def _first_maker(editor: Editor, node: Node, op: str) -> Node | None:
    """Return the first operand's maker that is such a node."""
    makers = (editor.maker.get(name) for name in node.inputs)
    return next((maker for maker in makers if is_op(maker, op)), None)


def _bias(editor: Editor, node: Node) -> tuple[Node | None, str]:
    """Return the Add behind and its constant, if that is a row of more than one element."""
    add = editor.only_user(node)
    if not is_op(add, "Add"):
        return None, ""
    name = other_operand(add, node.outputs[0])
    shape = editor.value(name).shape or ()
    if not editor.is_constant(name) or not shape or shape[-1] <= 1 or any(size != 1 for size in shape[:-1]):
        return None, ""
    return add, name


@fusion(
    "DynamicQuantizeMatMulFusion",
    "dynamic_quantize_matmul_fusion.cc",
    begins=(f"{MICROSOFT}.{_TO_FLOAT}",),
    takes=("DynamicQuantizeLinear",),
    makes=(f"{MICROSOFT}.DynamicQuantizeMatMul",),
)
def dynamic_matmul(editor: Editor, node: Node) -> None:
    """A product that alone reads all three results of a DynamicQuantizeLinear quantizes its operand
    itself."""
    maker = editor.maker.get(node.inputs[0])
    if not is_op(maker, "DynamicQuantizeLinear") or len(node.inputs) < 5:
        return
    if [node.inputs[place] for place in (0, 2, 4)] != maker.outputs:
        return
    if sum(editor.edge_count(name) for name in maker.outputs) != len(maker.outputs):
        return
    if any(name in editor.final for name in maker.outputs):
        return
    inputs = [maker.inputs[0], *(node.input(place) for place in (1, 3, 5, 6))]
    while inputs and not inputs[-1]:
        inputs.pop()
    editor.add(node.name, "DynamicQuantizeMatMul", inputs, list(node.outputs), {}, MICROSOFT, node.provider)
    editor.remove(maker)
    editor.remove(node)
