"""Quantization spread through the graph, before nodes are assigned to providers (level basic).

1. **Double pairs**: Q, DQ, Q, DQ in a chain become the first Q and the last DQ, with a scale and zero point
   that hold what both ranges have in common.
2. **Propagation**: before a Q and behind a DQ, a pair of the same parameters is put around each operator that
   only moves elements (MaxPool, Reshape, Transpose, Squeeze, Unsqueeze, Slice), so that it can run on
   integers.
3. **Weights and biases** that are still float behind a dequantized operand of Conv, ConvTranspose or Gemm,
   whose result is quantized, are quantized too, to int8 and int32.
4. **One DQ a reader**: a DQ that several operands read is repeated for each but the first.
5. **Where** with one dequantized operand and one constant scalar gets a DQ of one element for the other.

Source: `core/optimizer/double_qdq_pairs_remover.cc`,
`qdq_transformer/{qdq_propagation,weight_bias_quantization,
ensure_unique_dq_for_node_unit,where_dummy_dq}.cc`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.kernels.registered import since_version
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.quantized.pairs import (
    DEQUANTIZE,
    DEQUANTIZES,
    QUANTIZE,
    QUANTIZES,
    SCALE,
    ZERO_POINT,
    Edge,
    constant_scalars,
    dequantizes,
    edges,
    has_zero_point,
    is_pair,
    is_scalar,
    only_reader,
    quantized_type,
    quantizes,
    read_inside,
    reroute,
    scalar_of,
)

_LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
# Operators that only move elements, and the versions in which quantization is carried past them.
_MOVES: dict[str, tuple[int, ...]] = {
    "MaxPool": (12,),
    "Reshape": (5, 13, 14, 19, 21),
    "Transpose": (1, 13, 21),
    "Squeeze": (1, 11, 13, 21),
    "Unsqueeze": (1, 11, 13, 21),
    "Slice": (1, 10, 11, 13),
}
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm")
_INT32 = 6  # TensorProto.DataType


def spread(editor: Editor) -> None:
    """Apply the quantization steps at the end of each round of level basic."""
    propagate(editor)
    quantize_weights(editor)
    one_reader_each(editor)
    dequantize_scalars(editor)


def remove_double_pairs(editor: Editor) -> None:
    """Q1, DQ1, Q2, DQ2 in a chain become Q1 and DQ2."""
    for first in editor.ordered(*QUANTIZES):
        if first.index in editor.graph.nodes:
            _remove_double(editor, first)


def _remove_double(editor: Editor, first: Node) -> None:
    """Remove a second quantization right behind a first, and give the outer two their common range."""
    back = only_reader(editor, first)
    if not dequantizes(back) or not is_pair(editor, first, back):
        return
    again = only_reader(editor, back)
    if not quantizes(again) or again.outputs[0] in editor.final:
        return
    if quantized_type(editor, first) != quantized_type(editor, again) or not has_zero_point(again):
        return
    ends = [edge.node for edge in edges(editor, again.outputs[0])]
    if not ends or not all(dequantizes(end) and is_pair(editor, again, end) for end in ends):
        return
    common = _common_range(editor, back, again)
    if common is None:
        return
    outer = [first, *(end for end in ends if end is not None)]
    for node in outer if common else ():
        for place, data in zip((SCALE, ZERO_POINT), common, strict=True):
            editor.set_input(
                node, place, editor.graph.new_constant(f"DoubleQDQRemoved_{node.inputs[place]}", data)
            )
    for end in outer[1:]:
        editor.set_input(end, 0, first.outputs[0])
    editor.remove(again)
    editor.remove(back)


def _common_range(editor: Editor, one: Node, other: Node) -> tuple[()] | tuple[Any, Any] | None:
    """Return scale and zero point of the common range; () if equal, None if unknown."""
    names = [(node.inputs[SCALE], node.inputs[ZERO_POINT]) for node in (one, other)]
    if names[0] == names[1]:
        return ()
    dtype = quantized_type(editor, one)
    if dtype not in _LIMITS or any(editor.value(scale).dtype != "float32" for scale, _ in names):
        return None
    pairs = [(scalar_of(editor, scale), scalar_of(editor, zero)) for scale, zero in names]
    if any(item is None for pair in pairs for item in pair):
        return None
    if pairs[0] == pairs[1]:
        return ()
    low, high = _LIMITS[dtype]
    least = max((low - int(zero)) * float(scale) for scale, zero in pairs)
    most = min((high - int(zero)) * float(scale) for scale, zero in pairs)
    scale = (most - least) / (high - low)
    zero = 0 if not scale else min(max(round(low - least / scale), low), high)
    return np.array([scale], np.float32), np.array([zero], dtype)


def propagate(editor: Editor) -> None:
    """Insert pairs around nodes that only move elements: before each Q, then after each DQ."""
    order = editor.ordered(*QUANTIZES, *DEQUANTIZES)
    for node in order:
        if quantizes(node) and constant_scalars(editor, node):
            _backward(editor, node)
    for node in order:
        if dequantizes(node) and constant_scalars(editor, node):
            _forward(editor, node)


def _moves(editor: Editor, node: Node | None) -> bool:
    if node is None or node.domain or node.op not in _MOVES:
        return False
    return since_version(node.op, editor.graph.opset) in _MOVES[node.op]


def _edge_before(editor: Editor, node: Node) -> Edge | None:
    """Return the edge to the first operand, if what makes it has no other reader."""
    name = node.inputs[0]
    edge = Edge(name, node)
    if name not in editor.maker:
        return edge if name else None
    return edge if name not in editor.final and len(edges(editor, name)) == 1 else None


def _backward(editor: Editor, node: Node) -> None:
    """Move a QuantizeLinear up past nodes that only move data."""
    edge = _edge_before(editor, node)
    while edge is not None:
        maker = editor.maker.get(edge.value)
        if maker is None or not _moves(editor, maker):
            return
        edge = _edge_before(editor, maker)
        if edge is None or dequantizes(editor.maker.get(edge.value)):
            return
        value = edge.value
        _insert(editor, [edge], node)
        edge = Edge(value, maker)  # the walk goes on from where the pair now stands


def _forward(editor: Editor, node: Node) -> None:
    """Move a DequantizeLinear down past nodes that only move data."""
    uses = edges(editor, node.outputs[0])
    if len(uses) != 1 or uses[0].node is None:
        return
    groups: deque[list[Edge]] = deque([_edges_after(editor, uses[0])])
    while groups:
        group = groups.popleft()
        if not group or any(quantizes(edge.node) for edge in group):
            continue
        _insert(editor, group, node)
        groups.extend(_edges_after(editor, edge) for edge in group)


def _edges_after(editor: Editor, edge: Edge) -> list[Edge]:
    """Return the edges behind the node at the edge's end, if it only moves elements."""
    if edge.node is None or not _moves(editor, edge.node):
        return []
    return edges(editor, edge.node.outputs[0])


def _insert(editor: Editor, group: list[Edge], like: Node) -> None:
    """Insert a Q of the node's parameters behind the value, and a DQ at each edge."""
    name = group[0].value
    value = editor.value(name)
    parameters = like.inputs[1:]
    kept = {key: item for key, item in like.attributes.items() if key in ("axis", "block_size")}
    source = name
    maker = editor.maker.get(name)
    if maker is not None and any(edge.node is None for edge in group):
        source = editor.new_value(name, value.shape, value.symbols, f"{name}_pre_q")
        editor.take_output(maker, maker.outputs.index(name), source)
    integers = editor.new_value(name, value.shape, value.symbols, f"{name}_q_to_dq")
    editor.value(integers).dtype = quantized_type(editor, like)
    editor.add(f"{name}_q", QUANTIZE, [source, *parameters], [integers], dict(kept), like.domain)
    for number, edge in enumerate(group):
        suffix = str(number) if number else ""
        result = (
            name
            if edge.node is None
            else editor.new_value(name, value.shape, value.symbols, f"{name}_post_dq{suffix}")
        )
        editor.add(
            f"{name}_dq{suffix}", DEQUANTIZE, [integers, *parameters], [result], dict(kept), like.domain
        )
        reroute(editor, edge, result)


def quantize_weights(editor: Editor) -> None:
    """Float weights and biases behind a dequantized operand, where the result is quantized."""
    for node in editor.ordered(*_WEIGHTED):
        if len(node.inputs) > 1:
            _quantize_weights(editor, node)


def _quantize_weights(editor: Editor, node: Node) -> None:
    """Put a quantization before constant weights and bias of a node whose input is dequantized."""
    source, maker = editor.maker.get(node.inputs[0]), editor.maker.get(node.inputs[1])
    if not dequantizes(source) or not is_scalar(editor, source.inputs[SCALE]) or not _ends_in_q(editor, node):
        return
    weights = editor.value(node.inputs[1])
    quantized = maker if dequantizes(maker) else None
    if quantized is None and not (editor.is_constant(weights.name) and weights.dtype == "float32"):
        return
    bias = node.input(2)
    shape = editor.value(bias).shape if bias else None
    if bias and (not editor.is_constant(bias) or shape is None or len(shape) != 1):
        return
    if quantized is not None and not bias:
        return
    each = quantized is not None and not is_scalar(editor, quantized.inputs[SCALE])
    if quantized is not None and each and not _by_filter(editor, node, quantized, shape):
        return
    if quantized is None:
        scale = _quantize_weight(editor, node)
    else:
        scale = quantized.inputs[SCALE]
    if bias:
        _quantize_bias(editor, node, bias, source.inputs[SCALE], scale, each=each)


def _ends_in_q(editor: Editor, node: Node) -> bool:
    """Return whether the only path from the result leads to a Q, through Relu or Clip at most."""
    while len([name for name in node.outputs if name]) == 1:
        users = editor.users(node.outputs[0])
        if len(users) != 1 or node.outputs[0] in editor.final:
            return False
        if quantizes(users[0]):
            return True
        if users[0].operator not in ("Relu", "Clip"):
            return False
        node = users[0]
    return False


def _by_filter(editor: Editor, node: Node, quantized: Node, bias: tuple[int, ...] | None) -> bool:
    """Return whether the weights' scales are one a filter, on the axis the operator has its filters on."""
    if editor.value(quantized.inputs[SCALE]).shape != bias or quantized.attributes.get("block_size", 0):
        return False
    rank = len(editor.value(quantized.inputs[0]).shape or (0,))
    expected = 0 if node.op != "Gemm" or node.attributes.get("transB", 0) else 1
    return int(quantized.attributes.get("axis", 1)) % rank == expected


def _quantize_weight(editor: Editor, node: Node) -> str:
    """Q and DQ before the weights. Returns the scale's name."""
    name = node.inputs[1]
    value = editor.value(name)
    scale = editor.graph.new_constant(f"{node.name}_weight_scale", np.array(1.0, np.float32))
    zero = editor.graph.new_constant(f"{node.name}_weight_zp", np.array(0, np.int8))
    integers = _new(editor, name, f"{node.name}_weight_q", "int8")
    result = editor.new_value(name, value.shape, value.symbols, f"{node.name}_weight_dq")
    editor.add(f"{node.name}_weight_q", QUANTIZE, [name, scale, zero], [integers])
    editor.add(f"{node.name}_weight_dq", DEQUANTIZE, [integers, scale, zero], [result])
    editor.set_input(node, 1, result)
    return scale


def _quantize_bias(editor: Editor, node: Node, bias: str, left: str, right: str, *, each: bool) -> None:
    """Mul, Div, Round and Cast make it int32, which folding computes; a DQ reads that."""
    scale = _new(editor, right, f"{node.name}_bias_scale", "float32")
    divided, rounded = (_new(editor, bias, f"{node.name}_bias_div{end}", "float32") for end in ("", "_round"))
    integers = _new(editor, bias, f"{node.name}_bias_int32", "int32")
    result = _new(editor, bias, f"{node.name}_bias_dq", "float32")
    editor.add(f"{node.name}_scale", "Mul", [left, right], [scale])
    editor.add(f"{node.name}_bias_div", "Div", [bias, scale], [divided])
    editor.add(f"{node.name}_bias_div_round", "Round", [divided], [rounded])
    editor.add(f"{node.name}_bias_int32", "Cast", [rounded], [integers], {"to": _INT32})
    attributes = {"axis": 0} if each else {}
    editor.add(f"{node.name}_bias_dq", DEQUANTIZE, [integers, scale], [result], attributes)
    editor.set_input(node, 2, result)


def _new(editor: Editor, like: str, stem: str, dtype: str) -> str:
    value = editor.value(like)
    name = editor.new_value(like, value.shape, value.symbols, stem)
    editor.value(name).dtype = dtype
    return name


def one_reader_each(editor: Editor) -> None:
    """Repeat a DQ with several readers for each but the first; for each, if a subgraph or output reads it."""
    for node in editor.ordered(*DEQUANTIZES):
        uses = edges(editor, node.outputs[0])
        readers = [edge for edge in uses if edge.node is not None]
        kept = len(readers) != len(uses) or read_inside(editor, node.outputs[0])
        if len(readers) + kept < 2:
            continue
        for edge in readers if kept else readers[1:]:
            value = editor.value(edge.value)
            # Its shape is inferred from the integers: the names the file gives the original's dimensions are
            # not its own.
            symbols = editor.value(node.inputs[0]).symbols
            name = editor.new_value(edge.value, value.shape, symbols, f"{edge.value}/duplicated")
            like_node = dict(node.attributes), node.domain, node.provider
            editor.add(f"{node.name}/duplicated", node.op, list(node.inputs), [name], *like_node)
            reroute(editor, edge, name)


def dequantize_scalars(editor: Editor) -> None:
    """Make a constant scalar of a Where a DQ result if its other operand is dequantized."""
    for node in editor.ordered("Where"):
        if len(node.inputs) != 3:
            continue
        makers = [editor.maker.get(name) for name in node.inputs[1:]]
        for place, maker, other in ((1, makers[0], makers[1]), (2, makers[1], makers[0])):
            name = node.inputs[place]
            if maker is not None or not dequantizes(other) or not has_zero_point(other):
                continue
            value = editor.value(name)
            if not editor.is_constant(name) or value.shape != () or value.dtype != "float32":
                continue
            dtype = editor.value(other.inputs[ZERO_POINT]).dtype
            if dtype not in _LIMITS or editor.value(other.inputs[SCALE]).dtype != value.dtype:
                continue
            data = editor.graph.constant(name)
            scale = np.array(0.0 if data is None else data.reshape(-1)[0], np.float32)
            parts = (("data", np.array(1, dtype)), ("scale", scale), ("zp", np.array(0, dtype)))
            inputs = [editor.graph.new_constant(f"{node.name}_dummy_{end}", item) for end, item in parts]
            result = editor.new_value(name, (), (), f"{node.name}_dummy_dq")
            editor.add(f"{node.name}_dummy_dq", DEQUANTIZE, inputs, [result], domain=other.domain)
            editor.set_input(node, place, result)
