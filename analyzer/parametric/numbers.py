"""A number of a program as a function of the batch: a polynomial through its values in several captures,
checked. The rounds of a loop (`analyzer_programs/extrapolation.py`) are captures too, and a round's number
its batch.

A value that is the same in every capture stays as it is; one that differs becomes a function of the batch;
anything else (another structure, a number that is no polynomial) is `NotTheSame`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from analyzer.graph import Argument, Operator, TensorMeta
from analyzer.parametric.lanes import NotTogether
from analyzer.parametric.polynomial import Polynomial, fit

# A value at a batch.
AtBatch: TypeAlias = Callable[[int], Any]
Record = TypeVar("Record")


class NotTheSame(Exception):
    """Captures are no one program: `where` they part, in the user's terms.

    number: only a number is no polynomial that the captures could check; one more capture might.
    anywhere: no other batches are either.
    """

    def __init__(self, where: str, number: bool = False, anywhere: bool = False) -> None:
        super().__init__(where)
        self.where, self.number, self.anywhere = where, number, anywhere


def place_of(operator: Operator) -> str:
    """Return an operator's name and place, as users know it."""
    where = ", ".join(filter(None, (operator.module, operator.source)))
    name = operator.name.removeprefix("aten::").removesuffix(".default")
    return f"{name} ({where})" if where else name


class Numbers:
    """Turns one value in several captures into a function of the batch; equal numbers are made once.

    The function raises ArithmeticError as `Polynomial.at`. Where captures are no one program there is none
    (NotTheSame). most_degree: of a polynomial, None: as many as the captures can check."""

    def __init__(self, batches: Sequence[int], most_degree: int | None = None) -> None:
        self.batches, self._most_degree = tuple(batches), most_degree
        self._polynomials: dict[tuple[int, ...], Polynomial] = {}
        self._tuples: dict[tuple[tuple[int, ...], ...], Any] = {}

    def polynomial(self, values: Sequence[int], what: str) -> Polynomial:
        """Return the polynomial through one value per capture. Raises NotTheSame if there is none."""
        key = tuple(values)
        polynomial = self._polynomials.get(key)
        if polynomial is None:
            fitted = fit(self.batches, values)
            if fitted is None or (self._most_degree is not None and fitted.degree > self._most_degree):
                shown = ", ".join(
                    f"{value:,} at {batch}" for batch, value in zip(self.batches, values, strict=True)
                )
                raise NotTheSame(f"{what} is no polynomial in the batch: {shown}", number=True)
            polynomial = self._polynomials[key] = fitted
        return polynomial

    def record(self, records: Sequence[Record], what: str) -> Callable[[int], Record]:
        """Return a function from batch to a dataclass whose integers may vary."""
        first, varying = records[0], {}
        for entry in dataclasses.fields(first):  # type: ignore[arg-type]
            values = [getattr(record, entry.name) for record in records]
            if any(value != values[0] for value in values[1:]):
                if not isinstance(values[0], int):
                    raise NotTheSame(what)
                varying[entry.name] = self.polynomial(values, f"{what}'s {entry.name}")

        def at(batch: int) -> Record:
            """Return the record at a batch."""
            fields_at: Any = {name: polynomial.at(batch) for name, polynomial in varying.items()}
            return dataclasses.replace(first, **fields_at)  # type: ignore[type-var]

        return at

    def operator(self, calls: Sequence[Operator]) -> Callable[[int], Operator] | None:
        """Return a function from batch to the operator, from its calls in all captures; None if no number of
        it varies. Raises NotTheSame."""
        first = calls[0]
        place = place_of(first)
        rest = [(c.phase, c.step, c.module, c.source, c.writes, c.domain) for c in calls]
        if any(other != rest[0] for other in rest[1:]) or any(
            tuple(call.keywords) != tuple(first.keywords) for call in calls
        ):
            raise NotTheSame(place)
        arguments = self.value([call.arguments for call in calls], place)
        outputs = self.value([call.outputs for call in calls], place)
        keywords = self.value([tuple(call.keywords.values()) for call in calls], place)
        names = tuple(first.keywords)
        if not any(map(callable, (arguments, outputs, keywords))):
            return None

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
        """Return the value if it is the same everywhere, else a function of the batch."""
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
        """Combine tuples (shapes, strides) from all captures, as `value` does."""
        key = tuple(values)
        function = self._tuples.get(key)
        if function is None:
            if len({len(value) for value in values}) > 1:
                raise NotTheSame(place)
            parts = [
                part[0] if len(set(part)) == 1 else self.polynomial(part, f"an argument of {place}").at
                for part in zip(*values, strict=True)
            ]
            function = _together(parts) if any(map(callable, parts)) else values[0]
            self._tuples[key] = function
        return function

    def tensor(self, tensors: Sequence[TensorMeta], place: str) -> Any:
        """Return the tensor, or a function from batch to it. Raises NotTheSame."""
        first = tensors[0]
        fixed = [(t.storage, t.dtype, t.requires_grad, t.symbols, t.conjugated) for t in tensors]
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
                first.conjugated,
            )

        return at


def _one_by_one(number: Polynomial) -> AtBatch:
    """Return the scalar as a function of one batch: rules use `isinstance`, which lanes fail."""

    def at(batch: int) -> int:
        if not isinstance(batch, int):
            raise NotTogether
        return number.at(batch)

    return at


def _together(parts: list[Any]) -> AtBatch:
    """Return a tuple of values, some of which are functions of the batch."""

    def at(batch: int) -> tuple[Any, ...]:
        return tuple([part(batch) if callable(part) else part for part in parts])

    return at
