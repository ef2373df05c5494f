"""A Reshape behind a Transpose: it is a Transpose itself, or it splits axes and can go first.

1. Both need every size of what is transposed as a number, and a target whose values are known.
2. A Reshape to the same rank that keeps all sizes above 1 in their order moves axes as a Transpose would: the
   two merge, or cancel.
3. A Reshape that splits each axis into one or more that follow each other is done before the Transpose, which
   then moves the parts of an axis together. A size of 1 belongs to the axis that comes after it; one at the
   end belongs to none.

Source: `core/optimizer/transpose_optimization/onnx_transpose_optimization.cc` (`HandleReshape`); 3 is new in
1.29 (pull request 29660 of microsoft/onnxruntime; seen in the releases). Compared with a real one in
`tests/runtimes/onnxruntime/test_rewrites_against_ort.py`.
"""

from __future__ import annotations

import math

import numpy as np

from analyzer.releases import Span
from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor
from analyzer.runtimes.onnxruntime.rewrite.transposes.permutation import Perm, inverse_of
from analyzer.runtimes.onnxruntime.rewrite.transposes.pushing import (
    merge_by,
    transpose_input,
    transpose_output,
)

_SPLITS_FIRST = Span(since=(1, 29))


def reshape(editor: Editor, node: Node, perm: Perm) -> bool:
    """Merge the Reshape with the Transpose it reads, or let it go first."""
    changed = _change(editor, node)
    if changed is None:
        return False
    before, after = changed
    moved = _as_transpose(before, after)
    if moved is not None:
        transpose = editor.maker[node.inputs[0]]
        if inverse_of(perm) != moved:
            node = _into_transpose(editor, node)
        return merge_by(editor, transpose, node, perm, moved)
    parts = _split(before, after) if editor.graph.release in _SPLITS_FIRST else None
    if parts is None:
        return False
    _first(editor, node, perm, parts)
    return True


def handled(editor: Editor, node: Node) -> bool:
    """Return whether a Reshape counts among the readers that let a Transpose go: any since 1.29, before only
    one that is a Transpose itself."""
    changed = _change(editor, node)
    return editor.graph.release in _SPLITS_FIRST or (
        changed is not None and _as_transpose(*changed) is not None
    )


def _change(editor: Editor, node: Node) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the sizes before and after; None where not all of them are known."""
    symbols = editor.value(node.inputs[0]).symbols or ()
    before = tuple(size for size in symbols if isinstance(size, int))
    target = editor.graph.integers(node.inputs[1])
    if not before or len(before) != len(symbols) or target is None:
        return None
    after = _sizes(before, target, bool(node.attributes.get("allowzero", 0)))
    return None if after is None else (before, after)


def _sizes(before: tuple[int, ...], target: list[int], zero_is_zero: bool) -> tuple[int, ...] | None:
    """Return the shape a Reshape's target gives for these sizes; None if invalid (`FinalizeReshapeShape`)."""
    sizes = list(target)
    for axis, size in enumerate(sizes):
        if size == 0 and not zero_is_zero:
            if axis >= len(before):
                return None
            sizes[axis] = before[axis]
    product = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) > 1 or (-1 in sizes and (not product or math.prod(before) % product)):
        return None
    if -1 in sizes:
        sizes[sizes.index(-1)] = math.prod(before) // product
    return tuple(sizes) if math.prod(sizes) == math.prod(before) else None


def _as_transpose(before: tuple[int, ...], after: tuple[int, ...]) -> Perm | None:
    """Return the permutation a Reshape is (only sizes of 1 move), None if it is none."""
    if len(before) != len(after):
        return None
    left, perm = list(range(len(before))), []
    for wanted in after:
        axis = next(
            (axis for axis in left if before[axis] == wanted or 1 not in (before[axis], wanted)), None
        )
        if axis is None or before[axis] != wanted:
            return None
        left.remove(axis)
        perm.append(axis)
    return tuple(perm)


def _split(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    """Return the parts of each axis, in order; None if an axis is joined with another, or sizes are left."""
    parts, place = [], 0
    for size in before:
        start = place
        while place < len(after) and (place == start or math.prod(after[start:place]) < size):
            place += 1
        if math.prod(after[start:place]) != size or place == start:
            return None
        parts.append(after[start:place])
    return parts if place == len(after) else None


def _into_transpose(editor: Editor, node: Node) -> Node:
    """Replace the Reshape by a new Transpose; the caller sets its input and permutation when it merges it."""
    transpose = editor.add(
        "Transpose", "Transpose", [node.inputs[0]], list(node.outputs), {}, "", node.provider
    )
    editor.remove(node)
    return transpose


def _first(editor: Editor, node: Node, perm: Perm, parts: list[tuple[int, ...]]) -> None:
    """Let the Reshape read the Transpose's input, and move the parts by a Transpose after it."""
    inverse = inverse_of(perm)
    transpose_input(editor, node, 0, inverse)
    sizes = [size for place in inverse for size in parts[place]]
    target = editor.graph.new_constant("const_transpose_optimizer", np.array(sizes, dtype=np.int64))
    editor.set_input(node, 1, target)
    # Where each axis's parts begin before the Transpose, by their place behind it.
    starts = {}
    at = 0
    for place in inverse:
        starts[place] = at
        at += len(parts[place])
    moved = tuple(starts[place] + part for place in range(len(parts)) for part in range(len(parts[place])))
    if moved != tuple(range(len(moved))):
        transpose_output(editor, node, 0, moved)
