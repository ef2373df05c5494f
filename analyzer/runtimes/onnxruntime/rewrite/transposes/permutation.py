"""Permutations of axes, as Transpose's attribute gives them: axis i of the result is axis `perm[i]` of what
is read."""

from __future__ import annotations

from typing import TypeVar

from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor

Perm = tuple[int, ...]
_Size = TypeVar("_Size")


def is_transpose(node: Node) -> bool:
    """Return whether the node is ONNX's Transpose."""
    return node.op == "Transpose" and not node.domain


def perm_of(editor: Editor, node: Node) -> Perm | None:
    """Return a Transpose's permutation; by default the axes reversed. None if the rank is unknown or it is
    none."""
    perm = node.attributes.get("perm")
    if perm is None:
        symbols = editor.value(node.inputs[0]).symbols
        return None if symbols is None else tuple(reversed(range(len(symbols))))
    return tuple(perm) if sorted(perm) == list(range(len(perm))) else None


def inverse_of(perm: Perm) -> Perm:
    """Return the permutation that undoes it."""
    result = [0] * len(perm)
    for place, axis in enumerate(perm):
        result[axis] = place
    return tuple(result)


def permuted(sizes: tuple[_Size, ...] | None, perm: Perm) -> tuple[_Size, ...] | None:
    """Return the sizes in that order; None if they are unknown or, being bounds, of another rank."""
    return tuple(sizes[axis] for axis in perm) if sizes is not None and len(sizes) == len(perm) else None


def without(perm: Perm, removed: list[int]) -> Perm:
    """Return the permutation of the remaining axes after these untransposed ones are removed."""
    kept = [axis for axis in perm if axis not in removed]
    ranks = {axis: place for place, axis in enumerate(sorted(kept))}
    return tuple(ranks[axis] for axis in kept)
