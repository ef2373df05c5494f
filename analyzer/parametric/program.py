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
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from analyzer.graph import Graph, Operator
from analyzer.parametric.guards import SizeGuards
from analyzer.parametric.numbers import AtBatch, NotTheSame, Numbers, place_of
from analyzer.parametric.polynomial import Polynomial


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

    def at(self, batch: int) -> Graph:
        """Return the graph at a batch. Raises NotTheSame, and ArithmeticError as `Polynomial.at`."""
        if self._operators is None:
            pairs = ((index, self.operator(index)) for index in range(len(self.first.operators)))
            self._operators = {index: operator for index, operator in pairs if operator is not None}
        storages, operators = list(self.first.storages), list(self.first.operators)
        for index, polynomial in self.storages.items():
            storages[index] = dataclasses.replace(storages[index], nbytes=polynomial.at(batch))
        for index, operator in self._operators.items():
            operators[index] = operator(batch)
        return dataclasses.replace(
            self.first, storages=tuple(storages), operators=tuple(operators), batch=batch
        )

    def _varying_storages(self) -> dict[int, Polynomial]:
        varying = {}
        for kinds in zip(*(graph.storages for graph in self._graphs), strict=True):
            first = kinds[0]
            if all(other == first for other in kinds[1:]):
                continue
            if any(dataclasses.replace(other, nbytes=first.nbytes) != first for other in kinds[1:]):
                raise NotTheSame(f"storage {first.index} ({first.name})")
            sizes = [storage.nbytes for storage in kinds]
            varying[first.index] = self._numbers.polynomial(sizes, f"the size of {first.name}")
        return varying


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
