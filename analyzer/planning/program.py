"""One captured program for every batch of a range: the graph's numbers as polynomials in the batch.

1. A program captured at several batch sizes is **the same program** if storages, operators and moments are the same one
   by one: names, element types, structure of the arguments, who lives when. Only whole numbers may differ: sizes of
   storages; shapes, strides, offsets and whole scalar arguments of operators; the terms of the naive sum.
2. Each number that differs is a polynomial in the batch (`polynomial.py`), checked at a size that did not make it.
3. Fractions among the arguments (a loss divided by the batch) may differ too and stay as first captured: what an
   operator allocates does not depend on their value, only on whether they are zero.
4. `at` puts the numbers of any batch in: what comes out is the graph a capture at that batch would have made, and goes
   the same way on.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from analyzer.graph import Argument, Graph, Operator, TensorMeta
from analyzer.graph.lanes import NotTogether
from analyzer.graph.polynomial import Polynomial, fit
from analyzer.liveness.naive import Naive
from analyzer.pipeline.assemble import Captured
from analyzer.planning.questions import Questions

# A value at a batch.
AtBatch: TypeAlias = Callable[[int], Any]
_NAIVE_TERMS = ("data", "weights", "forward_output", "weight_gradient", "output_gradient")


class NotTheSame(Exception):
    """Captures are no one program: `where` they part, in the user's terms.

    number: only a number is no polynomial that the captures could check; one more capture might.
    anywhere: no other batches are either.
    """

    def __init__(self, where: str, number: bool = False, anywhere: bool = False) -> None:
        super().__init__(where)
        self.where, self.number, self.anywhere = where, number, anywhere


class BatchProgram:
    """A captured program at any batch it holds for.

    captures: what it was made from, each at its batch. storages: index → size in bytes, of those that vary.
    """

    def __init__(self, batches: Sequence[int], captures: Sequence[Captured]) -> None:
        """Three captures at least, so that every number is checked; or one, for its batch alone.

        Raises NotTheSame naming the first place where they are no one program, or where a size is no polynomial.
        """
        self.batches, self.captures = tuple(batches), tuple(captures)
        self.first = captures[0]
        self._graphs = [captured.source.graph for captured in captures]
        self._numbers = Numbers(self.batches)
        self._operators: dict[int, AtBatch] | None = None
        _same_program(self._graphs)
        self.storages = self._varying_storages()
        self.naive = naive_at(self._numbers, captures)
        self.questions = Questions(self.batches, [graph.questions for graph in self._graphs])

    def on(self, captures: Sequence[Captured]) -> BatchProgram:
        """The same program with these captures, which differ from its own in the device alone."""
        other = copy.copy(self)
        other.captures, other.first = tuple(captures), captures[0]
        return other

    def calls(self, index: int) -> tuple[Operator, ...]:
        """Operator `index` as each capture has it."""
        return tuple([graph.operators[index] for graph in self._graphs])

    def operator(self, index: int) -> AtBatch | None:
        """Operator `index` as a function of the batch; None if it is the same at any. Raises NotTheSame."""
        calls = self.calls(index)
        if all(call == calls[0] for call in calls[1:]):
            return None
        return self._numbers.operator(calls)

    def at(self, batch: int) -> Captured:
        """The program as a capture at `batch` would have found it. Raises NotTheSame."""
        graph = self._graphs[0]
        if self._operators is None:
            made = ((index, self.operator(index)) for index in range(len(graph.operators)))
            self._operators = {index: operator for index, operator in made if operator is not None}
        storages, operators = list(graph.storages), list(graph.operators)
        for index, polynomial in self.storages.items():
            storages[index] = dataclasses.replace(storages[index], nbytes=polynomial.at(batch))
        for index, operator in self._operators.items():
            operators[index] = operator(batch)
        graph = dataclasses.replace(graph, storages=tuple(storages), operators=tuple(operators), batch=batch)
        source = dataclasses.replace(self.first.source, graph=graph)
        return dataclasses.replace(self.first, batch=batch, source=source, naive=self.naive(batch))

    def _varying_storages(self) -> dict[int, Polynomial]:
        found = {}
        for kinds in zip(*(graph.storages for graph in self._graphs), strict=True):
            first = kinds[0]
            if all(other == first for other in kinds[1:]):
                continue
            if any(dataclasses.replace(other, nbytes=first.nbytes) != first for other in kinds[1:]):
                raise NotTheSame(f"storage {first.index} ({first.name})")
            sizes = [storage.nbytes for storage in kinds]
            found[first.index] = self._numbers.polynomial(sizes, f"the size of {first.name}")
        return found


def naive_at(numbers: Numbers, captures: Sequence[Captured]) -> Callable[[int], Naive]:
    """The textbook sum of captured programs at any batch, which raises ArithmeticError as `Polynomial.at`.

    Raises NotTheSame where a term is no polynomial.
    """
    first, varying = captures[0].naive, {}
    for name in _NAIVE_TERMS:
        terms = [getattr(captured.naive, name) for captured in captures]
        if len(set(terms)) > 1:
            varying[name] = numbers.polynomial(terms, f"the naive sum's {name}")

    def naive(batch: int) -> Naive:
        terms: dict[str, Any] = {name: entry.at(batch) for name, entry in varying.items()}
        return dataclasses.replace(first, **terms)

    return naive


def _same_program(graphs: Sequence[Graph]) -> None:
    """The same in every capture: names, types, structure, order. Raises NotTheSame."""
    first = graphs[0]
    for other in graphs[1:]:
        for one, two in zip(first.operators, other.operators, strict=False):
            if (one.name, one.phase, one.step, one.module) != (two.name, two.phase, two.step, two.module):
                raise NotTheSame(f"{_place(one)} or {_place(two)}")
        if len(first.operators) != len(other.operators):
            shorter, longer = sorted((first.operators, other.operators), key=len)
            raise NotTheSame(_place(longer[len(shorter)]))
        if first.program != other.program or len(first.storages) != len(other.storages):
            raise NotTheSame("the order in which tensors are freed")


def _place(operator: Operator) -> str:
    where = ", ".join(filter(None, (operator.module, operator.source)))
    name = operator.name.removeprefix("aten::").removesuffix(".default")
    return f"{name} ({where})" if where else name


class Numbers:
    """Turns what several captures say of one thing into what it is at any batch; equal numbers are made once."""

    def __init__(self, batches: tuple[int, ...]) -> None:
        self.batches = batches
        self._made: dict[tuple[int, ...], Polynomial] = {}
        self._tuples: dict[tuple[tuple[int, ...], ...], Any] = {}

    def polynomial(self, values: Sequence[int], what: str) -> Polynomial:
        key = tuple(values)
        found = self._made.get(key)
        if found is None:
            made = fit(self.batches, values)
            if made is None:
                shown = ", ".join(
                    f"{value:,} at {batch}" for batch, value in zip(self.batches, values, strict=True)
                )
                raise NotTheSame(f"{what} is no polynomial in the batch: {shown}", number=True)
            found = self._made[key] = made
        return found

    def operator(self, calls: Sequence[Operator]) -> Callable[[int], Operator]:
        first = calls[0]
        place = _place(first)
        rest = [(c.phase, c.step, c.module, c.source, c.writes, c.domain) for c in calls]
        if any(other != rest[0] for other in rest[1:]) or any(
            tuple(call.keywords) != tuple(first.keywords) for call in calls
        ):
            raise NotTheSame(place)
        arguments = self.value([call.arguments for call in calls], place)
        outputs = self.value([call.outputs for call in calls], place)
        keywords = self.value([tuple(call.keywords.values()) for call in calls], place)
        names = tuple(first.keywords)

        def at(batch: int) -> Operator:
            return dataclasses.replace(
                first,
                arguments=arguments(batch) if callable(arguments) else arguments,
                outputs=outputs(batch) if callable(outputs) else outputs,
                keywords=dict(zip(names, keywords(batch), strict=True))
                if callable(keywords)
                else first.keywords,
            )

        return at

    def value(self, values: Sequence[Argument], place: str) -> Any:
        """The value itself if it is the same everywhere, else a function of the batch."""
        first = values[0]
        kind = type(first)
        if any(type(value) is not kind for value in values[1:]):
            raise NotTheSame(place)
        if all(value == first for value in values[1:]):
            return first
        if kind is int:
            return _one_by_one(self.polynomial(values, f"an argument of {place}"))  # type: ignore[arg-type]
        if kind is float:
            if any((value == 0) != (first == 0) for value in values):
                raise NotTheSame(place)
            return first  # a fraction: only whether it is zero decides what is allocated
        if isinstance(first, TensorMeta):
            return self.tensor(values, place)  # type: ignore[arg-type]
        if isinstance(first, tuple):
            if len({len(value) for value in values}) > 1:  # type: ignore[arg-type]
                raise NotTheSame(place)
            parts = [self.value(part, place) for part in zip(*values, strict=True)]
            return _together(parts)
        raise NotTheSame(place)

    def integers(self, values: Sequence[tuple[int, ...]], place: str) -> Any:
        """As `value`, for shapes, strides and offsets, of which many are the same."""
        key = tuple(values)
        found = self._tuples.get(key)
        if found is None:
            if len({len(value) for value in values}) > 1:
                raise NotTheSame(place)
            parts = [
                part[0] if len(set(part)) == 1 else self.polynomial(part, f"an argument of {place}").at
                for part in zip(*values, strict=True)
            ]
            found = _together(parts) if any(map(callable, parts)) else values[0]
            self._tuples[key] = found
        return found

    def tensor(self, tensors: Sequence[TensorMeta], place: str) -> Any:
        first = tensors[0]
        fixed = [(t.storage, t.dtype, t.requires_grad, t.symbols) for t in tensors]
        if any(other != fixed[0] for other in fixed[1:]):
            raise NotTheSame(place)
        shape = self.integers([t.shape for t in tensors], place)
        stride = self.integers([t.stride for t in tensors], place)
        offset = self.integers([(t.offset,) for t in tensors], place)

        def at(batch: int) -> TensorMeta:
            return TensorMeta(
                first.storage,
                shape(batch) if callable(shape) else shape,
                stride(batch) if callable(stride) else stride,
                first.dtype,
                (offset(batch) if callable(offset) else offset)[0],
                first.requires_grad,
                first.symbols,
            )

        return at


def _one_by_one(number: Polynomial) -> AtBatch:
    """A whole scalar argument: rules look at these with `isinstance`, so many batches are not told at once."""

    def at(batch: int) -> int:
        if not isinstance(batch, int):
            raise NotTogether
        return number.at(batch)

    return at


def _together(parts: list[Any]) -> AtBatch:
    """A tuple of values, some of which are functions of the batch."""

    def at(batch: int) -> tuple[Any, ...]:
        return tuple([part(batch) if callable(part) else part for part in parts])

    return at
