"""Matrix products with what stands around them: biases, transposes, scales, the CPU's activations."""

from __future__ import annotations

import math

import numpy as np

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import MICROSOFT, fusion
from analyzer.runtimes.onnxruntime.rewrite.fusions.gemm import biases
from analyzer.runtimes.onnxruntime.rewrite.fusions.matching import is_op, other_operand, replace
from analyzer.runtimes.onnxruntime.rewrite.transposes.permutation import Perm, perm_of

_PRODUCTS = ("MatMul", f"{MICROSOFT}.FusedMatMul")
_FUSED = (f"{MICROSOFT}.FusedMatMul",)
_NBITS_BIAS = 5  # place of the bias among MatMulNBits' inputs
_TYPES = frozenset({"float32", "float16", "bfloat16", "float64"})
_NAMES = "Elu HardSigmoid LeakyRelu Relu Selu Sigmoid Softplus Softsign Tanh ThresholdedRelu"
_ACTIVATIONS = tuple(_NAMES.split())


@fusion(
    "MatMulAddFusion", "matmul_add_fusion.cc", begins=("MatMul",), takes=("Add",), makes=("Gemm", "Reshape")
)
def matmul_add(editor: Editor, node: Node) -> None:
    """Matrices of a floating type, and a bias of [N], [1, N], [M, 1] or [M, N]: Gemm. So is a stack of
    matrices of known shape with a bias of [N], between two Reshapes; but not in what AttentionFusion looks
    for (`attention_projection`)."""
    _matmul_add(editor, node, keep_attention=True)


@fusion(
    "MatMulAddFusion", "matmul_add_fusion.cc", begins=("MatMul",), takes=("Add",), makes=("Gemm", "Reshape")
)
def matmul_add_rest(editor: Editor, node: Node) -> None:
    """The same after AttentionFusion has run, for what it left."""
    _matmul_add(editor, node, keep_attention=False)


def _matmul_add(editor: Editor, node: Node, *, keep_attention: bool) -> None:
    """Fuse MatMul and the Add of a bias into Gemm; stacked rows are reshaped to a matrix."""
    add = editor.only_user(node)
    if not is_op(add, "Add"):
        return
    left, right = (editor.value(name).symbols for name in node.inputs)
    bias_name = other_operand(add, node.outputs[0])
    bias = editor.value(bias_name).symbols
    if left is None or right is None or bias is None or len(right) != 2:
        return
    if editor.value(node.outputs[0]).dtype not in _TYPES:
        return
    name = f"{node.name}/MatMulAddFusion/"
    if len(left) == 2:
        if bias in biases(left[0], right[1]) and "" not in bias:
            replace(editor, add, [node], "Gemm", [*node.inputs, bias_name], name=name)
        return
    stack = tuple(size for size in left if isinstance(size, int))
    matrix = tuple(size for size in right if isinstance(size, int))
    if len(stack) < len(left) or len(matrix) < 2 or bias != (matrix[1],):
        return
    if keep_attention and attention_projection(editor, node, add):
        return
    rows = math.prod(stack[:-1])
    flat, result = (rows, matrix[0]), (rows, matrix[1])
    before, after = (
        editor.new_value(node.inputs[0], shape, shape, "gemm_reshape") for shape in (flat, result)
    )
    _reshape(editor, node, node.inputs[0], before, flat)
    editor.add(name, "Gemm", [before, node.inputs[1], bias_name], [after], {}, "", node.provider)
    _reshape(editor, node, after, add.outputs[0], (*stack[:-1], matrix[1]))
    editor.remove(node)
    editor.remove(add)


def _reshape(editor: Editor, node: Node, source: str, result: str, shape: tuple[int, ...]) -> None:
    constant = editor.graph.new_constant("gemm_shape", np.array(shape, np.int64))
    editor.add(f"{node.name}/reshape", "Reshape", [source, constant], [result], {}, "", node.provider)


def attention_projection(editor: Editor, node: Node, add: Node) -> bool:
    """Return whether a product and its sum are one of the four of an attention layer as AttentionFusion knows
    it: three products and one sum read a LayerNormalization, and the sum's other operand is the fourth pair's
    (`AttentionPatternCache`)."""
    norm = editor.maker.get(node.inputs[0])
    nodes = [norm] if is_op(norm, "LayerNormalization") else []
    following = editor.only_user(add)
    if is_op(following, "Add"):
        other = editor.maker.get(other_operand(following, add.outputs[0]))
        nodes += [other] if is_op(other, "LayerNormalization") else []
    for item in nodes:
        readers = editor.users(item.outputs[0])
        sums = [reader for reader in readers if is_op(reader, "Add")]
        products = [reader for reader in readers if is_op(reader, "MatMul")]
        shapes = [reader for reader in readers if is_op(reader, "Shape")]
        if len(sums) != 1 or len(products) != 3 or len(shapes) != len(readers) - 4:
            continue
        fourth = editor.maker.get(other_operand(sums[0], item.outputs[0]))
        if is_op(fourth, "Add") and (item is norm or fourth is add):
            return True
    return False


@fusion(
    "GemmActivationFusion",
    "gemm_activation_fusion.cc",
    begins=("Gemm",),
    takes=_ACTIVATIONS,
    makes=(f"{MICROSOFT}.FusedGemm",),
)
def gemm_activation(editor: Editor, node: Node) -> None:
    """Gemm in float32 and the activation after it."""
    if editor.value(node.outputs[0]).dtype != "float32":
        return
    after = editor.only_user(node)
    if not is_op(after, *_ACTIVATIONS):
        return
    replace(editor, after, [node], "FusedGemm", node.inputs, MICROSOFT, node.attributes, f"fused {node.name}")


@fusion(
    "MatmulTransposeFusion",
    "matmul_transpose_fusion.cc",
    begins=_PRODUCTS,
    takes=("Transpose",),
    makes=_FUSED,
)
def matmul_transpose(editor: Editor, node: Node) -> None:
    """A Transpose of the last two axes, or of the first behind the batch ([rows, batch, columns]), or of
    both, is an attribute of FusedMatMul; the batch's axes must keep their order. Not of a value that is
    multiplied by itself."""
    if editor.value(node.outputs[0]).dtype not in _TYPES or node.inputs[0] == node.inputs[1]:
        return
    transposed: dict[int, tuple[Node, bool, bool]] = {}
    for place, side in enumerate("AB"):
        maker = editor.maker.get(node.inputs[place])
        if not is_op(maker, "Transpose") or maker.outputs[0] in editor.final:
            continue
        flags = _transposed(perm_of(editor, maker) or ())
        if flags is not None and not node.attributes.get(f"transBatch{side}", 0):
            transposed[place] = (maker, *flags)
    ranks = [len(editor.value(name).symbols or ()) for name in node.inputs]
    if ranks[0] != ranks[1] or not all(ranks):
        transposed = {place: flags for place, flags in transposed.items() if not flags[2]}
    inputs, attributes, gone = list(node.inputs), dict(node.attributes), []
    for place, (maker, last, batch) in transposed.items():
        side = "AB"[place]
        inputs[place] = maker.inputs[0]
        if last:
            attributes[f"trans{side}"] = 1 - int(bool(attributes.get(f"trans{side}", 0)))
        if batch:
            attributes[f"transBatch{side}"] = 1
        gone.append(maker)
    if not gone:
        return
    replace(
        editor, node, [], "FusedMatMul", inputs, MICROSOFT, attributes, f"{node.name}/MatmulTransposeFusion/"
    )
    for maker in gone:
        if (
            maker.index in editor.graph.nodes
            and not editor.readers.get(maker.outputs[0])
            and maker.outputs[0] not in editor.final
        ):
            editor.remove(maker)


def _transposed(perm: Perm) -> tuple[bool, bool] | None:
    """Return whether the last two axes change places, and whether the first goes behind the batch; None if it
    is neither (or no such permutation) (`GetTransposeNodeFromOutput`)."""
    rank = len(perm)
    if rank < 2 or rank - 1 not in perm[-2:]:
        return None
    if rank > 2 and (perm[0] > 1 or any(perm[axis] + 1 != perm[axis + 1] for axis in range(rank - 3))):
        return None
    return perm[-1] != rank - 1, rank > 2 and perm[0] == 1


@fusion("MatMulScaleFusion", "matmul_scale_fusion.cc", begins=_PRODUCTS, takes=("Mul", "Div"), makes=_FUSED)
def matmul_scale(editor: Editor, node: Node) -> None:
    """Products with one-element constants before or after a MatMul."""
    inputs, gone = list(node.inputs), []
    for place in (0, 1):
        while True:
            scale = editor.maker.get(inputs[place])
            if scale is None or not _scales(editor, scale) or editor.only_user(scale) is None:
                break
            inputs[place] = scale.inputs[0] if not editor.is_constant(scale.inputs[0]) else scale.inputs[1]
            gone.append(scale)
    outputs = list(node.outputs)
    after = editor.only_user(node)
    last = None
    if after is not None and _scales(editor, after):
        last, outputs = after, list(after.outputs)
    if not gone and last is None:
        return
    editor.add(
        f"{node.name}/MatMulScaleFusion/",
        "FusedMatMul",
        inputs,
        outputs,
        dict(node.attributes),
        MICROSOFT,
        node.provider,
    )
    if last is not None:
        editor.remove(last)
    editor.remove(node)
    for scale in gone:
        editor.remove(scale)


def _scales(editor: Editor, node: Node) -> bool:
    """Mul by, or Div by, a one-element constant that does not widen the shape."""
    if not is_op(node, "Mul", "Div") or len(node.inputs) != 2:
        return False
    places = (1,) if node.op == "Div" else (0, 1)
    for place in places:
        name = node.inputs[place]
        if editor.is_constant(name) and editor.value(name).shape in ((), (1,)):
            return editor.value(name).dtype in _TYPES
    return False


@fusion(
    "MatMulNBitsFusion",
    "matmul_nbits_fusion.cc",
    begins=(f"{MICROSOFT}.MatMulNBits",),
    takes=("Add",),
    makes=(f"{MICROSOFT}.MatMulNBits",),
)
def nbits_bias(editor: Editor, node: Node) -> None:
    """The sum with a vector [N] behind MatMulNBits is its bias."""
    if node.input(_NBITS_BIAS):
        return
    add = editor.only_user(node)
    if not is_op(add, "Add") or add.provider != node.provider:
        return
    bias = other_operand(add, node.outputs[0])
    if editor.value(bias).symbols != (int(node.attributes.get("N", 0)),):
        return
    result = add.outputs[0]
    editor.remove(add)
    editor.set_input(node, _NBITS_BIAS, bias)
    editor.take_output(node, 0, result)
