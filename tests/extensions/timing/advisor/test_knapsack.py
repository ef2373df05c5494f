"""The choice of items: by hand, and beside every choice there is."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer_timing.advisor.knapsack import Row, cheapest


def test_nothing_is_chosen_where_all_fits() -> None:
    assert cheapest([1.0, 2.0], [Row(10, {0: -4})], 10) == ()


def test_the_cheapest_choice_by_hand() -> None:
    """Three blocks of 4, 3 and 6 bytes; 7 too many at the peak. The first two free 7 for 5; the third with either of
    the others costs more; the third alone frees too little."""
    rows = [Row(17, {0: -4, 1: -3, 2: -6})]
    assert cheapest([3.0, 2.0, 4.0], rows, 10) == (0, 1)
    assert cheapest([3.0, 2.0, 2.5], rows, 10) == (1, 2)
    assert cheapest([3.0, 2.0, 2.5], rows, 12) == (2,)


def test_a_block_frees_only_while_it_is_not_there() -> None:
    """The second row is the moment at which only the later item is away: the earlier one, although cheaper, frees
    nothing there."""
    rows = [Row(12, {0: -4, 1: -4}), Row(12, {1: -4})]
    assert cheapest([1.0, 2.0], rows, 8) == (1,)


def test_what_runs_again_takes_memory_itself() -> None:
    """The first item frees as much, but when it runs again 3 bytes more are there than the limit has."""
    rows = [Row(12, {0: -4, 1: -4}), Row(10, {0: 3})]
    assert cheapest([1.0, 2.0], rows, 10) == (1,)


def test_there_is_none() -> None:
    assert cheapest([1.0], [Row(12, {0: -1})], 10) is None
    assert cheapest([1.0], [Row(12, {})], 10) is None


def test_of_equal_choices_the_earlier_items() -> None:
    rows = [Row(100, dict.fromkeys(range(12), -10))]
    assert cheapest([0.25] * 12, rows, 70) == (0, 1, 2)


def test_sizes_of_a_gpu_to_the_byte() -> None:
    """One byte too few does not count as enough, at 80 GB."""
    live = 80 * 10**9
    assert cheapest([1.0, 5.0], [Row(live, {0: -(10**9), 1: -(10**9) - 1})], live - 10**9) == (0,)
    assert cheapest([1.0, 5.0], [Row(live, {0: -(10**9), 1: -(10**9) - 1})], live - 10**9 - 1) == (1,)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 60), st.integers(0, 12), st.integers(1, 9)),
        min_size=1,
        max_size=7,
    ),
    st.integers(0, 260),
    st.integers(0, 40),
)
def test_as_good_as_the_best_of_all_choices(
    chain: list[tuple[int, int, int, int]], limit: int, besides: int
) -> None:
    """A chain of blocks: each is kept from its forward pass to its backward pass, whose windows lie in one another. Of
    each: bytes kept, bytes freed (at most those), bytes while it runs again, cost."""
    kept = [nbytes for nbytes, _, _, _ in chain]
    freed = [min(nbytes, most) for nbytes, most, _, _ in chain]
    rows = [Row(besides, {})]
    for last in range(len(chain)):
        away = {item: -freed[item] for item in range(last + 1)}
        rows.append(Row(sum(kept[: last + 1]) + besides, away))  # after its forward pass
        before = {item: -freed[item] for item in range(last)}
        rows.append(Row(sum(kept[: last + 1]) + besides, {**before, last: chain[last][2]}))  # it runs again
    costs = [float(cost) for _, _, _, cost in chain]
    choices = [
        choice
        for count in range(len(chain) + 1)
        for choice in combinations(range(len(chain)), count)
        if all(row.bytes_of(choice) <= limit for row in rows)
    ]
    found = cheapest(costs, rows, limit)
    if not choices:
        assert found is None
        return
    assert found in choices
    assert sum(costs[item] for item in found) == min(
        sum(costs[item] for item in choice) for choice in choices
    )
