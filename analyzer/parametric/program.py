"""One captured program for every batch of a range: the graph's numbers as polynomials in the batch.

1. A program captured at several batch sizes is **the same program** if storages, operators and moments are
   the same one by one: names, element types, structure of the arguments, who lives when. Only whole numbers
   may differ: sizes of storages; shapes, strides, offsets and whole scalar arguments of operators.
2. Each number that differs is a polynomial in the batch (`polynomial.py`), checked at a size that did not
   make it.
3. Fractions among the arguments (a loss divided by the batch) may differ too and stay as first captured: what
   an operator allocates does not depend on their value, only on whether they are zero.
4. `at` puts the numbers of any batch in: what comes out is the graph a capture at that batch would have made,
   and goes the same way on.
5. The n-th **guard** of one capture, a comparison of sizes, is the n-th of the others, as far as they are
   alike. A size in it is a polynomial in the batch, so the guard has an outcome at every batch. Where one is
   another than at the captures, the program may be another too, and has to be captured there.

Not modelled: guards about sizes that are no polynomials, and what `capture/pytorch/recording/asked_sizes.py`
does not see.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection, Sequence
from typing import TypeAlias

from analyzer.graph import Graph, Operator
from analyzer.graph.guard import SizeGuard, Tree
from analyzer.parametric.numbers import AtBatch, NotTheSame, Numbers, place_of
from analyzer.parametric.polynomial import Polynomial, fit

# A tree with polynomials in place of sizes.
_AtBatch: TypeAlias = "Polynomial | tuple[str, _AtBatch, _AtBatch]"


class BatchProgram:
    """A captured program at any batch it holds for.

    first: the graph of the first capture. storages: index → size in bytes, of those that vary.
    """

    def __init__(self, batches: Sequence[int], graphs: Sequence[Graph]) -> None:
        """Take at least three graphs with their batches, or one for its batch alone.

        Raises NotTheSame naming the first place where they are no one program, or where a size is no
        polynomial.
        """
        self.first = graphs[0]
        self._graphs = graphs
        self._numbers = Numbers(batches)
        self._operators: dict[int, AtBatch] | None = None
        _same_program(graphs)
        self.storages = self._varying_storages()
        self.guards = SizeGuards(batches, [graph.guards for graph in graphs])

    def calls(self, index: int) -> tuple[Operator, ...]:
        """Operator `index` as each capture has it."""
        return tuple([graph.operators[index] for graph in self._graphs])

    def operator(self, index: int) -> AtBatch | None:
        """Operator `index` as a function of the batch; None if it is the same at any. Raises NotTheSame."""
        calls = self.calls(index)
        return None if all(call == calls[0] for call in calls[1:]) else self._numbers.operator(calls)

    def at(self, batch: int, only: Collection[int] | None = None) -> Graph:
        """Return the graph at a batch; only: operators that are made for it, the others stay those of the
        first capture. Raises NotTheSame, and ArithmeticError as `Polynomial.at`."""
        if self._operators is None:
            made = ((index, self.operator(index)) for index in range(len(self.first.operators)))
            self._operators = {index: at_batch for index, at_batch in made if at_batch is not None}
        storages, operators = list(self.first.storages), list(self.first.operators)
        for index, polynomial in self.storages.items():
            storages[index] = dataclasses.replace(storages[index], nbytes=polynomial.at(batch))
        for index, at_batch in self._operators.items():
            if only is None or index in only:
                operators[index] = at_batch(batch)
        return dataclasses.replace(
            self.first, storages=tuple(storages), operators=tuple(operators), batch=batch
        )

    def _varying_storages(self) -> dict[int, Polynomial]:
        polynomials = {}
        for kinds in zip(*(graph.storages for graph in self._graphs), strict=True):
            first = kinds[0]
            if all(other == first for other in kinds[1:]):
                continue
            if any(dataclasses.replace(other, nbytes=first.nbytes) != first for other in kinds[1:]):
                raise NotTheSame(f"storage {first.index} ({first.name})")
            sizes = [storage.nbytes for storage in kinds]
            polynomials[first.index] = self._numbers.polynomial(sizes, f"the size of {first.name}")
        return polynomials


def _same_program(graphs: Sequence[Graph]) -> None:
    """Raise NotTheSame unless names, types, structure and order are the same in every capture."""
    first = graphs[0]
    for other in graphs[1:]:
        for one, two in zip(first.operators, other.operators, strict=False):
            if (one.name, one.phase, one.step, one.module) != (two.name, two.phase, two.step, two.module):
                raise NotTheSame(f"{place_of(one)} or {place_of(two)}")
        if len(first.operators) != len(other.operators):
            shorter, longer = sorted((first.operators, other.operators), key=len)
            raise NotTheSame(place_of(longer[len(shorter)]))
        if first.program != other.program or len(first.storages) != len(other.storages):
            raise NotTheSame("the order in which tensors are freed")


class SizeGuards:
    """The guards whose answer may depend on the batch."""

    def __init__(self, batches: Sequence[int], guards: Sequence[Sequence[SizeGuard]]) -> None:
        """guards: of each capture, by its batch; a single capture gives none."""
        self._comparisons: set[tuple[str, _AtBatch, _AtBatch, bool]] = set()
        if len(batches) == 1:
            return
        fitted: set[tuple[SizeGuard, ...]] = set()
        for same in zip(*guards, strict=False):
            if same in fitted:
                continue
            fitted.add(same)
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
                getattr(operator, comparison)(_at(left, batch), _at(right, batch)) != answer
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


def _at(tree: _AtBatch, batch: int) -> int:
    if isinstance(tree, Polynomial):
        return tree.at(batch)
    value: int = getattr(operator, tree[0])(_at(tree[1], batch), _at(tree[2], batch))
    return value
