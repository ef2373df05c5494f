"""Predicted allocations beside recorded ones, on sequences written by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from analyzer.graph import Category, Graph, Operator
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer_verify.history import compare_history
from analyzer_verify.runs.program import encode


def malloc(key: int, nbytes: int, operator: int = -1, label: str = "") -> Malloc:
    return Malloc(key, nbytes, Category.ACTIVATION, operator, label=label)


EVENTS: list[AllocationEvent] = [
    malloc(0, 100, label="weight"),
    Event("model"),
    malloc(1, 40, 0, "aten::mm"),
    malloc(9, 0),
    Free(1),
    Free(0),
    malloc(2, 7, 1, "aten::add"),
    Event("0.forward"),
]
OPERATORS = tuple(
    Operator(index, name, (), (), module=f"layer{index}", source=f"m.py:{index}")
    for index, name in enumerate(("aten::mm", "aten::add"))
)
GRAPH = Graph("pytorch", (), OPERATORS, ())


def test_equal_sequences_have_no_difference_whatever_the_order_of_returns() -> None:
    for recorded in ([100, 40, -2, -1, 7], [100, 40, -1, -2, 7]):
        found = compare_history(EVENTS, recorded, GRAPH)
        assert found.same and found.predicted_count == found.recorded_count == 3
        assert not found.missing and not found.extra


def test_a_request_of_another_size_is_named_with_operator_module_and_line() -> None:
    found = compare_history(EVENTS, [100, 48, -2, -1, 7], GRAPH)
    assert found.first is not None
    assert (found.first.request, found.first.event) == (1, "0.forward")
    assert (found.first.operator, found.first.module, found.first.source) == ("aten::mm", "layer0", "m.py:0")
    assert (found.first.predicted_bytes, found.first.recorded_bytes) == (40, 48)
    assert found.missing == {48: 1} and found.extra == {40: 1}


def test_a_return_that_comes_too_late_is_told_by_its_label() -> None:
    found = compare_history(EVENTS, [100, 40, -2, 7], GRAPH)
    assert found.first is not None and found.first.request == 2
    assert "request 0 (weight) should have been given back" in found.first.what
    assert found.first.operator == "aten::add" and not found.missing and not found.extra


def test_a_return_nobody_predicted() -> None:
    found = compare_history(EVENTS, [100, -1, 40, -2, 7], GRAPH)
    assert found.first is not None and found.first.request == 1
    assert "request 0 (weight) was given back before it" in found.first.what


def test_requests_beyond_the_prediction_and_short_of_it() -> None:
    more = compare_history(EVENTS, [100, 40, -2, -1, 7, 5, 5], GRAPH).first
    assert more is not None and more.what == "predicted the end, recorded 5 bytes"
    less = compare_history(EVENTS, [100, 40, -2, -1], GRAPH).first
    assert less is not None and less.what == "predicted 7 bytes for aten::add, recorded the end"


def test_what_is_left_at_the_end_counts() -> None:
    found = compare_history([*EVENTS, Free(2)], [100, 40, -2, -1, 7], None)
    assert found.first is not None and found.first.request == 3


def test_the_recorded_trace_forgets_blocks_older_than_itself() -> None:
    def entry(action: str, address: int, size: int) -> dict[str, object]:
        return {"action": action, "addr": address, "size": size}

    trace = [
        entry("free_completed", 64, 10),
        entry("segment_alloc", 0, 2 << 20),
        entry("alloc", 0, 10),
        entry("free_requested", 0, 10),
        entry("free_completed", 0, 10),
        entry("alloc", 0, 30),
        entry("free_completed", 0, 30),
    ]
    assert encode(trace) == [10, -1, 30, -2]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), max_size=30))
def test_a_history_made_from_a_prediction_agrees_with_it(steps: list[tuple[int, int]]) -> None:
    """Whatever the program: requests in order, sometimes the oldest living one given back."""
    events: list[AllocationEvent] = []
    recorded: list[int] = []
    living: list[int] = []
    for number, (nbytes, returns) in enumerate(steps):
        events.append(malloc(number, nbytes))
        recorded.append(nbytes)
        living.append(number)
        for _ in range(min(returns, len(living))):
            gone = living.pop(0)
            events.append(Free(gone))
            recorded.append(-1 - gone)
    assert compare_history(events, recorded, None).same
    if recorded:
        recorded[0] += 1
        assert not compare_history(events, recorded, None).same
