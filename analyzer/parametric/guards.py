"""The guards of a program at any batch: whether each comparison of sizes would come out as it did where the
program was captured.

The n-th guard of one capture is the n-th of the others, as far as they are alike. A size in it is a
polynomial in the batch (`polynomial.py`), so the guard has an outcome at every batch. Where one is another
than at the captures, the program may be another too, and has to be captured there.

Not modelled: guards about sizes that are no polynomials, and what `capture/pytorch/values/asked_sizes.py`
does not see.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TypeAlias

from analyzer.graph.guard import SizeGuard, Tree
from analyzer.parametric.polynomial import Polynomial, fit

# A tree with polynomials in place of sizes.
_AtBatch: TypeAlias = "Polynomial | tuple[str, _AtBatch, _AtBatch]"


class SizeGuards:
    """The guards whose answer may depend on the batch."""

    def __init__(self, batches: Sequence[int], comparisons: Sequence[Sequence[SizeGuard]]) -> None:
        """comparisons: guards of each capture, by its batch; a single capture gives none."""
        self._comparisons: set[tuple[str, _AtBatch, _AtBatch, bool]] = set()
        if len(batches) == 1:
            return
        seen: set[tuple[SizeGuard, ...]] = set()
        for same in zip(*comparisons, strict=False):
            if same in seen:
                continue
            seen.add(same)
            first = same[0]
            if any((q.comparison, q.where) != (first.comparison, first.where) for q in same[1:]):
                break
            if any(q.answer != first.answer for q in same[1:]):
                continue  # the program is the same either way
            left, right = _fitted(batches, [q.left for q in same]), _fitted(batches, [q.right for q in same])
            if left is not None and right is not None and (_varies(left) or _varies(right)):
                self._comparisons.add((first.comparison, left, right, first.answer))

    def changed(self, batch: int) -> bool:
        """Return whether a comparison is answered differently at a batch."""
        try:
            return any(
                getattr(operator, comparison)(_evaluated(left, batch), _evaluated(right, batch)) != answer
                for comparison, left, right, answer in self._comparisons
            )
        except ArithmeticError:  # a size that is no whole number there, a division by none
            return True


def _fitted(batches: Sequence[int], trees: Sequence[Tree]) -> _AtBatch | None:
    """Return the tree with polynomial sizes; None if the captures' trees differ."""
    numbers = [tree for tree in trees if isinstance(tree, int)]
    parts = [tree for tree in trees if isinstance(tree, tuple)]
    if not parts:
        return fit(batches, numbers)
    if numbers or len({part[0] for part in parts}) > 1:
        return None
    left, right = _fitted(batches, [part[1] for part in parts]), _fitted(batches, [part[2] for part in parts])
    return None if left is None or right is None else (parts[0][0], left, right)


def _varies(tree: _AtBatch) -> bool:
    return tree.degree > 0 if isinstance(tree, Polynomial) else _varies(tree[1]) or _varies(tree[2])


def _evaluated(tree: _AtBatch, batch: int) -> int:
    if isinstance(tree, Polynomial):
        return tree.at(batch)
    value: int = getattr(operator, tree[0])(_evaluated(tree[1], batch), _evaluated(tree[2], batch))
    return value
