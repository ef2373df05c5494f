"""Live ranges on programs computed by hand, and against the rules stated again as plain definitions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from analyzer.graph import Birth, Category, Death, Graph, Operator, Phase, Run, Storage, TensorMeta
from analyzer.liveness.lifetimes import (
    Peak,
    Policy,
    Saved,
    lifetimes,
    live_bytes,
    peak,
    saved_for_backward,
)
from tests.liveness.programs import Builder, programs

POLICIES: tuple[Policy, ...] = ("last_use", "eager", "never")


def chain() -> Builder:
    """Inference: x(100) -> a(40) -> b(60) -> y(8); Python keeps a until b exists and drops b late."""
    b = Builder()
    b.birth("w", 10, Category.PARAMETER)  # 0
    b.birth("x", 100, Category.INPUT)  # 1
    b.storage("a", 40)
    b.run("first", "x w", "a")  # 2
    b.storage("b", 60)
    b.run("second", "a w", "b")  # 3
    b.storage("y", 8)
    b.run("third", "b", "y")  # 4
    b.death("a b")  # 5, 6
    return b


def test_chain_by_hand() -> None:
    b = chain()
    graph = b.graph()
    assert lifetimes(graph, "last_use").first == (0, 1, 2, 3, 4)
    # w to the end, x to the end of its step, a and b to their readers; y is the caller's: to the end of the step.
    assert lifetimes(graph, "last_use").last == (6, 4, 3, 4, 4)
    assert lifetimes(graph, "eager").last == (6, 6, 4, 5, 6)
    assert lifetimes(graph, "never").last == (6, 6, 6, 6, 6)
    assert live_bytes(graph, lifetimes(graph, "last_use")) == (10, 110, 150, 210, 178, 10, 10)
    assert peak(graph, "last_use") == Peak(210, 3, 1, (1, 3, 2, 0))
    assert peak(graph, "eager") == Peak(10 + 100 + 40 + 60 + 8, 4, 2, (1, 3, 2, 0, 4))
    assert peak(graph, "never").nbytes == 218
    assert saved_for_backward(graph) == Saved(0, (), 0, -1)


def training() -> Builder:
    """Two steps of w·x with a hidden h and its gradient; SGD's update reads the gradient in place."""
    b = Builder()
    b.birth("w", 16, Category.PARAMETER)
    for step in (0, 1):
        b.step = step
        b.birth(f"x{step}", 100, Category.INPUT)
        if step:
            b.death("x0")
        b.phase = Phase.FORWARD
        b.storage(f"h{step}", 80, Category.SAVED, saved=True)
        b.storage(f"t{step}", 300)
        b.run("mul", f"x{step} w", f"h{step} t{step}")  # t: a scratch result nobody reads, dropped at once
        b.death(f"t{step}")
        b.storage(f"y{step}", 40)
        b.run("square", f"h{step}", f"y{step}")
        b.phase = Phase.BACKWARD
        b.storage(f"gh{step}", 80, Category.GRADIENT)
        b.run("square_backward", f"y{step} h{step}", f"gh{step}")
        b.death(f"h{step}")
        b.storage(f"gw{step}", 16, Category.GRADIENT)
        b.run("mul_backward", f"gh{step} x{step}", f"gw{step}")
        b.death(f"gh{step}")
        b.phase = Phase.OPTIMIZER
        b.run("update", f"w gw{step}", "w", writes="w")
        b.mark(f"{step}.step")
    return b


def test_training_by_hand() -> None:
    b = training()
    graph = b.graph()
    ranges = lifetimes(graph, "last_use")
    run_at = {m.operator: p for p, m in enumerate(graph.program) if isinstance(m, Run)}
    last = {storage.name: ranges.last[storage.index] for storage in graph.storages}
    assert last["w"] == len(graph.program) - 1
    assert last["x0"] == run_at[4]  # the caller's, but only to the end of its step, though it dies later
    assert last["t0"] == run_at[0]  # nobody reads it: as eagerly as the program
    assert last["h0"] == run_at[2]  # saved for the backward pass
    assert last["y0"] == run_at[2]  # Python holds it into the next step; a perfect executor does not
    assert last["gh0"] == run_at[3]
    assert last["gw0"] == run_at[4]  # until the optimizer has used it
    assert last["x1"] == run_at[9]
    # w, x, h and t together while the first operator runs.
    found = peak(graph)
    assert (found.nbytes, found.operator, b.names(found.members)) == (496, 0, ["t0", "x0", "h0", "w"])
    # The second iteration finds y0 and gw0 still held by Python, and x0 until x1 has arrived.
    found = peak(graph, "eager")
    assert (found.nbytes, found.operator) == (16 + 100 + 80 + 300 + 40 + 16, 5)
    assert set(b.names(found.members)) == {"w", "x1", "h1", "t1", "y0", "gw0"}
    saved = saved_for_backward(graph)
    assert (saved.nbytes, b.names(saved.storages), saved.position) == (120, ["h0", "y0"], run_at[1])
    assert saved.live_bytes == 16 + 100 + 80 + 40


def test_optimizer_state_and_buffers_stay() -> None:
    b = Builder()
    b.birth("buffer", 5, Category.BUFFER)
    b.birth("x", 7, Category.INPUT)
    b.phase = Phase.OPTIMIZER
    b.storage("moment", 11, Category.OPTIMIZER_STATE)
    b.storage("list", 13, Category.SCRATCH)
    b.run("zeros", "x", "moment list")
    b.run("update", "list moment", "", writes="moment")
    b.step = 1
    b.birth("x1", 7, Category.INPUT)
    b.run("nothing", "x1", "")
    assert lifetimes(b.graph()).last == (5, 3, 5, 3, 5)


def test_a_write_is_a_use() -> None:
    b = Builder()
    b.storage("a", 4)
    b.run("make", "", "a")
    b.run("read", "a", "")
    b.run("fill_", "a", "a", writes="a")
    assert lifetimes(b.graph()).last == (2,)


def test_host_memory_is_not_counted() -> None:
    b = Builder()
    b.birth("counter", 1000, Category.OPTIMIZER_STATE, on_device=False)
    b.storage("a", 4)
    b.run("make", "counter", "a")
    found = peak(b.graph())
    assert (found.nbytes, b.names(found.members)) == (4, ["a"])


def test_a_freed_parameter_is_not_kept() -> None:
    b = Builder()
    b.birth("w", 10, Category.PARAMETER)
    b.storage("half", 5)
    b.run("to_half", "w", "half")
    b.death("w")
    b.run("use", "half", "")
    assert lifetimes(b.graph()).last == (1, 3)


def test_micro_batches_do_not_add_up() -> None:
    b = Builder()
    for micro, nbytes in enumerate((8, 20)):
        b.phase = Phase.FORWARD
        b.storage(f"h{micro}", nbytes, saved=True)
        b.run("forward", "", f"h{micro}")
        b.phase = Phase.BACKWARD
        b.run("backward", f"h{micro}", "")
    saved = saved_for_backward(b.graph())
    assert (saved.nbytes, b.names(saved.storages), saved.live_bytes, saved.position) == (20, ["h1"], 20, 2)


def test_recomputed_activations_are_not_saved() -> None:
    """A checkpoint keeps its input; what it recomputes is born in the backward pass."""
    b = Builder()
    b.storage("x", 10, saved=True)
    b.run("before", "", "x")
    b.storage("h", 70)
    b.run("inside", "x", "h")
    b.death("h")
    b.phase = Phase.BACKWARD
    b.storage("again", 70, Category.GRADIENT)
    b.run("inside", "x", "again")
    b.run("backward", "again", "")
    saved = saved_for_backward(b.graph())
    assert (saved.nbytes, b.names(saved.storages)) == (10, ["x"])


def test_unborn_and_empty() -> None:
    empty = Graph("pytorch", (), (), ())
    for policy in POLICIES:
        assert peak(empty, policy) == Peak(0, -1, None, ())
    unborn = Graph("pytorch", (Storage(0, 8, Category.ACTIVATION),), (), ())
    for policy in POLICIES:
        ranges = lifetimes(unborn, policy)
        assert ranges.first[0] > ranges.last[0]
        assert peak(unborn, policy).nbytes == 0


def born_at(graph: Graph, storage: int) -> int | None:
    for position, moment in enumerate(graph.program):
        if moment == Birth(storage):
            return position
        if isinstance(moment, Run) and storage in {
            t.storage for t in graph.operators[moment.operator].outputs if t
        }:
            return position
    return None


def users(graph: Graph, storage: int, *, reading: bool) -> list[int]:
    """Positions of the operators that read (or, if not `reading`, read or write) a storage."""
    found = []
    for position, moment in enumerate(graph.program):
        if isinstance(moment, Run):
            operator = graph.operators[moment.operator]
            if storage in {t.storage for t in operator.inputs} or (
                not reading and storage in operator.writes
            ):
                found.append(position)
    return found


def is_live(graph: Graph, policy: Policy, storage: int, position: int) -> bool:
    """The module docstring's rules for one storage at one moment, in the words of the definitions."""
    born = born_at(graph, storage)
    if born is None or position < born:
        return False
    dies = graph.program.index(Death(storage)) if Death(storage) in graph.program else len(graph.program)
    if policy == "never":
        return True
    if position >= dies:
        return False
    if policy == "eager":
        return True
    category = graph.storages[storage].category
    if category in (Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE):
        return True
    if category is not Category.INPUT and users(graph, storage, reading=True):
        return any(position <= user for user in users(graph, storage, reading=False)) or position == born
    runs = [(p, graph.operators[m.operator].step) for p, m in enumerate(graph.program) if isinstance(m, Run)]
    step = next((step for p, step in runs if p >= born), None)
    return step is None or position <= max(p for p, s in runs if s == step)


@settings(max_examples=150, deadline=None)
@given(programs())
def test_against_the_definitions(graph: Graph) -> None:
    for policy in POLICIES:
        ranges = lifetimes(graph, policy)
        curve = []
        for position in range(len(graph.program)):
            alive = tuple(s.index for s in graph.storages if is_live(graph, policy, s.index, position))
            assert ranges.alive_at(position) == alive
            curve.append(sum(graph.storages[i].nbytes for i in alive if graph.storages[i].on_device))
        assert list(live_bytes(graph, ranges)) == curve
        found = peak(graph, policy)
        assert found.nbytes == max(curve, default=0)
        if found.nbytes:
            assert found.position == curve.index(found.nbytes)
            assert sum(graph.storages[i].nbytes for i in found.members) == found.nbytes


@settings(max_examples=150, deadline=None)
@given(programs())
def test_policies_are_ordered(graph: Graph) -> None:
    ranges = {policy: lifetimes(graph, policy) for policy in POLICIES}
    for last_use, eager, never in zip(*(ranges[policy].last for policy in POLICIES), strict=True):
        assert last_use <= eager <= never
    nbytes = [peak(graph, policy).nbytes for policy in POLICIES]
    assert nbytes == sorted(nbytes)


@settings(max_examples=150, deadline=None)
@given(programs())
def test_saved_for_backward_against_the_definition(graph: Graph) -> None:
    """At each end of a forward pass: born in forward or loss by then, read in backward after it."""
    phases = {p: graph.operators[m.operator].phase for p, m in enumerate(graph.program) if isinstance(m, Run)}
    totals = [0]
    forward_over = None
    for position, phase in phases.items():
        if phase in (Phase.FORWARD, Phase.LOSS):
            forward_over = position
        elif phase is Phase.BACKWARD and forward_over is not None:
            total = 0
            for storage in graph.storages:
                born = born_at(graph, storage.index)
                if born is None or born > forward_over or isinstance(graph.program[born], Birth):
                    continue
                reads = users(graph, storage.index, reading=True)
                later = [p for p in reads if p > forward_over and phases[p] is Phase.BACKWARD]
                if storage.on_device and later and phases[born] in (Phase.FORWARD, Phase.LOSS):
                    total += storage.nbytes
            totals.append(total)
            forward_over = None
    assert saved_for_backward(graph).nbytes == max(totals)


@pytest.mark.parametrize("operator_count", [20_000])
def test_a_large_program(operator_count: int) -> None:
    """20,000 operators with three reads each: half a second, the networkx view included (`benchmarks/`)."""

    def meta(index: int) -> TensorMeta:
        return TensorMeta(index, (256,), (1,), "float32")

    operators = tuple(
        Operator(i, "op", tuple(meta(max(0, i - k)) for k in (1, 2, 500)) if i else (), (meta(i),))
        for i in range(operator_count)
    )
    storages = tuple(Storage(i, 1024, Category.ACTIVATION) for i in range(operator_count))
    graph = Graph("pytorch", storages, operators, tuple(Run(i) for i in range(operator_count)))
    assert peak(graph, "last_use").nbytes == 1024 * 501
