"""The transpose optimizer: Transposes are pushed down through other operators to meet and cancel.

1. Nodes are visited in execution order. If an input of a node comes from a Transpose and the node's operator has a
   handler, pushing is weighed: each input that would have to be transposed costs its rank (dimensions of 1 not
   counted), a constant 0, an input from the inverse Transpose minus its rank if all readers of that Transpose have
   handlers (0 otherwise). If the sum is negative and no output leads on to another Transpose, the largest output's
   rank is added. Negative: push.
2. Pushing transposes the inputs by the inverse permutation (constants in place, cancelling pairs vanish, composing
   pairs merge) and puts a Transpose behind each output; axis attributes follow the permutation.
3. Two Transposes in a row always merge. `Shape` of a Transpose becomes `Gather(Shape(x), perm)`.

Source: `core/optimizer/transpose_optimization/onnx_transpose_optimization.cc`.
Not modelled: QuantizeLinear/DequantizeLinear units, Reshapes that equal a Transpose with unknown dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from analyzer.runtimes.onnxruntime.graph import Node, Value
from analyzer.runtimes.onnxruntime.plan.order import topological
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor

Perm = tuple[int, ...]
_Size = TypeVar("_Size")

_UNARY = frozenset(
    {
        "Cast", "Exp", "Identity", "LeakyRelu", "Log", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Tanh", "Abs", "Not", "Ceil",
        "Floor", "Neg", "Erf", "HardSigmoid", "Round", "IsInf", "IsNaN", "Selu", "Shrink", "Sign", "Softplus", "Softsign",
        "ThresholdedRelu", "Celu", "HardSwish", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Asin", "Acos", "Atan", "Asinh",
        "Acosh", "Atanh", "Clip", "CastLike",
    }
)  # fmt: skip
_BROADCAST = frozenset(
    {
        "Add", "Max", "Min", "Mul", "Sub", "Div", "And", "Or", "Xor", "Mod", "PRelu", "BitShift", "Equal", "Greater",
        "Less", "GreaterOrEqual", "LessOrEqual", "Mean", "Sum", "Pow", "Where",
    }
)  # fmt: skip
_REDUCE = frozenset(
    {
        f"Reduce{kind}"
        for kind in ("LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare", "L1", "L2")
    }
)
_SOFTMAX = frozenset({"Softmax", "Hardmax", "LogSoftmax"})
_NO_OUTPUT = frozenset({"Shape", "Transpose", "Reshape"})
_OTHER = frozenset(
    {
        "Transpose",
        "Concat",
        "Split",
        "Shape",
        "Pad",
        "ArgMin",
        "ArgMax",
        "Squeeze",
        "Unsqueeze",
        "Slice",
        "Tile",
        "Reshape",
        "Gather",
    }
)
_HANDLED = _UNARY | _BROADCAST | _REDUCE | _SOFTMAX | _OTHER
_UNKNOWN_RANK = 5


def run(editor: Editor, *, layout: bool = False) -> None:
    """One pass over the graph (rule 1). `layout`: after a layout change its Transposes are pushed at any cost."""
    nodes = topological(editor.graph)
    leading: set[str] = set()
    for node in reversed(nodes):
        if _is_transpose(node):
            leading.add(node.inputs[0])
        elif any(name in leading for name in node.outputs) and _handled(node) and node.op not in _NO_OUTPUT:
            leading.update(node.inputs[place] for place in _inputs(editor, node))
    for node in nodes:
        if node.index not in editor.graph.nodes:
            continue
        for place, name in enumerate(node.inputs):
            maker = editor.maker.get(name)
            if maker is not None and _is_transpose(maker):
                perm = _perm(editor, maker)
                if perm is not None and _process(editor, maker, node, perm, place, leading, layout):
                    break


def _is_transpose(node: Node) -> bool:
    return node.op == "Transpose" and not node.domain


def _handled(node: Node) -> bool:
    return not node.domain and node.op in _HANDLED


def _perm(editor: Editor, node: Node) -> Perm | None:
    perm = node.attributes.get("perm")
    if perm is None:
        symbols = editor.value(node.inputs[0]).symbols
        return None if symbols is None else tuple(reversed(range(len(symbols))))
    return tuple(perm) if sorted(perm) == list(range(len(perm))) else None


def _invert(perm: Perm) -> Perm:
    result = [0] * len(perm)
    for place, axis in enumerate(perm):
        result[axis] = place
    return tuple(result)


def _inputs(editor: Editor, node: Node) -> list[int]:
    """Inputs that are transposed when a Transpose is pushed."""
    if node.op in _BROADCAST:
        return [i for i, name in enumerate(node.inputs) if editor.value(name).symbols != ()]
    if node.op == "Concat":
        return list(range(len(node.inputs)))
    return [0]


def _rank(value: Value) -> int:
    if value.symbols is None:
        return _UNKNOWN_RANK
    return sum(size != 1 for size in value.symbols)


def _cost(editor: Editor, node: Node, perm: Perm, leading: set[str]) -> int:
    """Rule 1."""
    cost = 0
    for place in _inputs(editor, node):
        name = node.inputs[place]
        if editor.is_constant(name):
            continue
        maker = editor.maker.get(name)
        if maker is not None and _is_transpose(maker) and (other := _perm(editor, maker)) is not None:
            removable = name not in editor.final and all(_handled(user) for user in editor.users(name))
            if other == perm and removable:
                cost -= _rank(editor.value(name))
            continue
        cost += _rank(editor.value(name))
    if cost < 0 and node.op not in _NO_OUTPUT and not any(name in leading for name in node.outputs):
        cost += max((_rank(editor.value(name)) for name in node.outputs if name), default=0)
    return cost


def _process(
    editor: Editor, transpose: Node, node: Node, perm: Perm, place: int, leading: set[str], layout: bool
) -> bool:
    if not _handled(node) or place not in _inputs(editor, node):
        return False
    forced = layout and node.op != "Concat" and perm in _layouts(len(perm))
    if not forced and not _is_transpose(node) and _cost(editor, node, perm, leading) >= 0:
        return False
    if _is_transpose(node):
        return _merge(editor, transpose, node, perm)
    handler = _HANDLERS.get(node.op)
    if handler is not None:
        return handler(editor, node, perm)
    if node.op in _BROADCAST:
        return _broadcast(editor, node, perm)
    if node.op in _REDUCE:
        return _reduce(editor, node, perm)
    if node.op in _SOFTMAX:
        return _with_axis(editor, node, perm, -1) if editor.graph.opset >= 13 else False
    _push(editor, node, perm)
    return True


def _layouts(rank: int) -> tuple[Perm, Perm]:
    """Channels first to last, and last to first."""
    return (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))


def _push(editor: Editor, node: Node, perm: Perm, out_perm: Perm | None = None) -> None:
    """Transpose the inputs by the inverse, the outputs by `out_perm` (default: the permutation itself)."""
    for place in _inputs(editor, node):
        transpose_input(editor, node, place, _invert(perm))
    out = perm if out_perm is None else out_perm
    if out != tuple(range(len(out))):
        for place, name in enumerate(node.outputs):
            if name:
                transpose_output(editor, node, place, out)


def _permute(sizes: tuple[_Size, ...] | None, perm: Perm) -> tuple[_Size, ...] | None:
    """The sizes in that order; None if they are unknown or, being bounds, of another rank."""
    return tuple(sizes[axis] for axis in perm) if sizes is not None and len(sizes) == len(perm) else None


def _permuted_value(editor: Editor, name: str, perm: Perm) -> str:
    value = editor.value(name)
    return editor.new_value(name, _permute(value.shape, perm), _permute(value.symbols, perm))


def transpose_input(editor: Editor, node: Node, place: int, perm: Perm) -> None:
    name = node.inputs[place]
    if editor.is_constant(name):
        data = editor.graph.constant(name)
        new = _permuted_value(editor, name, perm)
        editor.value(new).data = None if data is None else np.transpose(data, perm)
        editor.graph.initializers[new] = None
        editor.set_input(node, place, new)
        return
    maker = editor.maker.get(name)
    if maker is not None and _is_transpose(maker):
        other = _perm(editor, maker)
        if other is not None and len(other) == len(perm):
            if other == _invert(perm):
                editor.set_input(node, place, maker.inputs[0])
            else:
                combined = tuple(other[axis] for axis in perm)
                result = _permuted_value(editor, name, perm)
                editor.add("Transpose", "Transpose", [maker.inputs[0]], [result], {"perm": list(combined)})
                editor.set_input(node, place, result)
            _drop_if_unread(editor, maker)
            return
    for user in editor.users(name):
        if _is_transpose(user) and _perm(editor, user) == perm:
            editor.set_input(node, place, user.outputs[0])
            return
    result = _permuted_value(editor, name, perm)
    editor.add("Transpose", "Transpose", [name], [result], {"perm": perm})
    editor.set_input(node, place, result)


def transpose_output(editor: Editor, node: Node, place: int, perm: Perm) -> None:
    transpose = editor.add("Transpose", "Transpose", [], [""], {"perm": perm})
    new = editor.move_output(node, place, transpose, 0)
    inverse = _invert(perm)
    value, old = editor.value(new), editor.value(transpose.outputs[0])
    value.shape, value.symbols = _permute(old.shape, inverse), _permute(old.symbols, inverse)
    editor.set_input(transpose, 0, new)


def _drop_if_unread(editor: Editor, node: Node) -> None:
    if not any(editor.readers.get(name) or name in editor.final for name in node.outputs):
        editor.remove(node)


def _merge(editor: Editor, transpose: Node, node: Node, perm: Perm) -> bool:
    """Rule 3: the second Transpose is `node`."""
    second = _perm(editor, node)
    if second is None or len(second) != len(perm):
        return False
    if second == _invert(perm):
        if node.outputs[0] in editor.final:
            return False
        editor.replace_uses(node.outputs[0], transpose.inputs[0])
        editor.remove(node)
    else:
        node.attributes["perm"] = tuple(perm[axis] for axis in second)
        editor.set_input(node, 0, transpose.inputs[0])
    _drop_if_unread(editor, transpose)
    return True


def _broadcast(editor: Editor, node: Node, perm: Perm) -> bool:
    for place in _inputs(editor, node):
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
    for place in _inputs(editor, node):
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
    _push(editor, node, perm)
    return True


def _with_axis(editor: Editor, node: Node, perm: Perm, default: int | None) -> bool:
    axis = _moved_axis(node, perm, default)
    if axis is None:
        return False
    _push(editor, node, perm)
    node.attributes["axis"] = axis
    return True


def _moved_axis(node: Node, perm: Perm, default: int | None) -> int | None:
    """Where the node's axis lies before the Transpose; None without one, or with one that cannot be."""
    axis = node.attributes.get("axis", default)
    return perm[axis] if axis is not None and -len(perm) <= axis < len(perm) else None


def _axes(editor: Editor, node: Node, place: int) -> list[int] | None:
    """Constant axes from an attribute or an input."""
    if "axes" in node.attributes:
        return [int(axis) for axis in node.attributes["axes"]]
    if place >= len(node.inputs) or not node.inputs[place]:
        return None
    data = editor.graph.constant(node.inputs[place])
    return None if data is None else [int(axis) for axis in data.reshape(-1)]


def _set_axes(editor: Editor, node: Node, place: int, axes: list[int]) -> None:
    if "axes" in node.attributes:
        node.attributes["axes"] = tuple(axes)
    else:
        editor.set_input(node, place, editor.graph.new_constant("axes", np.array(axes, dtype=np.int64)))


def _without(perm: Perm, removed: list[int]) -> Perm:
    """The permutation of what is left when these axes of the untransposed tensor are removed."""
    kept = [axis for axis in perm if axis not in removed]
    ranks = {axis: place for place, axis in enumerate(sorted(kept))}
    return tuple(ranks[axis] for axis in kept)


def _reduce(editor: Editor, node: Node, perm: Perm) -> bool:
    keep = bool(node.attributes.get("keepdims", 1))
    axes = _axes(editor, node, 1)
    if axes is None:
        if len(node.inputs) > 1 and node.inputs[1]:
            return False
        _push(editor, node, perm, perm if keep else ())
        return True
    new = sorted(perm[axis] for axis in axes)
    _set_axes(editor, node, 1, new)
    _push(editor, node, perm, perm if keep else _without(perm, new))
    return True


def _squeeze(editor: Editor, node: Node, perm: Perm) -> bool:
    axes = _axes(editor, node, 1)
    if axes is None:
        return False
    new = sorted(perm[axis] for axis in axes)
    _set_axes(editor, node, 1, new)
    _push(editor, node, perm, _without(perm, new))
    return True


def _unsqueeze(editor: Editor, node: Node, perm: Perm) -> bool:
    axes = _axes(editor, node, 1)
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
    _push(editor, node, perm, tuple(out))
    return True


def _slice(editor: Editor, node: Node, perm: Perm) -> bool:
    if editor.graph.opset < 10:
        return False
    if len(node.inputs) > 3 and node.inputs[3]:
        axes = _axes(editor, node, 3)
        if axes is None:
            return False
        new = [perm[axis] for axis in axes]
    else:
        shape = editor.value(node.inputs[1]).shape
        if shape is None or len(shape) != 1:
            return False
        new = list(perm[: shape[0]])
    editor.set_input(node, 3, editor.graph.new_constant("axes", np.array(new, dtype=np.int64)))
    _push(editor, node, perm)
    return True


def _permute_operand(editor: Editor, node: Node, place: int, perm: list[int]) -> None:
    """A 1-D operand (pads, repeats) in another order: a new constant, or a Gather."""
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
    inverse = _invert(perm)
    _permute_operand(editor, node, 1, [*inverse, *(axis + len(perm) for axis in inverse)])
    _push(editor, node, perm)
    return True


def _tile(editor: Editor, node: Node, perm: Perm) -> bool:
    _permute_operand(editor, node, 1, list(_invert(perm)))
    _push(editor, node, perm)
    return True


def _shape(editor: Editor, node: Node, perm: Perm) -> bool:
    """Rule 3."""
    start = int(node.attributes.pop("start", 0))
    end = node.attributes.pop("end", None)
    chosen = perm[start : None if end is None else int(end)]
    transpose_input(editor, node, 0, _invert(perm))
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
    _push(editor, node, perm, perm if node.attributes.get("keepdims", 1) else _without(perm, [new]))
    return True


def _gather(editor: Editor, node: Node, perm: Perm) -> bool:
    """Gather by a scalar removes the axis, by a vector keeps it."""
    indices = editor.value(node.inputs[1]).symbols
    new = _moved_axis(node, perm, 0)
    if indices is None or len(indices) > 1 or new is None:
        return False
    node.attributes["axis"] = new
    _push(editor, node, perm, perm if indices else _without(perm, [new]))
    return True


def _reshape(editor: Editor, node: Node, perm: Perm) -> bool:  # noqa: ARG001
    return False


_HANDLERS: dict[str, Callable[[Editor, Node, Perm], bool]] = {
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Pad": _pad,
    "Tile": _tile,
    "Shape": _shape,
    "ArgMin": _arg,
    "ArgMax": _arg,
    "Gather": _gather,
    "Reshape": _reshape,
    "Concat": lambda editor, node, perm: _with_axis(editor, node, perm, None),
    "Split": lambda editor, node, perm: _with_axis(editor, node, perm, 0),
}
