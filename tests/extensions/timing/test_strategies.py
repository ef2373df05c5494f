"""Which of two ways is faster: pairs counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.timing.strategies import (
    Way,
    is_apart,
    kind_of,
    lines,
    pairs_of,
    recorded,
    table_of_pairs,
    trials,
)


def way(said: float, *times: float, program: str = "net.py", **changes: Any) -> Way:
    return Way(program, changes, times, said, 0.9 * said, 1.1 * said, "host")


def test_a_pair_differs_by_more_than_five_percent_and_is_of_one_program() -> None:
    quick, near, slow = way(1.0, 1.0), way(1.0, 1.04), way(1.0, 1.2)
    other = way(1.0, 2.0, program="other.py")
    assert pairs_of([slow, near, quick, other]) == [(near, slow), (quick, slow)]


def test_what_was_tried_more_than_once_counts_by_its_mean() -> None:
    quick, slow = way(1.0, 1.0, 1.2), way(1.0, 1.15, 1.35)
    assert quick.measured == pytest.approx(1.1)
    assert pairs_of([slow, quick]) == [(quick, slow)]
    assert not is_apart(quick, slow)  # the quick one's slower trial took longer than the slow one's faster
    assert is_apart(way(1.0, 1.0, 1.1), slow)


def test_a_pair_is_of_the_kind_of_what_differs() -> None:
    plain, divided = way(1.0, 1.0), way(1.0, 2.0, batch=4, grad_accumulation=2, channels_last=True)
    assert kind_of(plain, divided) == "micro-batches, channels last"


def test_the_section_counts_what_is_named_rightly() -> None:
    ways = [way(1.0, 1.0), way(2.0, 1.5, checkpoint="h.*")]
    ways += [way(1.5, 3.0, grad_accumulation=2), way(2.5, 6.0, grad_accumulation=4)]
    program, one, two, *_ = (line for line in table_of_pairs(ways).splitlines()[2:])
    assert program.startswith(
        "| net.py | 6 | 5 | 83% | 5 of 6 | 4 | 41.7% / 58.3% | 1 of 4 | net.py: grad_accumulation=4, -58%"
    )
    assert one.startswith("| differ in: micro-batches | 3 | 3 | 100% | 3 of 3 | ")
    assert two.startswith("| kinds of one or two | 3 | 2 | 67% | 2 of 3 | ")
    every = lines(ways)
    assert "| net.py | checkpoint=h.* | 1.5 | 2 | 1.8 | 2.2 | host |" in every


def test_trials_of_both_records_are_of_the_same_ways() -> None:
    took = recorded()
    assert len(took) == 59
    assert {len(times) for _, _, times in took.values()} == {1, 2, 3}
    again = {"program": "net.py", "changes": {"batch": 2}, "seconds": 1.0}
    failed = {"program": "net.py", "changes": {"batch": 4}, "out_of_memory": "no"}
    assert [times for _, _, times in trials([again, failed], [again]).values()] == [[1.0, 1.0]]
