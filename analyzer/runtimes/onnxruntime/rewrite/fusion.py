"""Fusions: several nodes that ONNX Runtime runs as one kernel.

Basic (both providers): BatchNormalization folded into Conv; MatMul+Add → Gemm for matrices; LayerNormalization and Gelu
recognised in their spelt-out forms.
Extended: Gather/Slice of every part of an axis → Split (+Squeeze); Transpose into FusedMatMul; Add+Gelu → BiasGelu;
Add(+bias)+LayerNormalization → SkipLayerNormalization; the tanh form of Gelu → FastGelu; Add+Softmax → BiasSoftmax
(CUDA); scalar scales into FusedMatMul.

A pattern's inner results must have one reader and be no graph output. New nodes take the next index; the fused result
keeps its name.

Source: `core/optimizer/*_fusion.cc`, named at each function.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from analyzer.runtimes.onnxruntime.graph import Node, Symbols
from analyzer.runtimes.onnxruntime.plan.order import topological
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor

_MS = "com.microsoft"
_GELU_OPSET = 20  # before it, Gelu is a contrib operator, which basic optimization may not introduce
_GEMM_ACTIVATIONS = (
    "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
)  # fmt: skip
_LAYER_NORM_TYPES = frozenset({"float32", "float16", "bfloat16"})


def basic(editor: Editor) -> None:
    """Provider-independent fusions, in ONNX Runtime's order."""
    for fuse in (_conv_batch_norm, _matmul_add, _reshape):
        _each(editor, fuse)
    if editor.graph.opset >= _GELU_OPSET:
        _each(editor, _gelu)
    for fuse in (_layer_norm, _rms_norm):
        _each(editor, fuse)


def extended(editor: Editor, provider: str) -> None:
    """Fusions after nodes are assigned, in ONNX Runtime's order."""
    if provider == "cpu":
        _each(editor, _gemm_activation)
        _each(editor, _conv_activation)
    for fuse in (_gelu, _layer_norm, _rms_norm):
        _each(editor, fuse)
    _gather_slice_to_split(editor)
    for fuse in (_matmul_transpose, _bias_gelu, _skip_layer_norm, _fast_gelu, _quick_gelu):
        _each(editor, fuse)
    if provider == "cuda":
        _each(editor, _bias_softmax)
    _each(editor, _matmul_scale)


def _each(editor: Editor, fuse) -> None:  # type: ignore[no-untyped-def]
    for node in topological(editor.graph):
        if node.index in editor.graph.nodes:
            fuse(editor, node)


def _is(node: Node | None, *ops: str) -> bool:
    return node is not None and not node.domain and node.op in ops


def _maker(editor: Editor, node: Node, place: int) -> Node | None:
    return editor.maker.get(node.inputs[place]) if place < len(node.inputs) else None


def _scalar(editor: Editor, name: str) -> float | None:
    """The number a one-element constant holds."""
    data = editor.graph.constant(name) if name in editor.graph.initializers else None
    if data is None or data.size != 1:
        return None
    return float(data.reshape(-1)[0])


def _other(node: Node, name: str) -> str:
    """The operand of a binary operator that is not `name`."""
    return node.inputs[1] if node.inputs[0] == name else node.inputs[0]


def _near(value: float | None, target: float) -> bool:
    return value is not None and math.isclose(value, target, rel_tol=1e-3)


def _conv_batch_norm(editor: Editor, node: Node) -> None:
    """conv_bn_fusion.cc: inference-time BatchNormalization with constant operands after a Conv with constant weights."""
    if not _is(node, "Conv"):
        return
    norm = editor.only_user(node)
    if (
        norm is None
        or not _is(norm, "BatchNormalization")
        or len([name for name in norm.outputs if name]) != 1
    ):
        return
    if norm.attributes.get("training_mode", 0) or not all(
        editor.is_constant(name) for name in norm.inputs[1:5]
    ):
        return
    if not all(editor.is_constant(name) for name in node.inputs[1:]) or node.outputs[0] != norm.inputs[0]:
        return
    bias = norm.inputs[2]
    inputs = [node.inputs[0], _copy(editor, node.inputs[1]), _copy(editor, bias)]
    outputs = list(norm.outputs)
    for place, name in enumerate(inputs):
        editor.set_input(node, place, name)
    editor.remove(norm)
    node.outputs[:] = outputs
    editor.maker[outputs[0]] = node


def _copy(editor: Editor, name: str) -> str:
    """A new constant of the same type and shape (its elements are computed, not read here)."""
    value = editor.value(name)
    new = editor.new_value(name, value.shape, value.symbols)
    editor.graph.initializers[new] = None
    return new


def _reshape(editor: Editor, node: Node) -> None:
    """reshape_fusion.cc: a target shape put together from constants and sizes of the very tensor that is reshaped is
    a constant: 0 for a size that stays in its place, -1 for one other."""
    if not _is(node, "Reshape") or node.attributes.get("allowzero", 0):
        return
    concat = _maker(editor, node, 1)
    if concat is None or not _is(concat, "Concat") or editor.only_user(concat) is not node:
        return
    sizes: list[int] = []
    for name in concat.inputs:
        data = editor.graph.constant(name)
        if data is not None:
            sizes += [int(size) for size in data.reshape(-1)]
            continue
        axis, root = _size_of(editor, name)
        if axis is None:
            return
        if root == node.inputs[0] and axis == len(sizes):
            sizes.append(0)
        elif -1 in sizes:
            return
        else:
            sizes.append(-1)
    target = editor.graph.new_constant(f"{node.name}_shape", np.array(sizes, dtype=np.int64))
    editor.set_input(node, 1, target)
    _drop_chain(editor, concat)


def _size_of(editor: Editor, name: str) -> tuple[int | None, str]:
    """(axis, tensor) if the value is Unsqueeze(Gather(Shape(tensor), axis))."""
    unsqueeze = editor.maker.get(name)
    if unsqueeze is None or not _is(unsqueeze, "Unsqueeze"):
        return None, ""
    gather = _maker(editor, unsqueeze, 0)
    if gather is None or not _is(gather, "Gather"):
        return None, ""
    shape = _maker(editor, gather, 0)
    axis = _scalar(editor, gather.inputs[1])
    if shape is None or not _is(shape, "Shape") or axis is None or axis < 0 or "start" in shape.attributes:
        return None, ""
    return int(axis), shape.inputs[0]


def _drop_chain(editor: Editor, node: Node) -> None:
    """Remove a node nobody reads, and what only it needed."""
    if any(editor.readers.get(name) or name in editor.final for name in node.outputs):
        return
    sources = [editor.maker[name] for name in dict.fromkeys(node.inputs) if name in editor.maker]
    editor.remove(node)
    for source in sources:
        if source.index in editor.graph.nodes:
            _drop_chain(editor, source)


def _gemm_activation(editor: Editor, node: Node) -> None:
    """gemm_activation_fusion.cc (CPU): Gemm and the activation after it."""
    if not _is(node, "Gemm") or editor.value(node.outputs[0]).dtype != "float32":
        return
    after = editor.only_user(node)
    if after is None or not _is(after, *_GEMM_ACTIVATIONS):
        return
    _replace(editor, after, [node], "FusedGemm", node.inputs, _MS, node.attributes, f"fused {node.name}")


def _conv_activation(editor: Editor, node: Node) -> None:
    """conv_activation_fusion.cc (CPU): Conv and the activation after it."""
    if not _is(node, "Conv") or editor.value(node.outputs[0]).dtype != "float32":
        return
    after = editor.only_user(node)
    if after is None or not _is(after, "Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip"):
        return
    if after.op == "Clip" and not all(
        not name or _scalar(editor, name) is not None for name in after.inputs[1:]
    ):
        return
    _replace(editor, after, [node], "FusedConv", node.inputs, _MS, node.attributes, node.name)


def _matmul_add(editor: Editor, node: Node) -> None:
    """matmul_add_fusion.cc: matrices, and a bias of [N], [1, N] or [M, N]."""
    if not _is(node, "MatMul"):
        return
    add = editor.only_user(node)
    if not _is(add, "Add") or add is None:
        return
    left, right = (editor.value(name).symbols for name in node.inputs)
    bias_name = _other(add, node.outputs[0])
    bias = editor.value(bias_name).symbols
    if left is None or right is None or bias is None or len(left) != 2 or len(right) != 2:
        return
    if editor.value(node.outputs[0]).dtype not in ("float32", "float16", "bfloat16", "float64"):
        return
    wanted: tuple[Symbols, ...] = ((right[1],), (1, right[1]), (left[0], right[1]))
    if bias not in wanted or "" in bias:
        return
    _replace(editor, add, [node], "Gemm", [*node.inputs, bias_name], name=f"{node.name}/MatMulAddFusion/")


def _replace(
    editor: Editor, last: Node, rest: list[Node], op: str, inputs: list[str], domain: str = "",
    attributes: dict[str, Any] | None = None, name: str | None = None,
) -> None:  # fmt: skip
    """A fused node in place of `last` and the nodes before it, called like its operator unless a name is given."""
    editor.add(
        op if name is None else name, op, inputs, list(last.outputs), attributes, domain, last.provider
    )
    editor.remove(last)
    for node in rest:
        editor.remove(node)


def _chain(editor: Editor, start: Node, *ops: str) -> list[Node] | None:
    """`start` and the only readers after it, by operator."""
    found = [start]
    for op in ops:
        after = editor.only_user(found[-1])
        if after is None or not _is(after, *op.split("|")):
            return None
        found.append(after)
    return found


def _gelu(editor: Editor, node: Node) -> None:
    """gelu_fusion.cc: x * 0.5 * (1 + erf(x / sqrt(2))), the factors in any order."""
    if not _is(node, "Div", "Mul"):
        return
    x = node.inputs[0]
    if not _near(_scalar(editor, node.inputs[1]), math.sqrt(2) if node.op == "Div" else 1 / math.sqrt(2)):
        return
    found = _chain(editor, node, "Erf", "Add", "Mul", "Mul") or _chain(editor, node, "Erf", "Add", "Mul")
    if found is None or not _near(_scalar(editor, _other(found[2], found[1].outputs[0])), 1.0):
        return
    factor = _other(found[3], found[2].outputs[0])
    rest: list[Node] = []
    if len(found) == 5 and factor == x and _near(_scalar(editor, _other(found[4], found[3].outputs[0])), 0.5):
        pass
    else:
        found = found[:4]
        half = editor.maker.get(factor)
        if (
            half is None
            or not _is(half, "Mul")
            or x not in half.inputs
            or editor.only_user(half) is not found[3]
        ):
            return
        if not _near(_scalar(editor, _other(half, x)), 0.5):
            return
        rest = [half]
    domain = "" if editor.graph.opset >= 20 else _MS
    _replace(editor, found[-1], [*found[:-1], *rest], "Gelu", [x], domain)


def _layer_norm(editor: Editor, node: Node) -> None:
    """layer_norm_fusion.cc: (x - mean) / sqrt(mean((x - mean)^2) + eps) * scale + bias."""
    if not _is(node, "ReduceMean"):
        return
    x = node.inputs[0]
    subs = editor.users(node.outputs[0])
    if not 1 <= len(subs) <= 2 or not all(_is(sub, "Sub") and sub.inputs[0] == x for sub in subs):
        return
    for sub in subs:
        for square in editor.users(sub.outputs[0]):
            if not _is(square, "Pow", "Mul"):
                continue
            found = _chain(editor, square, "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add")
            if found is None:
                continue
            div, mul, add = found[4], found[5], found[6]
            numerator = editor.maker.get(div.inputs[0])
            if numerator not in subs or div.inputs[1] != found[3].outputs[0]:
                continue
            scale, bias = _other(mul, div.outputs[0]), _other(add, mul.outputs[0])
            if not (editor.is_constant(scale) and editor.is_constant(bias)):
                continue
            _replace(editor, add, [*found[:-1], *subs, node], "LayerNormalization", [x, scale, bias])
            return


def _rms_norm(editor: Editor, node: Node) -> None:
    """layer_norm_fusion.cc (SimplifiedLayerNormFusion): x / sqrt(mean(x^2) + eps) * scale."""
    if not _is(node, "Pow"):
        return
    x = node.inputs[0]
    found = _chain(editor, node, "ReduceMean", "Add", "Sqrt")
    if found is None:
        return
    root = found[3]
    after = editor.only_user(root)
    if after is None:
        return
    rest: list[Node] = []
    if _is(after, "Reciprocal") or (_is(after, "Div") and _near(_scalar(editor, after.inputs[0]), 1.0)):
        rest.append(after)
        product = editor.only_user(after)
        if product is None or not _is(product, "Mul") or x not in product.inputs:
            return
    elif _is(after, "Div") and after.inputs[0] == x:
        product = after
    else:
        return
    scaled = editor.only_user(product)
    if scaled is None or not _is(scaled, "Mul"):
        return
    scale = _other(scaled, product.outputs[0])
    if not editor.is_constant(scale) or len(editor.value(scale).shape or ()) != 1:
        return
    _replace(editor, scaled, [*found, *rest, product], "SimplifiedLayerNormalization", [x, scale])


def _gather_slice_to_split(editor: Editor) -> None:
    """gather_fusion.cc (GatherSliceToSplitFusion)."""
    if editor.graph.opset < 13:
        return
    names = [
        name for name in (*editor.graph.inputs, *editor.graph.initializers) if editor.edge_count(name) > 1
    ]
    for node in topological(editor.graph):
        # Shape arithmetic is left alone: it is quick, and lives on the host.
        source = _maker(editor, node, 0)
        from_shape = node.op == "Shape" or (
            node.op == "Gather" and source is not None and source.op == "Shape"
        )
        if not from_shape and len(node.outputs) == 1 and editor.edge_count(node.outputs[0]) > 1:
            names.append(node.outputs[0])
    for name in names:
        _split_one(editor, name)


def _split_one(editor: Editor, name: str) -> None:
    symbols = editor.value(name).symbols
    parts = [user for user in editor.users(name) if _is(user, "Gather", "Slice") and user.inputs[0] == name]
    if symbols is None or len(parts) < 2:
        return
    axis = _part_axis(editor, parts[0], len(symbols))
    if axis is None or not isinstance(symbols[axis], int):
        return
    size = symbols[axis]
    assert isinstance(size, int)
    found: dict[int, tuple[Node, int, bool]] = {}
    for part in parts:
        piece = _part(editor, part, axis, len(symbols), size)
        if piece is None:
            return
        start, length, squeeze = piece
        if start in found:
            return
        found[start] = (part, length, squeeze)
    place = 0
    for start in sorted(found):
        if start != place:
            return
        place += found[start][1]
    if place != size:
        return
    outputs: list[str] = []
    sizes: list[int] = []
    shape = editor.value(name).shape
    for start in sorted(found):
        part, length, squeeze = found[start]
        sizes.append(length)
        result = part.outputs[0]
        if squeeze:
            piece_symbols = (*symbols[:axis], length, *symbols[axis + 1 :])
            piece_shape = None if shape is None else (*shape[:axis], length, *shape[axis + 1 :])
            piece_name = editor.new_value(name, piece_shape, piece_symbols, "split_output")
            axes = editor.graph.new_constant("squeeze_axes", np.array([axis], dtype=np.int64))
            editor.add("Squeeze", "Squeeze", [piece_name, axes], [result], {}, "", part.provider)
            result = piece_name
        outputs.append(result)
    splits = editor.graph.new_constant("splits", np.array(sizes, dtype=np.int64))
    last = found[max(found)][0]
    editor.add(
        f"{last.name}/GatherSliceToSplitFusion",
        "Split",
        [name, splits],
        outputs,
        {"axis": axis},
        "",
        last.provider,
    )
    for part, _, _ in found.values():
        editor.remove(part)


def _part_axis(editor: Editor, node: Node, rank: int) -> int | None:
    if node.op == "Gather":
        return int(node.attributes.get("axis", 0)) % rank
    if len(node.inputs) < 4 or not node.inputs[3]:
        starts = editor.value(node.inputs[1]).shape
        return 0 if starts == (1,) else None
    axis = _scalar(editor, node.inputs[3])
    return None if axis is None else int(axis) % rank


def _part(editor: Editor, node: Node, axis: int, rank: int, size: int) -> tuple[int, int, bool] | None:
    """(start, length, whether the axis goes) of a Gather by one index or a Slice of step 1."""
    if _part_axis(editor, node, rank) != axis:
        return None
    start = _scalar(editor, node.inputs[1])
    if start is None:
        return None
    if node.op == "Gather":
        at = int(start) + (size if start < 0 else 0)
        return (at, 1, editor.value(node.inputs[1]).shape == ()) if 0 <= at < size else None
    stop = _scalar(editor, node.inputs[2])
    if stop is None or (len(node.inputs) > 4 and node.inputs[4] and _scalar(editor, node.inputs[4]) != 1):
        return None
    first = min(max(int(start) + (size if start < 0 else 0), 0), size)
    end = min(max(int(stop) + (size if stop < 0 else 0), 0), size)
    return (first, end - first, False) if first < end else None


def _matmul_transpose(editor: Editor, node: Node) -> None:
    """matmul_transpose_fusion.cc: a Transpose of the last two axes is an attribute of FusedMatMul."""
    if not (_is(node, "MatMul") or (node.op == "FusedMatMul" and node.domain == _MS)):
        return
    if editor.value(node.outputs[0]).dtype not in ("float32", "float16", "float64", "bfloat16"):
        return
    inputs, attributes, gone = list(node.inputs), dict(node.attributes), []
    for place, key in ((0, "transA"), (1, "transB")):
        maker = editor.maker.get(inputs[place])
        if not _is(maker, "Transpose") or maker is None or attributes.get(key):
            continue
        perm = [int(axis) for axis in maker.attributes.get("perm", ())]
        last = [*range(len(perm) - 2), len(perm) - 1, len(perm) - 2]
        if len(perm) < 2 or perm != last:
            continue
        inputs[place] = maker.inputs[0]
        attributes[key] = 1
        gone.append(maker)
    if not gone:
        return
    _replace(editor, node, [], "FusedMatMul", inputs, _MS, attributes, f"{node.name}/MatmulTransposeFusion/")
    for maker in gone:
        if (
            maker.index in editor.graph.nodes
            and not editor.readers.get(maker.outputs[0])
            and maker.outputs[0] not in editor.final
        ):
            editor.remove(maker)


def _bias_gelu(editor: Editor, node: Node) -> None:
    """bias_gelu_fusion.cc: the bias is a vector as long as the last axis; Gelu exact (approximate="none") or FastGelu."""
    if not _is(node, "Add") or len(node.inputs) != 2:
        return
    gelu = editor.only_user(node)
    if (
        gelu is None
        or not (gelu.op in ("Gelu", "FastGelu") and gelu.domain in ("", _MS))
        or len(gelu.inputs) != 1
    ):
        return
    fast = gelu.op == "FastGelu" or gelu.attributes.get("approximate", "none") == "tanh"
    left, right = (editor.value(name).symbols for name in node.inputs)
    if not left or not right:
        return
    if len(right) == 1 and left[-1] == right[0] and isinstance(right[0], int):
        inputs = [node.inputs[0], node.inputs[1]]
    elif len(left) == 1 and right[-1] == left[0] and isinstance(left[0], int):
        inputs = [node.inputs[1], node.inputs[0]]
    else:
        return
    _replace(editor, gelu, [node], "FastGelu" if fast else "BiasGelu", inputs, _MS)


def _skip_layer_norm(editor: Editor, node: Node) -> None:
    """skip_layer_norm_fusion.cc: formats 1, 2 and 3."""
    if not _is(node, "LayerNormalization") or editor.value(node.inputs[0]).dtype not in _LAYER_NORM_TYPES:
        return
    add = _maker(editor, node, 0)
    if add is None or not _is(add, "Add") or not _first_add(editor, add) or add.provider != node.provider:
        return
    inputs = [add.inputs[0], add.inputs[1], node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else ""]
    rest = [add]
    for place in (0, 1):
        bias = _maker(editor, add, place)
        if (
            bias is not None
            and _is(bias, "Add")
            and _second_add(editor, bias)
            and bias.provider == node.provider
        ):
            inputs[place] = bias.inputs[0]
            inputs.append(bias.inputs[1])
            rest.append(bias)
            break
    _replace(editor, node, rest, "SkipLayerNormalization", inputs, _MS)


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


def _fast_gelu(editor: Editor, node: Node) -> None:
    """fast_gelu_fusion.cc: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), x^3 by Pow."""
    if _is(node, "Pow"):
        return _fast_gelu_pow(editor, node)
    return None


def _fast_gelu_pow(editor: Editor, node: Node) -> None:
    x = node.inputs[0]
    if not _near(_scalar(editor, node.inputs[1]), 3.0):
        return
    found = _chain(editor, node, "Mul", "Add", "Mul", "Tanh", "Add", "Mul")
    if found is None:
        return
    cubed, total, scaled, tanh, one, last = found[1:]
    if not _near(_scalar(editor, _other(cubed, node.outputs[0])), 0.044715) or x not in total.inputs:
        return
    if not _near(_scalar(editor, _other(scaled, total.outputs[0])), math.sqrt(2 / math.pi)):
        return
    if not _near(_scalar(editor, _other(one, tanh.outputs[0])), 1.0):
        return
    half = editor.maker.get(_other(last, one.outputs[0]))
    if half is None or not _is(half, "Mul") or x not in half.inputs or editor.only_user(half) is not last:
        return
    if not _near(_scalar(editor, _other(half, x)), 0.5):
        return
    _replace(editor, last, [*found[:-1], half], "FastGelu", [x], _MS, name="GPT2Gelu")


def _quick_gelu(editor: Editor, node: Node) -> None:
    """quick_gelu_fusion.cc: x * sigmoid(alpha x), alpha 1 if there is no product."""
    if not _is(node, "Sigmoid") or editor.value(node.outputs[0]).dtype not in _LAYER_NORM_TYPES:
        return
    last = editor.only_user(node)
    if last is None or not _is(last, "Mul") or last.provider != node.provider:
        return
    other = _other(last, node.outputs[0])
    scale = _maker(editor, node, 0)
    if other == node.inputs[0]:
        rest = [node]
    elif (
        scale is not None and _is(scale, "Mul") and other in scale.inputs and editor.only_user(scale) is node
    ):
        if _scalar(editor, _other(scale, other)) is None:
            return
        rest = [scale, node]
    else:
        return
    _replace(editor, last, rest, "QuickGelu", [other], _MS)


def _bias_softmax(editor: Editor, node: Node) -> None:
    """bias_softmax_fusion.cc: the bias is broadcast over outer axes, or over the axes just before the softmax's."""
    if not _is(node, "Add") or len(node.inputs) != 2:
        return
    softmax = editor.only_user(node)
    if softmax is None or not _is(softmax, "Softmax") or softmax.provider != node.provider:
        return
    left, right = (editor.value(name).symbols for name in node.inputs)
    result = editor.value(node.outputs[0]).symbols
    if (
        left is None
        or right is None
        or result is None
        or len(left) != len(right)
        or "" in left
        or "" in right
    ):
        return
    axis = int(softmax.attributes.get("axis", -1 if editor.graph.opset >= 13 else 1)) % len(result)
    if left == result and _broadcast_bias(left, right, axis):
        inputs = [node.inputs[0], node.inputs[1]]
    elif right == result and _broadcast_bias(right, left, axis):
        inputs = [node.inputs[1], node.inputs[0]]
    else:
        return
    _replace(editor, softmax, [node], "BiasSoftmax", inputs, _MS, {"axis": axis})


def _broadcast_bias(whole: Symbols, bias: Symbols, axis: int) -> bool:
    """Equal from the softmax's axis on; before it, ones then equal sizes, or equal sizes then ones."""
    if whole[axis:] != bias[axis:]:
        return False
    same = [a == b for a, b in zip(whole[:axis], bias[:axis], strict=True)]
    ones = [size == 1 for size in bias[:axis]]
    if not all(a or b for a, b in zip(same, ones, strict=True)):
        return False
    changes = sum(a != b for a, b in pairwise(same))
    return changes <= 1


def _matmul_scale(editor: Editor, node: Node) -> None:
    """matmul_scale_fusion.cc: products with one-element constants before or after a MatMul."""
    if not (_is(node, "MatMul") or (node.op == "FusedMatMul" and node.domain == _MS)):
        return
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
        _MS,
        node.provider,
    )
    if last is not None:
        editor.remove(last)
    editor.remove(node)
    for scale in gone:
        editor.remove(scale)


def _scales(editor: Editor, node: Node) -> bool:
    """Mul by, or Div by, a one-element constant that does not widen the shape."""
    if not _is(node, "Mul", "Div") or len(node.inputs) != 2:
        return False
    places = (1,) if node.op == "Div" else (0, 1)
    for place in places:
        name = node.inputs[place]
        if editor.is_constant(name) and editor.value(name).shape in ((), (1,)):
            return editor.value(name).dtype in ("float32", "float16", "bfloat16", "float64")
    return False
