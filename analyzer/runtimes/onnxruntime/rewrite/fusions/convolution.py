"""Convolutions with what stands around them: padding, BatchNormalization folded into the weights, activations
in the CPU's kernel."""

from __future__ import annotations

from analyzer.releases import Span
from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import MICROSOFT, fusion
from analyzer.runtimes.onnxruntime.rewrite.fusions.matching import constant_like, is_op, replace, scalar

_FLOATS = frozenset({"float16", "float32", "float64", "bfloat16"})
_RANK = 4  # of the weights: sums and products with convolutions of one dimension stay
_PAD_INPUTS_OPSET = 11  # from it on, what Pad adds and where are inputs: amounts, value, and from 18 on axes
_PAD_INPUTS = 3  # with the axes named, nothing is joined
_PADS_MAX_POOL, _NORMALISES_TRANSPOSED = Span(until=(1, 31)), Span(since=(1, 31))
_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip")


@fusion(
    "ConvBNFusion",
    "conv_bn_fusion.cc",
    begins=("Conv", "ConvTranspose"),
    takes=("BatchNormalization",),
    makes=("Conv", "ConvTranspose"),
)
def conv_batch_norm(editor: Editor, node: Node) -> None:
    """Inference-time BatchNormalization with constant operands after a Conv, or from 1.31 on a ConvTranspose,
    with constant weights."""
    if node.op == "ConvTranspose" and editor.graph.release not in _NORMALISES_TRANSPOSED:
        return
    norm = editor.only_user(node)
    if not is_op(norm, "BatchNormalization") or len([name for name in norm.outputs if name]) != 1:
        return
    if norm.attributes.get("training_mode", 0) or not all(
        editor.is_constant(name) for name in norm.inputs[1:5]
    ):
        return
    if not all(editor.is_constant(name) for name in node.inputs[1:]) or node.outputs[0] != norm.inputs[0]:
        return
    _absorb(editor, node, norm, bias_like=norm.inputs[2])


@fusion("ConvAddFusion", "conv_add_fusion.cc", begins=("Conv",), takes=("Add",), makes=("Conv",))
def conv_add(editor: Editor, node: Node) -> None:
    """Conv with constant weights and the sum with a constant of [C, 1, 1] or [1, C, 1, 1] behind it: the
    constant, which stands second, joins the bias."""
    add = _constant_operation(editor, node, "Add")
    if add is None:
        return
    weights, constant = editor.value(node.inputs[1]).shape, editor.value(add.inputs[1]).shape
    if weights is None or constant is None or not _one_a_channel(weights, constant, (0, 1)):
        return
    _absorb(editor, node, add, bias_like=add.inputs[1])


@fusion("ConvMulFusion", "conv_mul_fusion.cc", begins=("Conv",), takes=("Mul",), makes=("Conv",))
def conv_mul(editor: Editor, node: Node) -> None:
    """Conv with constant weights and the product with a constant, a scalar or of [C, 1, 1], behind it: the
    constant, which stands second, joins weights and bias."""
    mul = _constant_operation(editor, node, "Mul")
    if mul is None:
        return
    weights, constant = editor.value(node.inputs[1]).shape, editor.value(mul.inputs[1]).shape
    if weights is None or constant is None or (constant and not _one_a_channel(weights, constant, (0, 1))):
        return
    _absorb(editor, node, mul)


def _constant_operation(editor: Editor, node: Node, op: str) -> Node | None:
    """Return the only reader of a constant-weight Conv if its other operand is constant."""
    after = editor.only_user(node)
    if not is_op(after, op) or len(after.inputs) != 2 or after.inputs[0] != node.outputs[0]:
        return None
    constants = [*node.inputs[1:], after.inputs[1]]
    if not all(editor.is_constant(name) for name in constants if name):
        return None
    types = {editor.value(name).dtype for name in constants if name}
    rank = len(editor.value(node.inputs[1]).shape or ())
    return after if rank >= _RANK and len(types) == 1 and types <= _FLOATS else None


def _one_a_channel(weights: tuple[int, ...], constant: tuple[int, ...], missing: tuple[int, ...]) -> bool:
    """Return whether a constant has one element a filter, on the channels' axis."""
    axis = 1 - (len(weights) - len(constant))
    if len(weights) - len(constant) not in missing or constant[axis] != weights[0]:
        return False
    return all(size == 1 for place, size in enumerate(constant) if place != axis)


def _absorb(editor: Editor, node: Node, after: Node, *, bias_like: str = "") -> None:
    """Let the Conv, with new weights and a bias, make the result of the node after it."""
    inputs = [node.inputs[0], constant_like(editor, node.inputs[1])]
    bias = node.input(2)
    if bias or bias_like:
        new = constant_like(editor, bias or bias_like)
        shape = editor.value(node.inputs[1]).shape or (0, 0)
        filters = shape[1] * int(node.attributes.get("group", 1)) if node.op == "ConvTranspose" else shape[0]
        editor.value(new).shape = editor.value(new).symbols = (filters,)
        inputs.append(new)
    outputs = list(after.outputs)
    for place, name in enumerate(inputs):
        editor.set_input(node, place, name)
    editor.remove(after)
    editor.take_output(node, 0, outputs[0])


@fusion(
    "ConvActivationFusion",
    "conv_activation_fusion.cc",
    begins=("Conv",),
    takes=_ACTIVATIONS,
    makes=(f"{MICROSOFT}.FusedConv",),
)
def conv_activation(editor: Editor, node: Node) -> None:
    """Conv in float32 and the activation after it; Clip with constant bounds."""
    if editor.value(node.outputs[0]).dtype != "float32":
        return
    after = editor.only_user(node)
    if not is_op(after, *_ACTIVATIONS):
        return
    if after.op == "Clip" and not all(
        not name or scalar(editor, name) is not None for name in after.inputs[1:]
    ):
        return
    replace(editor, after, [node], "FusedConv", node.inputs, MICROSOFT, node.attributes, node.name)


@fusion(
    "PadFusion",
    "pad_fusion.cc",
    begins=("Pad",),
    takes=("Cast", "Conv", "AveragePool", "MaxPool"),
    makes=("Conv", "AveragePool", "MaxPool"),
)
def pad(editor: Editor, node: Node) -> None:
    """Zeros put around height, width and the like are padding of the convolution or pool behind, or behind a
    Cast; not of a MaxPool's from 1.32 on, for which they are no zeros but the least there is."""
    after = editor.only_user(node)
    cast = after if is_op(after, "Cast") else None
    target = editor.only_user(cast) if cast is not None else after
    if not is_op(target, "Conv", "AveragePool", "MaxPool") or len(target.outputs) > 1:
        return
    if target.op == "MaxPool" and editor.graph.release not in _PADS_MAX_POOL:
        return
    pads = _zeros_around(editor, node)
    own = target.ints("pads")
    if pads is None or target.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return
    if any(own) and target.op == "AveragePool" and target.attributes.get("count_include_pad") == 0:
        return
    if own and len(own) != len(pads):
        return
    target.attributes["pads"] = tuple(map(sum, zip(own or (0,) * len(pads), pads, strict=True)))
    if target.op == "AveragePool":
        target.attributes["count_include_pad"] = 1
    if cast is not None:
        source, result = editor.value(node.inputs[0]), editor.value(cast.outputs[0])
        result.shape, result.symbols = source.shape, source.symbols
    editor.set_input(after or target, 0, node.inputs[0])
    editor.remove(node)


def _zeros_around(editor: Editor, node: Node) -> tuple[int, ...] | None:
    """Return a Pad's zeros before, then after each axis from the third on; None if it pads elsewhere, with
    other values, or unknown amounts."""
    if node.attributes.get("mode", "constant") != "constant" or len(node.inputs) > _PAD_INPUTS:
        return None
    if editor.graph.opset < _PAD_INPUTS_OPSET:
        filler, amounts = node.attributes.get("value", 0.0), node.ints("pads")
    else:
        amounts = tuple(editor.graph.integers(node.inputs[1]) or ())
        filler = scalar(editor, node.inputs[2]) if node.input(2) else 0.0
    rank = len(amounts) // 2
    if filler != 0.0 or rank < 3 or min(amounts) < 0 or any(amounts[axis] for axis in (0, 1, rank, rank + 1)):
        return None
    return (*amounts[2:rank], *amounts[rank + 2 :])
