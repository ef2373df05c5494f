"""Polynomials through captured numbers: lowest degree, exact, and never without a check."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.parametric.polynomial import Polynomial, fit


def test_a_constant_a_line_and_a_square() -> None:
    assert fit((2, 9, 100), (7, 7, 7)) == Polynomial((7,))
    assert fit((2, 9, 100), (26, 96, 1006)) == Polynomial((6, 10))
    assert fit((2, 9, 100), (4, 81, 10000)) is None
    assert fit((2, 9, 100, 50), (4, 81, 10000, 2500)) == Polynomial((0, 0, 1))


def test_what_is_no_polynomial_is_none() -> None:
    """ceil(batch / 32), and the smaller of batch and 8."""
    assert fit((2, 64, 100), (1, 2, 4)) is None
    assert fit((2, 9, 100), (2, 8, 8)) is None


def test_a_fraction_is_no_size() -> None:
    """batch (batch + 1) / 2 is whole everywhere; batch / 2 is not."""
    pairs = fit((2, 3, 4, 9), (3, 6, 10, 45))
    assert pairs is not None and [pairs.at(n) for n in (1, 5, 10)] == [1, 15, 55]
    half = fit((2, 4, 8), (1, 2, 4))
    assert half is not None and half.at(10) == 5
    with pytest.raises(ArithmeticError):
        half.at(3)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=3),
    st.lists(st.integers(1, 10**6), min_size=5, max_size=6, unique=True),
    st.integers(1, 10**9),
)
def test_any_polynomial_is_found_again(coefficients: list[int], batches: list[int], batch: int) -> None:
    def value(at: int) -> int:
        return sum(c * at**power for power, c in enumerate(coefficients))

    found = fit(batches, [value(at) for at in batches])
    assert found is not None
    assert found.at(batch) == value(batch)
    assert found.degree < len(coefficients)
