"""Operators between DequantizeLinear and QuantizeLinear that the CPU provider computes on integers (level
extended).

1. A **group** is an operator, the DQs that make its operands and the Qs that read its results: each DQ has no
   other reader, the operator's results no other than the Qs. A Relu or Clip before the Q that the Q's range
   makes redundant belongs to it.
2. Operators that only move elements lose their DQ and Q if these are a pair; ArgMax its DQ. AveragePool,
   LeakyRelu, GlobalAveragePool, Sigmoid, Softmax, Add, Mul, Concat, Where, Conv, MatMul and Gemm become
   QLinear operators. MatMul without a Q becomes MatMulIntegerToFloat, Gemm without one QGemm with a float
   result.
3. Types: operands and result alike; 16 bits only for what moves elements; a Conv or MatMul of int8 operands
   stays float on x86. Before, a Q and DQ of int8 that only read each other become uint8 there.
4. MatMul with weights of 4 bits in blocks behind a DQ becomes MatMulNBits, on the CUDA provider too.

Source: `core/optimizer/qdq_transformer/selectors_actions/` (`qdq_selector_action_transformer.cc`,
`qdq_selectors.cc`, `qdq_actions.cc`), `qdq_s8_to_u8.cc`, `core/framework/node_unit.cc`
(`CanCreateNodeGroup`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.kernels.registered import since_version
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import MICROSOFT
from analyzer.runtimes.onnxruntime.rewrite.quantized.pairs import (
    QUANTIZES,
    SCALE,
    ZERO_POINT,
    constant_scalars,
    dequantizes,
    edges,
    has_zero_point,
    is_pair,
    only_reader,
    quantized_type,
    quantizes,
    scalar_of,
)

_WIDE = frozenset({"int16", "uint16"})
_NARROW = frozenset({"int4", "uint4"})
_LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
_LEAST_BLOCK = 16
_ACCURACY = 4  # session.qdq_matmulnbits_accuracy_level


@dataclass(frozen=True, slots=True)
class Group:
    """An operator with the DQs before and the Qs behind it. clip: between it and its Q."""

    node: Node
    sources: tuple[Node, ...]
    results: tuple[Node, ...] = ()
    clip: Node | None = field(default=None)

    @property
    def result(self) -> Node:
        """The group's only QuantizeLinear."""
        return self.results[0]


def signed_to_unsigned(editor: Editor) -> None:
    """Let a Q of int8 and the DQ that alone reads it work on uint8."""
    for node in editor.ordered(*QUANTIZES):
        if node.provider != "cpu":
            continue
        back = only_reader(editor, node)
        if not dequantizes(back) or not (len(node.inputs) == len(back.inputs) == 3):
            continue
        zeros = [item.inputs[ZERO_POINT] for item in (node, back)]
        if not all(
            name and editor.is_constant(name) and editor.value(name).dtype == "int8" for name in zeros
        ):
            continue
        values = [scalar_of(editor, name) for name in zeros]
        if zeros[0] != zeros[1] and (None in values or values[0] != values[1]):
            continue
        moved = np.array((0 if values[0] is None else int(values[0])) + 128, np.uint8)
        zero = editor.graph.new_constant("qdq_s8_to_u8_zp_conversion", moved)
        editor.value(node.outputs[0]).dtype = "uint8"
        editor.set_input(node, ZERO_POINT, zero)
        editor.set_input(back, ZERO_POINT, zero)


def to_integers(editor: Editor) -> None:
    """Replace every group that has an integer operator on the CPU provider, in execution order."""
    for node in editor.order():
        if node.index not in editor.graph.nodes or node.domain:
            continue
        if node.op in ACTIONS and node.provider == "cpu":
            group = _group(editor, node)
            if group is not None and ACTIONS[node.op](editor, group):
                continue
        if node.op == "MatMul" and node.provider in ("cpu", "cuda"):
            _by_blocks(editor, node)


def _group(editor: Editor, node: Node) -> Group | None:
    """Return the node's group; None if a DQ has other readers, or a redundant Clip is none."""
    makers = [editor.maker.get(name) for name in node.inputs if name]
    sources = tuple(maker for maker in makers if dequantizes(maker))
    for source in sources:
        if only_reader(editor, source) is not node:
            return None
    clip, last = None, node
    uses = [edge for name in node.outputs if name for edge in edges(editor, name)]
    after = uses[0].node if len(uses) == 1 else None
    if after is not None and after.operator in ("Relu", "Clip") and only_reader(editor, after) is not None:
        clip = last = after
        uses = edges(editor, after.outputs[0])
    results = tuple(edge.node for edge in uses if quantizes(edge.node))
    if clip is not None and (len(results) != 1 or not _redundant(editor, clip, results[0])):
        return None
    outputs = [name for name in last.outputs if name]
    if results and not (len(results) == len(outputs) == len(uses)):
        return None
    if any(name in editor.final for name in outputs) and results:
        return None
    return Group(node, sources, results, clip)


def _redundant(editor: Editor, clip: Node, result: Node) -> bool:
    """Return whether the Q's range lies within that of the Relu or Clip."""
    zero = scalar_of(editor, result.inputs[ZERO_POINT]) if has_zero_point(result) else 0
    limits = _LIMITS.get(quantized_type(editor, result))
    if zero is None or limits is None:
        return False
    if clip.op == "Relu":
        return bool(int(zero) == limits[0])
    scale = scalar_of(editor, result.inputs[SCALE])
    bounds = [
        scalar_of(editor, clip.inputs[place]) if clip.input(place) else default
        for place, default in ((1, -math.inf), (2, math.inf))
    ]
    if not scale or None in bounds:
        return False
    low, high = (
        float(bound) if math.isinf(bound) else round(float(bound) / float(scale)) + int(zero)
        for bound in bounds
    )
    return low <= limits[0] and high >= limits[1]


def _all_dequantized(group: Group, *, results: bool = True) -> bool:
    operands = len([name for name in group.node.inputs if name])
    return len(group.sources) == operands and (bool(group.results) or not results)


def _types(editor: Editor, group: Group) -> list[str]:
    return [quantized_type(editor, node) for node in (*group.sources, *group.results)]


def _replace_group(
    editor: Editor, group: Group, op: str, domain: str, inputs: list[str], outputs: list[str], **extra: Any
) -> bool:
    """Put an integer operator in the group's place; return True."""
    node = group.node
    attributes = {**node.attributes, **extra}
    editor.add(node.name, op, inputs, outputs, attributes, domain, node.provider)
    for gone in (*group.sources, node, group.clip, *group.results):
        if gone is not None and gone.index in editor.graph.nodes:
            editor.remove(gone)
    return True


def _operands(editor: Editor, node: Node) -> list[str]:
    """Return a DQ's or Q's data, scale and zero point; one of ONNX Runtime's own where it has none."""
    if has_zero_point(node):
        return list(node.inputs[:3])
    kind = quantized_type(editor, node) if dequantizes(node) else "uint8"
    name = f"init_optional_zero_point_{'int8' if kind == 'int8' else 'uint8'}"
    if name not in editor.graph.initializers:
        editor.graph.new_constant(name, np.array(0, np.int8 if kind == "int8" else np.uint8))
    return [*node.inputs[:2], name]


def _drop(editor: Editor, group: Group, *, wide: bool, narrow: bool) -> bool:
    """DQ and Q go; the operator itself works on integers."""
    if group.clip is not None or len(group.sources) != 1 or len(group.results) != 1:
        return False
    source, result, node = group.sources[0], group.result, group.node
    kinds = set(_types(editor, group))
    if len(kinds) != 1 or (not wide and kinds & _WIDE) or (not narrow and kinds & _NARROW):
        return False
    if not is_pair(editor, result, source):
        return False
    output = result.outputs[0]
    editor.set_input(node, node.inputs.index(source.outputs[0]), source.inputs[0])
    editor.remove(source)
    editor.remove(result)
    editor.take_output(node, 0, output)
    return True


def _drop_around_data_movement(editor: Editor, group: Group) -> bool:
    return _drop(editor, group, wide=True, narrow=False)


def _resampling(editor: Editor, group: Group) -> bool:
    return _drop(editor, group, wide=False, narrow=False)


def _choosing(editor: Editor, group: Group) -> bool:
    """Drop around MaxPool and min/max reductions, whose scale must be positive."""
    if group.node.op == "MaxPool" and since_version("MaxPool", editor.graph.opset) != 12:
        return False
    scale = scalar_of(editor, group.result.inputs[SCALE]) if group.results else None
    return scale is not None and float(scale) > 0 and _drop(editor, group, wide=False, narrow=True)


def _position(editor: Editor, group: Group) -> bool:
    """Drop around ArgMax: integers have the order of the values they represent."""
    if group.clip is not None or len(group.sources) != 1:
        return False
    source = group.sources[0]
    kind = quantized_type(editor, source)
    if kind in _WIDE | _NARROW or not has_zero_point(source) or not constant_scalars(editor, source):
        return False
    editor.set_input(group.node, group.node.inputs.index(source.outputs[0]), source.inputs[0])
    editor.remove(source)
    return True


def _split(editor: Editor, group: Group) -> bool:
    """Split the quantized tensor itself, where results have the scale and zero point of the source."""
    if group.clip is not None or len(group.sources) != 1 or not group.results:
        return False
    source, node = group.sources[0], group.node
    kinds = set(_types(editor, group))
    if len(kinds) != 1 or kinds & _NARROW:
        return False
    if not all(is_pair(editor, result, source) for result in group.results):
        return False
    by_output = {result.inputs[0]: result.outputs[0] for result in group.results}
    outputs = [by_output[name] for name in node.outputs if name]
    return _replace_group(editor, group, "Split", "", [source.inputs[0], *node.inputs[1:]], outputs)


def _unary(editor: Editor, group: Group) -> bool:
    kinds = set(_types(editor, group))
    if len(group.sources) != 1 or len(group.results) != 1 or len(kinds) != 1 or kinds & (_WIDE | _NARROW):
        return False
    inputs = [*_operands(editor, group.sources[0]), *_operands(editor, group.result)[1:]]
    extra = {"opset": since_version("Softmax", editor.graph.opset)} if group.node.op == "Softmax" else {}
    return _replace_group(
        editor, group, f"QLinear{group.node.op}", MICROSOFT, inputs, list(group.result.outputs), **extra
    )


def _binary(editor: Editor, group: Group) -> bool:
    kinds = set(_types(editor, group))
    if len(group.sources) != 2 or len(group.results) != 1 or len(kinds) != 1 or kinds & (_WIDE | _NARROW):
        return False
    inputs = [name for source in group.sources for name in _operands(editor, source)]
    inputs += _operands(editor, group.result)[1:]
    return _replace_group(
        editor, group, f"QLinear{group.node.op}", MICROSOFT, inputs, list(group.result.outputs)
    )


def _concat(editor: Editor, group: Group) -> bool:
    kinds = set(_types(editor, group))
    if not _all_dequantized(group) or len(kinds) != 1 or kinds & (_WIDE | _NARROW):
        return False
    inputs = _operands(editor, group.result)[1:]
    inputs += [name for source in group.sources for name in _operands(editor, source)]
    return _replace_group(editor, group, "QLinearConcat", MICROSOFT, inputs, list(group.result.outputs))


def _where(editor: Editor, group: Group) -> bool:
    kinds = set(_types(editor, group))
    if len(group.sources) != 2 or len(group.results) != 1 or len(kinds) != 1 or kinds & (_WIDE | _NARROW):
        return False
    if dequantizes(editor.maker.get(group.node.inputs[0])):
        return False
    inputs = [group.node.inputs[0]]
    inputs += [name for source in group.sources for name in _operands(editor, source)]
    inputs += _operands(editor, group.result)[1:]
    return _replace_group(editor, group, "QLinearWhere", MICROSOFT, inputs, list(group.result.outputs))


def _conv(editor: Editor, group: Group) -> bool:
    """Replace the group by QLinearConv; a bias must be int32."""
    if not _all_dequantized(group):
        return False
    data, weights, result = (quantized_type(editor, node) for node in (*group.sources[:2], group.result))
    if data != result or data == "int8" or {data, weights} & _WIDE or weights in _NARROW:
        return False
    bias = []
    if len(group.sources) == 3:
        if quantized_type(editor, group.sources[2]) != "int32":
            return False
        bias = [group.sources[2].inputs[0]]
    inputs = [name for source in group.sources[:2] for name in _operands(editor, source)]
    inputs += [*_operands(editor, group.result)[1:], *bias]
    return _replace_group(editor, group, "QLinearConv", "", inputs, list(group.result.outputs))


def _matmul(editor: Editor, group: Group) -> bool:
    """Replace the group by QLinearMatMul, or by MatMulIntegerToFloat where the result stays float."""
    if len(group.sources) != 2:
        return False
    data, weights = (quantized_type(editor, node) for node in group.sources)
    if data == "int8" or {data, weights} & (_WIDE | _NARROW):
        return False
    left, right = (_operands(editor, source) for source in group.sources)
    if group.results:
        if quantized_type(editor, group.result) != data:
            return False
        inputs = [*left, *right, *_operands(editor, group.result)[1:]]
        return _replace_group(editor, group, "QLinearMatMul", "", inputs, list(group.result.outputs))
    inputs = [name for pair in zip(left, right, strict=True) for name in pair]
    return _replace_group(editor, group, "MatMulIntegerToFloat", MICROSOFT, inputs, list(group.node.outputs))


def _gemm(editor: Editor, group: Group) -> bool:
    """Replace the group by QGemm; a bias must be int32 and beta one."""
    if not _all_dequantized(group, results=False) or len(group.sources) < 2:
        return False
    data, weights = (quantized_type(editor, node) for node in group.sources[:2])
    if (data == "int8" and weights != data) or {data, weights} & (_WIDE | _NARROW):
        return False
    if group.results and quantized_type(editor, group.result) != data:
        return False
    inputs = [name for source in group.sources[:2] for name in _operands(editor, source)]
    if len(group.sources) == 3:
        if float(group.node.attributes.get("beta", 1.0)) != 1.0:
            return False
        if quantized_type(editor, group.sources[2]) != "int32":
            return False
        inputs.append(group.sources[2].inputs[0])
    elif group.results:
        inputs.append("")
    outputs = list(group.node.outputs)
    if group.results:
        inputs += _operands(editor, group.result)[1:]
        outputs = list(group.result.outputs)
    kept = {key: item for key, item in group.node.attributes.items() if key != "beta"}
    group.node.attributes = kept
    return _replace_group(editor, group, "QGemm", MICROSOFT, inputs, outputs)


def _by_blocks(editor: Editor, node: Node) -> None:
    """Weights of 4 bits, dequantized in blocks along the first axis, are laid out for MatMulNBits."""
    source = editor.maker.get(node.inputs[1])
    if not dequantizes(source) or only_reader(editor, source) is not node:
        return
    if dequantizes(editor.maker.get(node.inputs[0])) or any(
        quantizes(edge.node) for edge in edges(editor, node.outputs[0])
    ):
        return
    weights, scale = (editor.value(name) for name in source.inputs[:2])
    block = int(source.attributes.get("block_size", 0))
    if weights.dtype not in _NARROW or scale.dtype not in ("float32", "float16"):
        return
    if int(source.attributes.get("axis", 1)) != 0 or block < _LEAST_BLOCK or block & (block - 1):
        return
    constants = [name for name in source.inputs if name]
    if not all(editor.is_constant(name) for name in constants):
        return
    shapes = [editor.value(name).shape or () for name in constants]
    if any(len(shape) != 2 for shape in shapes):
        return
    rows, columns = shapes[0]
    blocks = -(-rows // block)
    if any(shape != (blocks, columns) for shape in shapes[1:]):
        return
    inputs = [
        node.inputs[0],
        _laid_out(editor, weights.name, "uint8", (columns, blocks, block // 2)),
        _laid_out(editor, scale.name, scale.dtype, (columns * blocks,)),
    ]
    if has_zero_point(source) or weights.dtype == "uint4":
        inputs.append(_laid_out(editor, constants[-1], "uint8", (columns * -(-blocks // 2),)))
    attributes = {"K": rows, "N": columns, "accuracy_level": _ACCURACY, "bits": 4, "block_size": block}
    editor.add(node.name, "MatMulNBits", inputs, list(node.outputs), attributes, MICROSOFT, node.provider)
    editor.remove(source)
    editor.remove(node)


def _laid_out(editor: Editor, like: str, dtype: str, shape: tuple[int, ...]) -> str:
    name = editor.new_value(like, shape, shape, f"{like}_T")
    editor.value(name).dtype = dtype
    editor.graph.initializers[name] = None
    return name


_MOVEMENT = "Expand Flatten Gather GatherElements Reshape Slice Squeeze Tile Transpose Unsqueeze"
# Operator -> a function that makes its group an integer operator; whether it did.
ACTIONS: dict[str, Callable[[Editor, Group], bool]] = {
    "Split": _split,
    **dict.fromkeys(("DepthToSpace", "Resize"), _resampling),
    **dict.fromkeys(("MaxPool", "ReduceMax", "ReduceMin"), _choosing),
    **dict.fromkeys(_MOVEMENT.split(), _drop_around_data_movement),
    "ArgMax": _position,
    **dict.fromkeys(("AveragePool", "LeakyRelu", "GlobalAveragePool", "Sigmoid", "Softmax"), _unary),
    **dict.fromkeys(("Add", "Mul"), _binary),
    "Concat": _concat,
    "Conv": _conv,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Where": _where,
}
