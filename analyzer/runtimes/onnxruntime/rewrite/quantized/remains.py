"""Cleanup around QuantizeLinear and DequantizeLinear on the CPU provider (level extended).

1. A Relu whose result only a Q reads goes if the Q's zero point is its type's least value: the Q cuts off the
   same. A Clip goes if the Q's range lies within it.
2. After all fusions, a DQ whose readers are all Qs of its own parameters goes with them.

Source: `core/optimizer/qdq_transformer/{relu_quantizelinear,clip_quantizelinear,qdq_final_cleanup}.cc`.
"""

from __future__ import annotations

import math

import numpy as np

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.cleanup import bypass
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.quantized.pairs import (
    DEQUANTIZES,
    SCALE,
    ZERO_POINT,
    edges,
    has_zero_point,
    is_pair,
    only_reader,
    quantizes,
    scalar_of,
)

_LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
_EPSILON = float(np.finfo(np.float32).eps)


def drop_activations(editor: Editor) -> None:
    """Relus and Clips that the Q behind them makes redundant."""
    for node in editor.ordered("Relu", "Clip"):
        if node.provider != "cpu" or node.outputs[0] in editor.final:
            continue
        after = only_reader(editor, node)
        if not quantizes(after) or after.provider != "cpu" or not has_zero_point(after):
            continue
        if _relu(editor, after) if node.op == "Relu" else _clip(editor, node, after):
            bypass(editor, node)
    editor.rename_inside()


def _relu(editor: Editor, after: Node) -> bool:
    """Return whether the zero point is the least value of the type (8 or 16 bits; others pass)."""
    zero = scalar_of(editor, after.inputs[ZERO_POINT])
    limits = _LIMITS.get(editor.value(after.inputs[ZERO_POINT]).dtype)
    return zero is not None and (limits is None or int(zero) == limits[0])


def _clip(editor: Editor, node: Node, after: Node) -> bool:
    """Return whether the Q's range lies within the Clip's constant bounds."""
    scale, zero = (scalar_of(editor, after.inputs[place]) for place in (SCALE, ZERO_POINT))
    limits = _LIMITS.get(editor.value(after.inputs[ZERO_POINT]).dtype)
    if scale is None or zero is None or limits is None or editor.value(after.inputs[SCALE]).shape != ():
        return False
    low, high = (float(scale) * (limit - int(zero)) for limit in limits)
    least, most = _bound(editor, node, 1, "min", -math.inf), _bound(editor, node, 2, "max", math.inf)
    return least is not None and most is not None and least - low <= _EPSILON and high - most <= _EPSILON


def _bound(editor: Editor, node: Node, place: int, attribute: str, default: float) -> float | None:
    if attribute in node.attributes:
        return float(node.attributes[attribute])
    if len(node.inputs) <= place or not node.inputs[place]:
        return default
    value = scalar_of(editor, node.inputs[place])
    return None if value is None else float(value)


def clean_up(editor: Editor) -> None:
    """Remove a DQ and the Qs that undo it, if each Q has one reader or is an unread result."""
    for node in editor.ordered(*DEQUANTIZES):
        if node.index not in editor.graph.nodes:
            continue
        if node.outputs[0] in editor.final:
            continue
        ends = [edge.node for edge in edges(editor, node.outputs[0])]
        if not ends or not all(quantizes(end) and is_pair(editor, node, end) for end in ends):
            continue
        results = [edges(editor, end.outputs[0]) for end in ends if end is not None]
        if any(len(uses) != 1 for uses in results):
            continue
        source = node.inputs[0]
        for end in ends:
            if end is None:
                continue
            output = end.outputs[0]
            maker = editor.maker.get(source)
            if output not in editor.final:
                editor.replace_uses(output, source)
                editor.remove(end)
            elif maker is not None and len(ends) == 1 and len(edges(editor, source)) == 1:
                editor.remove(end)
                editor.take_output(maker, maker.outputs.index(source), output)
            else:
                editor.remove(end)
                editor.add(
                    "QDQFinalCleanupTransformer", "Identity", [source], [output], provider=end.provider
                )
        editor.remove(node)
