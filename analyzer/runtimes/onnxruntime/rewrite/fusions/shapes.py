"""Shape arithmetic and parts of a tensor: constant targets of Reshape, one Split for all parts of an axis."""

from __future__ import annotations

import numpy as np

from analyzer.releases import Span
from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.fusions.fusion import fusion, whole_graph
from analyzer.runtimes.onnxruntime.rewrite.fusions.matching import drop_chain, is_op, maker_of, scalar

_COMPARES_SIZES, _MINDS_ZEROS = Span(since=(1, 29)), Span(since=(1, 27))
_INPUTS_OPSET = 13  # from it on, the sizes of Split's parts and the axes of Unsqueeze are inputs


@fusion(
    "ReshapeFusion",
    "reshape_fusion.cc",
    begins=("Reshape",),
    takes=("Concat", "Unsqueeze", "Gather", "Shape", "Squeeze"),
    makes=("Reshape",),
)
def reshape(editor: Editor, node: Node) -> None:
    """A target shape put together from constants and sizes is a constant: 0 for a size that stays in its
    place, -1 for one other. Otherwise a Reshape and what follows it to shapes that are known, Reshapes,
    Squeezes and Unsqueezes, are one Reshape (`FuseContiguousReshapes`)."""
    if node.attributes.get("allowzero", 0):
        return
    if not _to_constant(editor, node):
        _contiguous(editor, node)


def _to_constant(editor: Editor, node: Node) -> bool:
    """Return whether the target was put together, and is a constant now (`Fuse_Subgraph`)."""
    concat = maker_of(editor, node, 1)
    if not is_op(concat, "Concat") or editor.only_user(concat) is not node:
        return False
    sizes: list[int] = []
    for name in concat.inputs:
        integers = editor.graph.integers(name)
        if integers is not None:
            sizes += integers
            continue
        if _stays(editor, name, node.inputs[0], len(sizes)):
            sizes.append(0)
        elif editor.value(name).symbols == (1,):
            sizes.append(-1)
        else:
            return False
    if sizes.count(-1) > 1:
        return False
    target = editor.graph.new_constant(f"{node.name}_shape", np.array(sizes, dtype=np.int64))
    editor.set_input(node, 1, target)
    drop_chain(editor, concat)
    return True


def _stays(editor: Editor, name: str, root: str, axis: int) -> bool:
    """Return whether the value is Unsqueeze(Gather(Shape(x), axis)), for an x that is `root`, or whose size
    there has the same number or name as that of `root` (`Match_Shape`); until 1.28 none but `root` itself
    (seen in the releases)."""
    unsqueeze = editor.maker.get(name)
    gather = maker_of(editor, unsqueeze, 0) if is_op(unsqueeze, "Unsqueeze") else None
    shape = maker_of(editor, gather, 0) if is_op(gather, "Gather") else None
    if not is_op(shape, "Shape") or shape.attributes.get("start", 0) or "end" in shape.attributes:
        return False
    if gather is None or scalar(editor, gather.inputs[1]) != axis:
        return False
    if shape.inputs[0] == root or editor.graph.release not in _COMPARES_SIZES:
        return shape.inputs[0] == root
    sizes = [editor.value(tensor).symbols or () for tensor in (shape.inputs[0], root)]
    return all(axis < len(size) for size in sizes) and sizes[0][axis] == sizes[1][axis] != ""


def _contiguous(editor: Editor, node: Node) -> None:
    """A Reshape and those that alone read it in turn, Squeeze and Unsqueeze among them, each to a known
    shape: one. One that takes a 0 for no elements ends the run since 1.27 (tried with the releases)."""
    run = [node]
    while is_op(following := editor.only_user(run[-1]), "Reshape", "Squeeze", "Unsqueeze"):
        symbols = editor.value(following.outputs[0]).symbols
        if symbols is None or not all(isinstance(size, int) for size in symbols):
            break
        if following.attributes.get("allowzero", 0) and editor.graph.release in _MINDS_ZEROS:
            break
        run.append(following)
    if len(run) < 2:
        return
    shape = editor.value(run[-1].outputs[0]).symbols or ()
    constant = editor.graph.new_constant(f"{node.name}_new_shape", np.array(shape, np.int64))
    inputs, outputs = [node.inputs[0], constant], list(run[-1].outputs)
    editor.add(f"{node.name}_new_reshape", "Reshape", inputs, outputs, {}, "", node.provider)
    for old in run:
        editor.remove(old)


@whole_graph(
    "GatherSliceToSplitFusion",
    "gather_fusion.cc",
    begins=("Gather", "Slice"),
    takes=(),
    makes=("Split", "Squeeze"),
)
def gather_slice_to_split(editor: Editor) -> None:
    """Gathers and Slices that together are every part of an axis, in order and without overlap: one Split."""
    if editor.graph.opset < _INPUTS_OPSET:
        return
    names = [
        name for name in (*editor.graph.inputs, *editor.graph.initializers) if editor.edge_count(name) > 1
    ]
    for node in editor.order():
        # Shape arithmetic is left alone: it is quick, and lives on the host.
        source = maker_of(editor, node, 0)
        from_shape = node.op == "Shape" or (
            node.op == "Gather" and source is not None and source.op == "Shape"
        )
        if not from_shape and len(node.outputs) == 1 and editor.edge_count(node.outputs[0]) > 1:
            names.append(node.outputs[0])
    for name in names:
        _split_one(editor, name)


def _split_one(editor: Editor, name: str) -> None:
    """Replace Gathers or Slices that cover one axis of a value by a single Split."""
    symbols = editor.value(name).symbols
    parts = [user for user in editor.users(name) if is_op(user, "Gather", "Slice") and user.inputs[0] == name]
    if symbols is None or len(parts) < 2:
        return
    axis = _part_axis(editor, parts[0], len(symbols))
    if axis is None or not isinstance(symbols[axis], int):
        return
    size = symbols[axis]
    assert isinstance(size, int)
    slices: dict[int, tuple[Node, int, bool]] = {}
    for part in parts:
        piece = _part(editor, part, axis, len(symbols), size)
        if piece is None:
            return
        start, length, squeeze = piece
        if start in slices:
            return
        slices[start] = (part, length, squeeze)
    place = 0
    for start in sorted(slices):
        if start != place:
            return
        place += slices[start][1]
    if place != size:
        return
    outputs: list[str] = []
    sizes: list[int] = []
    shape = editor.value(name).shape
    for start in sorted(slices):
        part, length, squeeze = slices[start]
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
    last = slices[max(slices)][0]
    editor.add(
        f"{last.name}/GatherSliceToSplitFusion",
        "Split",
        [name, splits],
        outputs,
        {"axis": axis},
        "",
        last.provider,
    )
    for part, _, _ in slices.values():
        editor.remove(part)


def _part_axis(editor: Editor, node: Node, rank: int) -> int | None:
    if node.op == "Gather":
        return int(node.attributes.get("axis", 0)) % rank
    if len(node.inputs) < 4 or not node.inputs[3]:
        starts = editor.value(node.inputs[1]).shape
        return 0 if starts == (1,) else None
    axis = scalar(editor, node.inputs[3])
    return None if axis is None else int(axis) % rank


def _part(editor: Editor, node: Node, axis: int, rank: int, size: int) -> tuple[int, int, bool] | None:
    """(start, length, whether the axis goes) of a Gather by one index or a Slice of step 1."""
    if _part_axis(editor, node, rank) != axis:
        return None
    start = scalar(editor, node.inputs[1])
    if start is None:
        return None
    if node.op == "Gather":
        at = int(start) + (size if start < 0 else 0)
        return (at, 1, editor.value(node.inputs[1]).shape == ()) if 0 <= at < size else None
    stop = scalar(editor, node.inputs[2])
    if stop is None or (node.input(4) and scalar(editor, node.inputs[4]) != 1):
        return None
    first = min(max(int(start) + (size if start < 0 else 0), 0), size)
    end = min(max(int(stop) + (size if stop < 0 else 0), 0), size)
    return (first, end - first, False) if first < end else None


@fusion(
    "GatherToSliceFusion",
    "gather_fusion.cc",
    begins=("Range",),
    takes=("Gather",),
    makes=("Slice", "Unsqueeze"),
)
def gather_to_slice(editor: Editor, node: Node) -> None:
    """A Gather by a Range that nobody else reads: a Slice, its ends and step made vectors first."""
    gather = editor.only_user(node)
    if not is_op(gather, "Gather") or gather.inputs[1] != node.outputs[0] or gather.provider != node.provider:
        return
    kind = editor.value(node.outputs[0]).dtype
    axes = editor.graph.new_constant("UnsqueezeAxesInitializer", np.array([0], dtype=np.int64))
    ends = []
    for place, name in enumerate(node.inputs):
        ends.append(editor.new_value(name, (1,), (1,), f"unsqueeze_output_{place}"))
        operands = [name, axes] if editor.graph.opset >= _INPUTS_OPSET else [name]
        attributes = {} if editor.graph.opset >= _INPUTS_OPSET else {"axes": (0,)}
        editor.add(f"Unsqueeze_{place}", "Unsqueeze", operands, [ends[-1]], attributes, "", node.provider)
    axis = editor.graph.new_constant(
        "SliceAxesInitializer", np.array([gather.attributes.get("axis", 0)], dtype=kind)
    )
    inputs = [gather.inputs[0], ends[0], ends[1], axis, ends[2]]
    editor.add("Slice", "Slice", inputs, list(gather.outputs), {}, "", gather.provider)
    editor.remove(node)
    editor.remove(gather)
