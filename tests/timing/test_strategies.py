"""Which of two ways is faster: pairs counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.timing.strategies import Way, is_apart, kind_of, pairs_of, recorded, section, trials


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
    ways = [way(1.0, 1.0), way(2.0, 1.5, checkpoint="h.*"), way(1.5, 3.0, grad_accumulation=2)]
    title, opening, counts, rows = section(ways, {"gpu": "G", "torch": "2", "date": "today"})
    assert title == "## Which way is faster"
    assert "Of 3 pairs" in opening and "**the faster is named in 66.7%** (2)" in opening
    assert "| differ in: micro-batches, checkpoints | 1 | 0 | 0% |" in counts
    assert "| net.py | checkpoint h.* | 1500.0 | 2000.0 | +33% | 1800.0 to 2200.0 (no) | host |" in rows


def test_trials_of_both_records_are_of_the_same_ways() -> None:
    took = recorded()
    assert len(took) == 59
    assert {len(times) for _, _, times in took.values()} == {1, 2, 3}
    again = {"program": "net.py", "changes": {"batch": 2}, "seconds": 1.0}
    failed = {"program": "net.py", "changes": {"batch": 4}, "out_of_memory": "no"}
    assert [times for _, _, times in trials([again, failed], [again]).values()] == [[1.0, 1.0]]
