"""Pairs of elementwise operators of which one goes."""

from __future__ import annotations

import numpy as np

from analyzer.releases import Span
from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import fusion
from analyzer.runtimes.onnxruntime.rewrite.fusions.matching import is_op, other_operand, scalar

_RECIPROCAL_TYPES = frozenset({"float32", "float16", "float64", "int32", "int64"})
_CLIPPED_TYPES = frozenset({"float32", "float16", "bfloat16"})
_TURNS_WHERE = Span(since=(1, 25))
_CLIP_INPUTS = 11  # operator set from which on Clip's bounds are inputs


@fusion("DivMulFusion", "div_mul_fusion.cc", begins=("Div",), takes=("Mul",), makes=("Div",))
def div_mul(editor: Editor, node: Node) -> None:
    """1 / x * y: y / x."""
    product = editor.only_user(node)
    one = editor.value(node.inputs[0])
    if not is_op(product, "Mul") or scalar(editor, one.name) != 1.0 or one.dtype not in _RECIPROCAL_TYPES:
        return
    other, result = other_operand(product, node.outputs[0]), product.outputs[0]
    editor.set_input(node, 0, other)
    editor.remove(product)
    editor.take_output(node, 0, result)


@fusion("NotWhereFusion", "not_where_fusion.cc", begins=("Not",), takes=("Where",), makes=("Where",))
def not_where(editor: Editor, node: Node) -> None:
    """Where of a Not that only conditions of Wheres read: the other way round, without the Not. Until 1.24 it
    stays (seen in the releases)."""
    result = node.outputs[0]
    readers = editor.users(result)
    if not readers or result in editor.final or editor.graph.release not in _TURNS_WHERE:
        return
    if not all(is_op(reader, "Where") and reader.inputs.index(result) == 0 for reader in readers):
        return
    if editor.edge_count(result) != len(readers):
        return
    for reader in readers:
        first, second = reader.inputs[1:3]
        editor.set_input(reader, 0, node.inputs[0])
        editor.set_input(reader, 1, second)
        editor.set_input(reader, 2, first)
    editor.remove(node)


@fusion("FuseReluClip", "relu_clip_fusion.cc", begins=("Relu",), takes=("Clip",), makes=("Clip",))
def relu_clip(editor: Editor, node: Node) -> None:
    """Relu and a Clip whose lower bound is known, or not given: Clip from 0 at least."""
    clip = editor.only_user(node)
    if not is_op(clip, "Clip") or clip.inputs[0] != node.outputs[0]:
        return
    if editor.graph.opset < _CLIP_INPUTS:
        clip.attributes["min"] = max(0.0, float(clip.attributes.get("min", 0.0)))
    else:
        bound = clip.input(1)
        least = scalar(editor, bound) if bound else None
        kind = editor.value(node.inputs[0]).dtype
        if (bound and least is None) or kind not in _CLIPPED_TYPES:
            return
        if least is None or least < 0:
            zero = editor.graph.new_constant(
                f"FuseReluClip_{node.name}_min_zero_constant", np.zeros((), np.float32)
            )
            editor.value(zero).dtype = kind
            editor.set_input(clip, 1, zero)
    editor.set_input(clip, 0, node.inputs[0])
    editor.remove(node)
