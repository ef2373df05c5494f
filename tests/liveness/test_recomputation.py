"""What must be kept where the rest is computed again: by hand, and against every choice there is."""

from __future__ import annotations

from itertools import combinations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analyzer.graph import Birth, Category, Graph, Operator, Phase
from analyzer.liveness.lifetimes import saved_for_backward
from analyzer.liveness.recomputation import Recomputation, recomputation
from tests.liveness.programs import Builder, programs

THERE = (Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE, Category.INPUT)


def chain() -> Graph:
    """x -> a (100) -> b (40) -> c (60), all of them read in backward; the second operator is a product."""
    b = Builder()
    b.birth("x", 8, Category.INPUT)
    for name, nbytes, reads, kind in (("a", 100, "x", "gelu"), ("b", 40, "a", "mm"), ("c", 60, "b", "gelu")):
        b.storage(name, nbytes, Category.SAVED, saved=True)
        b.run(kind, reads, name)
    b.phase = Phase.BACKWARD
    b.storage("g", 4, Category.GRADIENT)
    b.run("backward", "a b c", "g")
    return b.graph()


def test_a_chain_by_hand() -> None:
    graph = chain()
    saved = saved_for_backward(graph).storages
    assert recomputation(graph, saved, lambda _: True) == Recomputation(200, 0, (0, 1, 2))  # all from x
    # b is kept, since no product runs twice: a follows from x, c from b.
    assert recomputation(graph, saved, lambda operator: operator.name != "mm") == Recomputation(
        200, 40, (0, 2)
    )
    assert recomputation(graph, saved, lambda _: False) == Recomputation(200, 200, ())
    # Where b is there in any case, a and c cost nothing.
    assert recomputation(graph, (1, 3), lambda operator: operator.name != "mm", kept=(2,)) == Recomputation(
        160, 0, (0, 2)
    )


def test_what_was_written_into_needs_those_that_wrote() -> None:
    b = Builder()
    b.birth("x", 8, Category.INPUT)
    b.storage("a", 100, Category.SAVED, saved=True)
    b.run("mm", "x", "a")
    b.run("relu_", "a", "a", writes="a")
    b.phase = Phase.BACKWARD
    b.storage("g", 4, Category.GRADIENT)
    b.run("backward", "a", "g")
    graph = b.graph()
    assert recomputation(graph, (1,), lambda operator: operator.name != "relu_").kept_bytes == 100
    assert recomputation(graph, (1,), lambda _: True) == Recomputation(100, 0, (0, 1))


FORWARD = (Phase.FORWARD, Phase.LOSS)


def least(graph: Graph, saved: list[int], again: set[int]) -> int:
    """The fewest bytes, by trying every choice of what to keep."""
    made: dict[int, list[Operator]] = {}
    born = [moment.storage for moment in graph.program if isinstance(moment, Birth)]
    for operator in graph.operators:
        if operator.phase in FORWARD:
            for storage in {*operator.writes, *(output.storage for output in operator.outputs if output)}:
                made.setdefault(storage, []).append(operator)

    def known(storage: int, kept: set[int]) -> bool:
        entry = graph.storages[storage]
        return storage in kept or entry.category in THERE or not entry.on_device or follows(storage, kept)

    def follows(storage: int, kept: set[int]) -> bool:
        return storage not in born and all(
            operator.index in again
            and all(
                max((writer.index for writer in made.get(read, [])), default=-1) <= operator.index
                and known(read, kept)
                for read in {tensor.storage for tensor in operator.inputs} - {storage}
                if graph.storages[read].category not in THERE and graph.storages[read].on_device
            )
            for operator in made.get(storage, [])
        )

    choices = [
        set(kept)
        for count in range(len(graph.storages) + 1)
        for kept in combinations(range(len(graph.storages)), count)
    ]
    enough = [kept for kept in choices if all(storage in kept or follows(storage, kept) for storage in saved)]
    return min(sum(graph.storages[storage].nbytes for storage in kept) for kept in enough)


@settings(max_examples=150, deadline=None)
@given(programs(), st.sets(st.integers(0, 24)))
def test_against_every_choice(graph: Graph, never: set[int]) -> None:
    saved = [
        index for index in saved_for_backward(graph).storages if graph.storages[index].category not in THERE
    ]
    assume(len(graph.storages) <= 10)
    again = {operator.index for operator in graph.operators} - never
    found = recomputation(graph, saved, lambda operator: operator.index in again)
    assert found.kept_bytes == least(graph, saved, again)
    assert found.saved_bytes == sum(graph.storages[index].nbytes for index in saved)
    assert set(found.operators) <= again
