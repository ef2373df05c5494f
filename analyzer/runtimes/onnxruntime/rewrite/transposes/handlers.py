"""How a Transpose before an operator is pushed behind it, operator by operator.

A handler transposes the node's inputs by the inverse permutation, its outputs by the permutation, and lets
axis attributes and operands follow; it answers whether it could. Operators not in `HANDLERS` stop a
Transpose.

Source: `core/optimizer/transpose_optimization/onnx_transpose_optimization.cc` (`handler_map`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.transposes.permutation import Perm, inverse_of, without
from analyzer.runtimes.onnxruntime.rewrite.transposes.pushing import (
    BROADCAST,
    inputs_of,
    push,
    transpose_input,
)
from analyzer.runtimes.onnxruntime.rewrite.transposes.reshaping import reshape

Handler = Callable[[Editor, Node, Perm], bool]

_UNARY_NAMES = """
    Cast Exp Identity LeakyRelu Log Reciprocal Relu Sigmoid Sqrt Tanh Abs Not Ceil Floor Neg Erf HardSigmoid
    Round IsInf IsNaN Selu Shrink Sign Softplus Softsign ThresholdedRelu Celu HardSwish Sin Cos Tan Sinh Cosh
    Asin Acos Atan Asinh Acosh Atanh Clip CastLike
"""
_UNARY = frozenset(_UNARY_NAMES.split())
_REDUCE = frozenset(
    {
        f"Reduce{kind}"
        for kind in ("LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare", "L1", "L2")
    }
)
_SOFTMAX = frozenset({"Softmax", "Hardmax", "LogSoftmax"})


def _broadcast(editor: Editor, node: Node, perm: Perm) -> bool:
    """Push through an elementwise operator whose operands broadcast."""
    for place in inputs_of(editor, node):
        symbols = editor.value(node.inputs[place]).symbols
        if symbols is None or len(symbols) > len(perm):
            return False
    results = [editor.value(name) for name in node.outputs if name]
    if any(
        len(sizes) != len(perm)
        for value in results
        for sizes in (value.shape, value.symbols)
        if sizes is not None
    ):
        return False
    for place in inputs_of(editor, node):
        name = node.inputs[place]
        value = editor.value(name)
        missing = len(perm) - len(value.symbols or ())
        if missing:
            ones = (1,) * missing
            new = editor.new_value(
                name, None if value.shape is None else ones + value.shape, ones + (value.symbols or ())
            )
            data = editor.graph.constant(name)
            if editor.is_constant(name):
                editor.value(new).data = None if data is None else data.reshape(ones + data.shape)
                editor.graph.initializers[new] = None
            else:
                axes = editor.graph.new_constant("axes", np.arange(missing, dtype=np.int64))
                editor.add("Unsqueeze", "Unsqueeze", [name, axes], [new])
            editor.set_input(node, place, new)
    push(editor, node, perm)
    return True


def _with_axis(editor: Editor, node: Node, perm: Perm, default: int | None) -> bool:
    """Push through an operator with one axis, which is renumbered."""
    axis = _moved_axis(node, perm, default)
    if axis is None:
        return False
    push(editor, node, perm)
    node.attributes["axis"] = axis
    return True


def _moved_axis(node: Node, perm: Perm, default: int | None) -> int | None:
    """Return the node's axis before the Transpose; None if it has none or an invalid one."""
    axis = node.attributes.get("axis", default)
    return perm[axis] if axis is not None and -len(perm) <= axis < len(perm) else None


def _set_axes(editor: Editor, node: Node, place: int, axes: list[int]) -> None:
    if "axes" in node.attributes:
        node.attributes["axes"] = tuple(axes)
    else:
        editor.set_input(node, place, editor.graph.new_constant("axes", np.array(axes, dtype=np.int64)))


def _reduce(editor: Editor, node: Node, perm: Perm) -> bool:
    """Push a transpose through a reduction, whose axes move with it."""
    keep = bool(node.attributes.get("keepdims", 1))
    axes = editor.graph.axes(node)
    if axes is None:
        if node.input(1):
            return False
        push(editor, node, perm, perm if keep else ())
        return True
    new = sorted(perm[axis] for axis in axes)
    _set_axes(editor, node, 1, new)
    push(editor, node, perm, perm if keep else without(perm, new))
    return True


def _squeeze(editor: Editor, node: Node, perm: Perm) -> bool:
    axes = editor.graph.axes(node)
    if axes is None:
        return False
    new = sorted(perm[axis] for axis in axes)
    _set_axes(editor, node, 1, new)
    push(editor, node, perm, without(perm, new))
    return True


def _unsqueeze(editor: Editor, node: Node, perm: Perm) -> bool:
    """Push a transpose through Unsqueeze: axes that it adds stay, the others are permuted around them."""
    axes = editor.graph.axes(node)
    if axes is None:
        return False
    rank = len(perm) + len(axes)
    added = sorted(axis % rank for axis in axes)
    old = [axis for axis in range(rank) if axis not in added]
    out = [0] * rank
    for axis in added:
        out[axis] = axis
    for place, axis in enumerate(perm):
        out[old[place]] = old[axis]
    push(editor, node, perm, tuple(out))
    return True


def _slice(editor: Editor, node: Node, perm: Perm) -> bool:
    """Push a transpose through Slice, whose axes move with it; from opset 10 on axes are an input."""
    if editor.graph.opset < 10:
        return False
    if node.input(3):
        axes = editor.graph.axes(node, 3)
        if axes is None:
            return False
        new = [perm[axis] for axis in axes]
    else:
        shape = editor.value(node.inputs[1]).shape
        if shape is None or len(shape) != 1:
            return False
        new = list(perm[: shape[0]])
    editor.set_input(node, 3, editor.graph.new_constant("axes", np.array(new, dtype=np.int64)))
    push(editor, node, perm)
    return True


def _permute_operand(editor: Editor, node: Node, place: int, perm: list[int]) -> None:
    """Reorder a 1-D operand (pads, repeats): by a new constant, or a Gather."""
    name = node.inputs[place]
    data = editor.graph.constant(name)
    if data is not None:
        editor.set_input(node, place, editor.graph.new_constant(name, data.reshape(-1)[perm]))
        return
    indices = editor.graph.new_constant("indices", np.array(perm, dtype=np.int64))
    value = editor.value(name)
    result = editor.new_value(name, value.shape, value.symbols)
    editor.add("Gather", "Gather", [name, indices], [result], {"axis": 0})
    editor.set_input(node, place, result)


def _pad(editor: Editor, node: Node, perm: Perm) -> bool:
    if editor.graph.opset < 11:
        return False
    inverse = inverse_of(perm)
    _permute_operand(editor, node, 1, [*inverse, *(axis + len(perm) for axis in inverse)])
    push(editor, node, perm)
    return True


def _tile(editor: Editor, node: Node, perm: Perm) -> bool:
    _permute_operand(editor, node, 1, list(inverse_of(perm)))
    push(editor, node, perm)
    return True


def _shape(editor: Editor, node: Node, perm: Perm) -> bool:
    """Read the sizes before the Transpose and permute them by a Gather."""
    start = int(node.attributes.pop("start", 0))
    end = node.attributes.pop("end", None)
    chosen = perm[start : None if end is None else int(end)]
    transpose_input(editor, node, 0, inverse_of(perm))
    indices = editor.graph.new_constant("indices", np.array(chosen, dtype=np.int64))
    gather = editor.add("Gather", "Gather", ["", indices], [""], {"axis": 0})
    new = editor.move_output(node, 0, gather, 0)
    editor.value(new).shape = editor.value(new).symbols = (len(perm),)
    editor.set_input(gather, 0, new)
    return True


def _arg(editor: Editor, node: Node, perm: Perm) -> bool:
    new = _moved_axis(node, perm, 0)
    if new is None:
        return False
    node.attributes["axis"] = new
    push(editor, node, perm, perm if node.attributes.get("keepdims", 1) else without(perm, [new]))
    return True


def _gather(editor: Editor, node: Node, perm: Perm) -> bool:
    """Gather by a scalar removes the axis, by a vector keeps it."""
    indices = editor.value(node.inputs[1]).symbols
    new = _moved_axis(node, perm, 0)
    if indices is None or len(indices) > 1 or new is None:
        return False
    node.attributes["axis"] = new
    push(editor, node, perm, perm if indices else without(perm, [new]))
    return True


def _unary(editor: Editor, node: Node, perm: Perm) -> bool:
    push(editor, node, perm)
    return True


def _softmax(editor: Editor, node: Node, perm: Perm) -> bool:
    """Push through a Softmax of one axis (operator set 13); older ones flatten later axes."""
    return _with_axis(editor, node, perm, -1) if editor.graph.opset >= 13 else False


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(BROADCAST, _broadcast),
    **dict.fromkeys(_REDUCE, _reduce),
    **dict.fromkeys(_SOFTMAX, _softmax),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Pad": _pad,
    "Tile": _tile,
    "Shape": _shape,
    "ArgMin": _arg,
    "ArgMax": _arg,
    "Gather": _gather,
    "Reshape": reshape,
    "Concat": lambda editor, node, perm: _with_axis(editor, node, perm, None),
    "Split": lambda editor, node, perm: _with_axis(editor, node, perm, 0),
}
