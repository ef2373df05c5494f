"""Searches for the largest batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from analyzer.planning.search import bisected, galloped


@given(st.integers(0, 500), st.integers(1, 400), st.data())
def test_where_it_begins_does_not_change_what_is_found(low: int, wide: int, data: st.DataObject) -> None:
    high = low + wide
    answer = data.draw(st.integers(low, high - 1))
    near = data.draw(st.integers(low, high - 1))
    asked: list[int] = []

    def runs(batch: int) -> bool:
        asked.append(batch)
        return batch <= answer

    assert galloped(near, low, high, runs) == bisected(low, high, lambda batch: batch <= answer) == answer
    # Twice as many as the distance has bits, and the first.
    assert len(set(asked)) <= 2 * abs(answer - near).bit_length() + 2


@given(st.sets(st.integers(1, 60)), st.integers(0, 60))
def test_what_is_found_runs_and_its_successor_does_not(gaps: set[int], near: int) -> None:
    """Also where memory is fragmented and some batches below do not run."""
    found = galloped(near, 0, 61, lambda batch: batch not in gaps)
    assert found == 0 or found not in gaps
    assert found == 60 or found + 1 in gaps
