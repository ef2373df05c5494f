"""Lanes: whatever is computed on many numbers at once is what each alone would have given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.parametric.lanes import Apart, Lanes, NotTogether

SMALL = st.integers(-50, 50)
OPERATIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: b - a,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: -(-a // 7) * 7 + b % 5,
    lambda a, b: a // (abs(b) + 1),
    lambda a, b: (b * b + 3) % (abs(a) + 2),
    lambda a, b: 12 // (abs(a) + 1) + b,
    lambda a, b: divmod(a, 3)[1] + 12 % (abs(b) + 1),
    lambda a, b: 1 << (abs(a + b).bit_length() - 1) if a + b != 0 else 5,
    lambda a, b: math.prod((a, 3, b)),
    lambda a, b: max(a, b) - min(a, 4) + (abs(a) >> 1),
    lambda a, b: sorted((a, b, 2))[1],
    lambda a, b: a if a >= b and not a < -10 else 2 * b,
]


def told(compute: Callable[[Any, Any], Any], first: list[int], second: list[int]) -> list[Any]:
    """All lanes, divided where they part, as `in_parts` does it."""
    found: list[Any] = [None] * len(first)
    open_ = [np.arange(len(first))]
    while open_:
        lanes = open_.pop()
        try:
            value = compute(Lanes(np.array(first)[lanes]), Lanes(np.array(second)[lanes]))
        except Apart as apart:
            open_ += [lanes[apart.yes], lanes[~apart.yes]]
            continue
        for place, lane in enumerate(lanes.tolist()):
            found[lane] = int(value.values[place]) if isinstance(value, Lanes) else value
    return found


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # a busy machine is no failure
@given(pairs=st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=9))
def test_each_lane_is_as_alone(number: int, pairs: list[tuple[int, int]]) -> None:
    compute = OPERATIONS[number]
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    assert told(compute, first, second) == [compute(a, b) for a, b in pairs]


def test_where_lanes_part() -> None:
    lanes = Lanes(np.array([1, 5, 9]))
    with pytest.raises(Apart) as apart:
        bool(lanes > 4)
    assert apart.value.yes.tolist() == [False, True, True]
    assert lanes > 0
    assert lanes != 2
    assert lanes != "text"


@pytest.mark.parametrize(
    "use",
    [hash, float, int, lambda x: list(range(x)), lambda x: x / 2, lambda x: x & 1, lambda x: x < "a", lambda x: x // 0],
)  # fmt: skip
def test_what_needs_one_number_is_refused(use: Callable[[Any], Any]) -> None:
    with pytest.raises(NotTogether):
        use(Lanes(np.array([1, 2])))


def test_no_product_is_too_large() -> None:
    large = Lanes(np.array([1, 1 << 40]))
    assert (large * (1 << 21)).values.tolist() == [1 << 21, 1 << 61]
    with pytest.raises(NotTogether):
        large * (1 << 22)
