"""Convolutions with what follows them: BatchNormalization folded into the weights, activations in the CPU's kernel."""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import MICROSOFT, fusion
from analyzer.runtimes.onnxruntime.rewrite.fusions.matching import constant_like, is_op, replace, scalar

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip")


@fusion("ConvBNFusion", "conv_bn_fusion.cc", begins=("Conv",), takes=("BatchNormalization",), makes=("Conv",))
def conv_batch_norm(editor: Editor, node: Node) -> None:
    """Inference-time BatchNormalization with constant operands after a Conv with constant weights."""
    norm = editor.only_user(node)
    if not is_op(norm, "BatchNormalization") or len([name for name in norm.outputs if name]) != 1:
        return
    if norm.attributes.get("training_mode", 0) or not all(
        editor.is_constant(name) for name in norm.inputs[1:5]
    ):
        return
    if not all(editor.is_constant(name) for name in node.inputs[1:]) or node.outputs[0] != norm.inputs[0]:
        return
    bias = norm.inputs[2]
    inputs = [node.inputs[0], constant_like(editor, node.inputs[1]), constant_like(editor, bias)]
    outputs = list(norm.outputs)
    for place, name in enumerate(inputs):
        editor.set_input(node, place, name)
    editor.remove(norm)
    del editor.maker[node.outputs[0]]
    node.outputs[:] = outputs
    editor.maker[outputs[0]] = node


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
