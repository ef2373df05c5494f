"""The executor on programs written by hand, and what must hold for any program."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.graph import Category, Graph, Operator, Phase
from analyzer.liveness.lifetimes import peak
from analyzer.runtimes.events import AllocationEvent, Free, Malloc
from analyzer_plugins.static_graph.executor import Collection, requests
from analyzer_plugins.static_graph.variables import Dialect, variables
from tests.liveness.programs import Builder, programs

AT_ONCE = Collection()
PLAIN = Dialect(reshape_shares=False, bias_apart=False, fan_in_apart=False)


def no_workspace(_: Operator, __: int) -> tuple[int, str]:
    return 0, "exact"


def first_operand(_: Operator) -> tuple[int, ...]:
    return (0,)


def nothing(_: Operator) -> tuple[int, ...]:
    return ()


def events_of(
    graph: Graph, collection: Collection = AT_ONCE, in_place: bool = False
) -> tuple[AllocationEvent, ...]:
    return requests(
        variables(graph, PLAIN),
        collection=collection,
        in_place=first_operand if in_place else nothing,
        workspace=no_workspace,
    )


def peak_bytes(events: tuple[AllocationEvent, ...]) -> int:
    """Simulates the events; every free is of something alive, every key is taken once at a time."""
    alive: dict[int, int] = {}
    most = 0
    for event in events:
        if isinstance(event, Malloc):
            assert event.key not in alive
            alive[event.key] = event.nbytes
            most = max(most, sum(alive.values()))
        elif isinstance(event, Free):
            del alive[event.key]
    return most


def row(builder: Builder, step: int, count: int) -> None:
    """One run: a feed x of 400 bytes and a row of `count` operators on tensors of that size."""
    builder.step = step
    builder.birth(f"x{step}", 400, Category.INPUT)
    before = f"x{step}"
    for number in range(count):
        builder.storage(f"t{step}{number}", 400)
        builder.run("op", before, f"t{step}{number}")
        before = f"t{step}{number}"
    builder.death(f"x{step}")


@pytest.mark.parametrize(
    ("collection", "in_place", "tensors"),
    [
        (Collection(), False, 3),
        (Collection(), True, 2),
        # A block of 400 bytes is 512 of garbage: x and t0 make 1,024, t0 goes when t1 has been made; but t1 waits for t2,
        # so that at t3 the feed, t1, t2 and t3 are held.
        (Collection(threshold_bytes=1024), False, 4),
        # x, t0 and t1 make 1,536: at t2 the feed, t0, t1 and t2 are held; then t0 and t1 go.
        (Collection(threshold_bytes=1536), False, 4),
        (Collection(threshold_bytes=None), False, 5),
        (Collection(threshold_bytes=None), True, 2),
    ],
)
def test_a_row_of_operators(collection: Collection, in_place: bool, tensors: int) -> None:
    """x, t0, t1, t2, t3 of 400 bytes each: the feed stays, of the others two are alive at a time, or one in place."""
    builder = Builder()
    row(builder, 0, 4)
    assert peak_bytes(events_of(builder.graph(), collection, in_place)) == 400 * tensors


def test_what_is_kept_goes_when_the_next_run_has_been_fed() -> None:
    """Two runs of x and t0, t1: with nothing collected the second run begins beside all three."""
    builder = Builder()
    row(builder, 0, 2)
    row(builder, 1, 2)
    events = events_of(builder.graph(), Collection(threshold_bytes=None))
    assert peak_bytes(events) == 400 * 4 - 400  # x0 has died by then: t00, t01 and x1, then x1, t10, t11
    assert peak_bytes(events_of(builder.graph())) == 400 * 3


def test_persistable_variables_and_feeds_are_never_written_into() -> None:
    builder = Builder()
    builder.birth("w", 400, Category.PARAMETER)
    builder.birth("x", 400, Category.INPUT)
    for name, read in (("a", "w"), ("b", "x")):
        builder.storage(name, 400)
        builder.run("op", read, name)
    assert peak_bytes(events_of(builder.graph(), in_place=True)) == 1600


def test_the_optimizer_asks_for_its_state_only_and_before_the_first_run() -> None:
    builder = Builder()
    builder.birth("w", 400, Category.PARAMETER)
    builder.birth("x", 400, Category.INPUT)
    builder.phase = Phase.BACKWARD
    builder.storage("g", 400, Category.GRADIENT)
    builder.run("op", "x w", "g")
    builder.phase = Phase.OPTIMIZER
    builder.storage("moment", 400, Category.OPTIMIZER_STATE)
    builder.storage("temporary", 4000)
    builder.run("moments", "g", "moment")
    builder.run("update", "g moment w", "temporary w", writes="w")
    order = [event.label for event in events_of(builder.graph()) if isinstance(event, Malloc)]
    assert order == ["w", "moment", "x", "op"]


@settings(max_examples=150, deadline=None)
@given(graph=programs(), threshold=st.integers(0, 400), fraction=st.floats(0.01, 1))
def test_collecting_less_never_needs_less(graph: Graph, threshold: int, fraction: float) -> None:
    """At once, at a threshold, in part, never: each holds at least as much; in place never more than without."""
    at_once = peak_bytes(events_of(graph))
    assert at_once <= peak_bytes(events_of(graph, Collection(threshold)))
    assert at_once <= peak_bytes(events_of(graph, Collection(0, fraction)))
    assert at_once <= peak_bytes(events_of(graph, Collection(None)))
    assert peak_bytes(events_of(graph, in_place=True)) <= at_once


@settings(max_examples=150, deadline=None)
@given(graph=programs())
def test_nothing_is_held_for_less_than_its_readers_need(graph: Graph) -> None:
    """Without in-place operators at least what liveness says, but for the optimizer's temporaries, which are not made."""
    if any(operator.phase is Phase.OPTIMIZER for operator in graph.operators):
        return
    assert peak_bytes(events_of(graph)) >= peak(graph).nbytes
