"""A number as a function of the batch: the polynomial through what was captured, exact, and checked at one
more size.

1. A number captured at n batch sizes is taken for a polynomial only if one of degree at most n - 2 goes
   through all of them: the lowest such. At least one of the captured values is therefore a check, not a
   support.
2. Arithmetic is exact; a value between the captured ones that is no whole number is none of ours.

Shapes, strides and sizes in bytes are products of dimensions, of which few are the batch: degree 1 nearly
always, 2 where every sample meets every other (a matrix of similarities).

Not modelled: whole parts (`ceil(batch / 32)`), minima and maxima: such a number is no polynomial, and `fit`
says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm

import numpy as np
import numpy.typing as npt

from analyzer.parametric.lanes import Integers, Lanes


@dataclass(frozen=True, slots=True)
class Polynomial:
    """numerators[i] / denominator belongs to batch ** i; the last is not 0 (but for constant 0)."""

    numerators: tuple[int, ...]
    denominator: int = 1

    @property
    def degree(self) -> int:
        """Degree of the polynomial, 0 for a constant."""
        return len(self.numerators) - 1

    def at(self, batch: int) -> int:
        """Return the value there. Raises ArithmeticError when it is no whole number."""
        value = 0
        for numerator in reversed(self.numerators):
            value = value * batch + numerator
        if self.denominator == 1:
            return value
        quotient, rest = divmod(value, self.denominator)
        if rest:
            raise ArithmeticError(f"{value} / {self.denominator} at batch {batch} is no whole number")
        return quotient

    def at_many(self, batches: Sequence[int]) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Values at many batches, and which are whole numbers. Raises NotTogether if too large."""
        value: Lanes = Lanes(np.zeros(len(batches), np.int64))
        every = Lanes(np.array(batches, np.int64))
        for numerator in reversed(self.numerators):
            value = value * every + numerator
        quotient, rest = np.divmod(value.values, self.denominator)
        return quotient, rest == 0


def fit(batches: Sequence[int], values: Sequence[int]) -> Polynomial | None:
    """Return the lowest polynomial, of degree at most n - 2, through the n pairs (batch, value); None if
    there is none. Batches are distinct, at least two.

    >>> fit((2, 3, 8), (20, 30, 80)).at(5)
    50
    >>> fit((2, 3, 8), (4, 9, 64)) is None  # a square needs a fourth size to check it
    True
    """
    differences = [Fraction(value) for value in values]
    newton = [differences[0]]
    for order in range(1, len(batches)):
        differences = [
            (after - before) / (batches[place + order] - batches[place])
            for place, (before, after) in enumerate(pairwise(differences))
        ]
        newton.append(differences[0])
    while len(newton) > 1 and newton[-1] == 0:
        newton.pop()
    if len(newton) > len(batches) - 1:
        return None
    coefficients = [Fraction(0)]
    for order in range(len(newton) - 1, -1, -1):  # Horner's scheme on Newton's form
        raised = [Fraction(0), *coefficients]
        coefficients = [
            high - batches[order] * low
            for high, low in zip(raised, [*coefficients, Fraction(0)], strict=True)
        ]
        coefficients[0] += newton[order]
    while len(coefficients) > 1 and coefficients[-1] == 0:
        coefficients.pop()
    denominator = lcm(*(coefficient.denominator for coefficient in coefficients))
    return Polynomial(tuple(int(coefficient * denominator) for coefficient in coefficients), denominator)
