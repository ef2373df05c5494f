"""A session's events, its plan and its scratch on graphs worked out by hand; figures in bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analyzer import devices
from analyzer.runtimes.events import Event, Free, Malloc
from analyzer.runtimes.onnxruntime.frame import frame
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels import packing
from analyzer.runtimes.onnxruntime.kernels.scratch import KernelSettings, before_outputs, scratch, unknown
from analyzer.runtimes.onnxruntime.kernels.scratch.convolution import convolution_of
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.plain_arena import Reached
from analyzer.runtimes.onnxruntime.plan.order import execution, streams, topological
from analyzer.runtimes.onnxruntime.plan.pattern import MemoryPattern, PatternPlanner, aligned
from analyzer.runtimes.onnxruntime.plan.planner import Kind, locations, plan, same_size
from analyzer.runtimes.onnxruntime.session import record
from analyzer.runtimes.onnxruntime.simulation import (
    RunFigures,
    _chosen,
    simulate_session,
    simulate_typical_order,
)
from tests.runtimes.onnxruntime.graphs import build

H200 = devices.load("h200")
KIB = 1024


def told(graph: RuntimeGraph, **options: Any) -> list[str]:
    """The session's events: "+label bytes", "-label", "=event"; "!" outside any stream, "^" apart."""
    settings = SessionOptions(**options)
    events = record(frame(graph, settings), settings, H200).events
    names: dict[int, str] = {}
    lines = []
    for event in events:
        if isinstance(event, Malloc):
            names[event.key] = event.label
            marks = ("!" if event.stream is None else "") + ("^" if event.outside_pools else "")
            lines.append(f"+{event.label} {event.nbytes}{marks}")
        elif isinstance(event, Free):
            lines.append(f"-{names[event.key]}")
        else:
            assert isinstance(event, Event)
            lines.append(f"={event.name}")
    return lines


def chain(provider: str = "cuda") -> RuntimeGraph:
    """x [4, 64] → Add w → a → Exp → b → Exp → y: a dies when b is made, b when y is."""
    return build("Add x w -> a; Exp a -> b; Exp b -> y", {"x": ("n", 64)}, {"w": (64,)}, provider=provider)


def test_a_session_and_two_runs() -> None:
    """The first run records; the second takes the pattern's block, 2 KiB for a and b, and its output."""
    assert told(chain()) == [
        "+w 256!",
        "=session",
        "+x 1024", "+a 1024", "+b 1024", "-a", "+y 1024", "-b", "-y", "-x",
        "=run 1",
        "+x 1024", "+memory pattern 2048", "+y 1024", "-memory pattern", "-y", "-x",
        "=run 2",
    ]  # fmt: skip


def test_without_a_pattern_both_runs_are_alike() -> None:
    run = ["+x 1024", "+a 1024", "+b 1024", "-a", "+y 1024", "-b", "-y", "-x"]
    assert told(chain(), enable_mem_pattern=False) == ["+w 256!", "=session", *run, "=run 1", *run, "=run 2"]


def test_initializers_may_be_taken_apart() -> None:
    assert told(chain(), use_device_allocator_for_initializers=True)[0] == "+w 256!^"


@pytest.mark.parametrize(("count", "kept"), [(31, True), (32, False), (0, False)])
def test_the_cpu_reserves_small_initializers_only(count: int, kept: bool) -> None:
    """Up to 127 bytes; nothing on the CPU is made for a stream, and its input is the caller's."""
    graph = build("Sum x w -> y", {"x": (4,)}, {"w": (count,)}, provider="cpu")
    first = told(graph, provider="cpu")
    assert first[:2] == ([f"+w {4 * count}!^", "=session"] if kept else ["=session", "+y 16!"])


def test_reuse_keeps_a_buffer_to_its_last_reader() -> None:
    """b works in a's buffer (Relu), so that it is given back when c, reading b, has been made."""
    graph = build("Exp x -> a; Relu a -> b; Exp b -> c; Exp c -> y", {"x": (64,)})
    assert told(graph)[1:10] == [
        "+x 256", "+a 256", "+c 256", "-a", "+y 256", "-c", "-y", "-x", "=run 1",
    ]  # fmt: skip
    apart = told(graph, enable_mem_reuse=False)
    assert "+b 256" in apart


def test_outputs_nobody_reads_live_to_the_end_of_the_run() -> None:
    graph = build("Split x -> a b; Exp a -> y", {"x": (64,), "a": (32,), "b": (32,)})
    assert told(graph)[1:8] == ["+x 256", "+a 128", "+b 128", "+y 128", "-a", "-b", "-y"]


def test_scratch_is_given_back_after_the_outputs_in_reverse() -> None:
    """Softmax over another axis than the last: two transposed copies."""
    graph = build("Softmax x -> y", {"x": (8, 8)}, attributes={"y": {"axis": 0}})
    assert told(graph)[1:7] == [
        "+x 256", "+y 256", "+n0 scratch 256", "+n0 scratch 256", "-n0 scratch", "-n0 scratch",
    ]  # fmt: skip
    early = build("NonZero x -> y", {"x": (8, 8), "y": (2, 64)}, dtypes={"y": "int64"})
    assert told(early)[2:5] == ["+n0 scratch 4", "+n0 scratch 1023", "+y 1024"]


def test_values_on_the_host_take_nothing_of_the_device() -> None:
    graph = build(
        "Shape x -> s; Expand w s -> y",
        {"x": (64,), "s": (1,), "y": (64,)},
        {"w": (1,)},
        dtypes={"s": "int64"},
    )
    assert told(graph)[:4] == ["+w 4!", "=session", "+x 256", "+y 256"]


def test_unknown_operators_are_counted_in_one_run() -> None:
    graph = build("mine.Foo x -> a; mine.Foo a -> y", {"x": (64,)})
    settings = SessionOptions()
    recording = record(frame(graph, settings), settings, H200)
    assert recording.unknown == {"mine.Foo": 2}
    assert told(graph)[1:4] == ["+x 256", "+a 256", "+y 256"]
    assert [mark.run for mark in recording.kernels] == [1, 1, 2, 2]
    assert all(mark.top for mark in recording.kernels)


def looping(op: str, inner: RuntimeGraph, **more: Any) -> RuntimeGraph:
    graph = build(f"Exp x -> a; {op} c a -> b; Exp b -> y", {"x": (64,), "c": (), "b": (64,)}, **more)
    graph.nodes[1].bodies = {"then_branch" if op == "If" else "body": inner}
    graph.nodes[1].counted = "then_branch"
    return graph


def test_a_branch_writes_the_nodes_outputs_and_has_a_pattern_of_its_own() -> None:
    branch = build("Exp k -> p; Exp p -> q", {"k": (64,)}, outputs=("q",))
    branch.outer, branch.inputs = frozenset({"k"}), []
    events = told(looping("If", branch))
    first, second = (
        events[events.index("=session") + 1 : events.index("=run 1")],
        events[events.index("=run 1") + 1 :],
    )
    assert first[:7] == ["+x 256", "+a 256", "+b 256", "+p 256", "-p", "-a", "+y 256"]
    # Two patterns: the graph's (a, b) and the branch's (p).
    assert second.count("+memory pattern 256") + second.count("+memory pattern 512") == 2
    assert "+p 256" not in second and "+q 256" not in events


def test_a_branch_makes_what_it_does_not_know_the_shape_of() -> None:
    branch = build("Exp k -> p; Exp p -> q", {"k": (64,)}, outputs=("q",))
    branch.outer, branch.inputs, branch.values["q"].symbols = frozenset({"k"}), [], ("n",)
    events = told(looping("If", branch))
    assert events[events.index("=session") + 1 :][:5] == ["+x 256", "+a 256", "+p 256", "+b 256", "-p"]


def test_the_other_branch_is_loaded_and_not_run() -> None:
    taken, other = build("Exp k -> q", {"k": (64,)}), build("Mul k v -> q", {"k": (64,)}, {"v": (64,)})
    for branch in (taken, other):
        branch.outer, branch.inputs, branch.outputs = frozenset({"k"}), [], ["q"]
    graph = looping("If", taken)
    graph.nodes[1].bodies["else_branch"] = other
    events = told(graph)
    assert "+v 256!" in events[: events.index("=session")]
    assert not [kernel for kernel in events if "Mul" in kernel]


def test_a_loop_body_runs_twice_and_its_second_finds_what_the_first_carries() -> None:
    body = build("Exp k -> p; Exp p -> q", {"i": (), "going": (), "k": (64,)}, outputs=("q",))
    events = told(looping("Loop", body))
    first = events[events.index("=session") + 1 : events.index("=run 1")]
    inner = first[first.index("+a 256") + 1 : first.index("+b 256")]
    assert inner == [
        "+p 256",
        "+q 256",
        "-p",
        "+p 256",
        "+q 256",
        "-p",
    ]  # both q are there when the result is copied
    on_cpu = looping(
        "Loop",
        build("Exp k -> q", {"i": (), "going": (), "k": (64,)}, outputs=("q",), provider="cpu"),
        provider="cpu",
    )
    assert {"+n1 counter 8!", "+n1 counter 1!"} <= set(told(on_cpu, provider="cpu"))


# Simulating


def test_stages_regions_and_peaks_are_the_arenas() -> None:
    """w 256 in a region of 1 MiB, of which all else is taken too: x, a, b are 1 KiB each."""
    settings = SessionOptions()
    simulation = simulate_session(record(frame(chain(), settings), settings, H200).events, settings)
    assert simulation.stages == {
        "session": RunFigures(256, 256, 1 << 20, 1 << 20),
        "run 1": RunFigures(256, 256 + 3 * KIB, 1 << 20, 1 << 20),
        "run 2": RunFigures(256, 256 + 4 * KIB, 1 << 20, 1 << 20),
    }
    assert (simulation.peak_in_use, simulation.held, simulation.failure) == (256 + 4 * KIB, 1 << 20, None)
    (region,) = simulation.regions
    assert (region.nbytes, region.requested_bytes, region.label, region.phase) == (
        1 << 20,
        256,
        "w",
        "session",
    )


def test_a_request_that_finds_no_memory_ends_the_session() -> None:
    settings = SessionOptions(gpu_mem_limit=2560)
    simulation = simulate_session(record(frame(chain(), settings), settings, H200).events, settings)
    assert simulation.failure is not None and simulation.stages == {} and simulation.regions == ()
    failure = simulation.failure
    assert (failure.label, failure.phase, failure.requested_bytes) == ("b", "run 1", 1024)
    # a's chunk is all that is left, 1280 bytes: less than twice the request is not split.
    assert (failure.in_use, failure.held, failure.limit) == (2560, 2560, 2560)


def test_one_order_is_enough_where_it_cannot_matter() -> None:
    """Initializers of 1.5 and 0.6 MiB. The larger first: 2 MiB for it, 2 for the other, split, with room for the run. The
    smaller first: 1 MiB and 2, neither split, so 4 more for the run. With the other strategy the order is nothing."""
    text = "Sum x w v -> a; Exp a -> y"
    sizes = {"w": (3 << 17,), "v": (5 << 15,)}
    for options, shuffled in (({}, True), ({"arena_extend_strategy": "kSameAsRequested"}, False)):
        settings = SessionOptions(**options)  # type: ignore[arg-type]
        events = record(frame(build(text, {"x": (4,)}, sizes), settings), settings, H200).events
        simulation, orders = simulate_typical_order(events, settings, None, {}.__getitem__)
        peaks, (least, most) = orders.peaks, orders.held
        assert least <= simulation.held <= most and peaks[0] <= simulation.peak_in_use <= peaks[1]
        if shuffled:  # 4 and 7 MiB, half as wide again on either side
            assert (least, most) == ((4 << 20) - (3 << 19), (7 << 20) + (3 << 19))
            assert simulation.held in (4 << 20, 7 << 20)
        assert sorted(event.label for event in simulation.events[:2] if isinstance(event, Malloc)) == [
            "v",
            "w",
        ]
        assert (least < most) == shuffled


def test_an_order_may_run_where_another_finds_no_room() -> None:
    """In 3 MiB: of the two initializers above one order leaves room for the run, and the other does not."""
    settings = SessionOptions()
    sizes = {"w": (3 << 17,), "v": (5 << 15,)}
    events = record(
        frame(build("Sum x w v -> a; Exp a -> y", {"x": (4,)}, sizes), settings), settings, H200
    ).events
    swapped = (events[1], events[0], *events[2:])
    failures = [simulate_session(order, settings, 3 << 20).failure for order in (events, swapped)]
    assert [failure is None for failure in failures].count(True) == 1
    _, orders = simulate_typical_order(events, settings, 3 << 20, {}.__getitem__)
    assert 0 < orders.served < orders.tried == 21
    assert orders.doubt == f"each process loads initializers in its own order, and {orders.served} of 21 run"
    (lost,) = filter(None, failures)
    assert orders.held[1] >= lost.held + lost.requested_bytes > 3 << 20
    _, roomy = simulate_typical_order(events, settings, None, {}.__getitem__)
    assert roomy.served == roomy.tried and roomy.doubt == ""


def test_the_order_shown_lies_in_the_middle_of_all() -> None:
    """Two of five hold 4 and the others 8, 9 and 10: as many processes hold more than 8 as hold less."""
    figures = [(10, 4), (11, 4), (12, 8), (14, 9), (13, 10)]
    orders = [Reached(peak, held, held, True) for peak, held in figures]
    assert _chosen(orders) == 2


# Order


def test_the_producer_with_the_highest_index_is_followed_first_and_leaves_the_last_first() -> None:
    graph = build(
        "Exp x -> a; Neg x -> b; Abs x -> c; Add a c -> y; Exp b -> z", {"x": (2,)}, outputs=("y", "z")
    )
    assert [node.name for node in topological(graph)] == ["n1", "n4", "n2", "n0", "n3"]


def test_a_stream_goes_on_until_it_needs_another() -> None:
    """The device runs a and b and waits for c, which the host makes of a; then the device goes on."""
    graph = build("Exp x -> a; Exp a -> b; Abs a -> c; Add b c -> y", {"x": (2,)})
    graph.nodes[2].provider = "cpu"
    order = topological(graph)
    assert [[node.name for node in lane] for lane in streams(order)] == [["n0", "n1", "n3"], ["n2"]]
    assert [node.name for node in execution(graph, order)] == ["n0", "n1", "n2", "n3"]
    both = build("Exp x -> a; Abs x -> c; Neg c -> d; Add a d -> y", {"x": (2,)})
    both.nodes[1].provider = both.nodes[2].provider = "cpu"
    assert [node.name for node in execution(both, topological(both))] == ["n1", "n2", "n0", "n3"]


# Plan


def placed(graph: RuntimeGraph, **more: Any) -> dict[str, tuple[Kind, str]]:
    found = plan(graph, streams(topological(graph)), **more)
    return {name: (place.kind, place.buffer) for name, place in found.placements.items()}


@pytest.mark.parametrize(
    ("text", "shapes", "expected"),
    [
        ("Exp x -> a; Relu a -> b; Exp b -> y", {}, (Kind.REUSE, "a")),
        ("Exp x -> a; Relu a -> b; Add a b -> y", {}, (Kind.ALLOCATE, "b")),
        ("Exp x -> a; Neg a -> b; Exp b -> y", {}, (Kind.ALLOCATE, "b")),
        ("Exp x -> a; Relu a -> b; Exp b -> y", {"b": (8, 4)}, (Kind.ALLOCATE, "b")),
        ("Exp x -> a; Flatten a -> b; Add a b -> y", {"b": (32,)}, (Kind.REUSE, "a")),
        ("Relu x -> b; Exp b -> y", {}, (Kind.ALLOCATE, "b")),
        ("Flatten x -> b; Exp b -> y", {}, (Kind.REUSE, "x")),
        ("Flatten w -> b; Exp b -> y", {}, (Kind.REUSE, "w")),
        ("Exp x -> a; Neg a -> c; Neg c -> b; Exp b -> y", {}, (Kind.REUSE, "a")),
        ("Exp x -> a; Neg a -> c; Neg c -> b; Exp b -> y", {"b": (8, 4)}, (Kind.ALLOCATE, "b")),
        ("Exp x -> a; Neg a -> c; Add a c -> b; Exp b -> y", {}, (Kind.ALLOCATE, "b")),
        # Two are free, c the later: the front of the list.
        ("Exp x -> a; Neg a -> c; Neg c -> d; Neg d -> e; Neg e -> b; Exp b -> y", {}, (Kind.REUSE, "a")),
        # A scalar is never taken from the free list.
        ("Exp s -> a; Neg a -> c; Neg c -> b; Exp b -> y", {"a": (), "c": (), "b": ()}, (Kind.ALLOCATE, "b")),
    ],
)
def test_who_shares_a_buffer(text: str, shapes: dict[str, Any], expected: tuple[Kind, str]) -> None:
    graph = build(text, {"x": ("n", 8), "s": (), **shapes}, {"w": ("n", 8)})
    assert placed(graph)["b"] == expected


def test_without_reuse_only_aliases_share() -> None:
    graph = build("Exp x -> a; Relu a -> b; Flatten b -> c; Exp c -> d; Exp d -> y", {"x": (4, 8)})
    found = placed(graph, reuse=False)
    assert (found["b"], found["c"], found["d"]) == (
        (Kind.ALLOCATE, "b"),
        (Kind.REUSE, "b"),
        (Kind.ALLOCATE, "d"),
    )


def test_buffers_are_not_shared_between_host_and_device() -> None:
    graph = build("Exp x -> a; Neg a -> c; Neg c -> b; Exp b -> y", {"x": (4,)})
    graph.nodes[0].provider = "cpu"
    assert placed(graph)["b"] == (Kind.ALLOCATE, "b")
    assert locations(graph) == {"a": True, "c": False, "b": False, "y": False, "x": True}


def test_a_loop_passes_on_what_it_was_given() -> None:
    """The condition is no copy; the iteration number is."""
    graph = build("Identity k -> q; Identity i -> r", {"i": (), "k": ()}, outputs=("q", "r"))
    assert placed(graph, loop_body=True)["q"][0] is Kind.EXISTING
    assert placed(graph, loop_body=True)["r"][0] is Kind.OUTPUT
    assert placed(graph)["q"][0] is Kind.OUTPUT


def test_releases_follow_the_last_reader_of_each_stream() -> None:
    graph = build("Exp x -> a; Exp a -> b; Abs a -> c; Add b c -> y", {"x": (2,)})
    graph.nodes[2].provider = "cpu"
    found = plan(graph, streams(topological(graph)))
    assert found.release == {1: ("a",), 2: ("a",), 3: ("b", "c")}


@pytest.mark.parametrize(
    ("dtype", "symbols", "same"),
    [
        ("float32", (4, "n"), True),
        ("int32", (4, "n"), True),
        ("float16", (4, "n"), False),
        ("string", (4, "n"), False),
        ("", (4, "n"), False),
        ("float32", (4,), False),
        ("float32", None, False),
        ("float32", (4, ""), False),
        ("float32", ("n", 4), False),
    ],
)
def test_equal_sizes(dtype: str, symbols: Any, same: bool) -> None:
    values = build("Exp x -> y", {"x": (4, "n"), "y": symbols}, dtypes={"y": dtype}).values
    assert same_size(values["x"], values["y"]) is same
    assert same_size(values["y"], values["x"]) is same


# Pattern


def test_sizes_are_rounded_to_256() -> None:
    assert [aligned(size) for size in (0, 1, 255, 256, 257)] == [0, 256, 256, 256, 512]


@pytest.mark.parametrize(
    ("steps", "size", "offset"),
    [
        ("a=2 b=1 c=1 -b d=1", 4, 2),
        ("a=1 b=3 c=1 d=2 e=1 -b -d f=2", 8, 5),  # the gap of 2 rather than that of 3
        ("a=1 b=2 c=1 d=2 e=1 -b -d f=2", 7, 1),  # the first of equals
        ("a=1 b=2 c=1 d=2 e=1 -b -d f=1", 7, 1),
        ("a=1 b=3 c=1 -b d=4", 9, 5),  # no gap holds it
        ("a=2 b=2 -a c=3", 7, 4),
        ("a=2 b=2 -a c=2", 4, 0),
        ("a=1 b=3 c=1 d=2 -b -d f=2", 7, 5),  # behind the last, where the block has room: exactly as much
        ("a=1 b=2 c=1 d=3 -b -d f=2", 7, 1),
        ("a=1 b=4 c=1 d=3 -b -d f=4", 9, 1),
        ("a=1 -a b=2 c=0", 2, 0),
    ],
)
def test_where_a_tensor_goes(steps: str, size: int, offset: int) -> None:
    """Sizes and offsets in units of 256 bytes."""
    planner = PatternPlanner()
    last = ""
    for step in steps.split():
        if step.startswith("-"):
            planner.free(step[1:])
        else:
            last, _, units = step.partition("=")
            planner.allocate(last, int(units) * 256)
    at = {name: begin // 256 for name, (begin, _) in planner._living.items()}
    assert (planner.size_bytes // 256, at.get(last, at.get("b"))) == (size, offset)
    assert planner.pattern() == MemoryPattern(size * 256, frozenset(planner.members))


# Scratch


def takes(
    text: str, shapes: dict[str, Any], constants: dict[str, Any] | None = None, **more: Any
) -> list[int]:
    provider = more.pop("provider", "cuda")
    threads = more.pop("threads", 1)
    graph = build(text, shapes, constants, provider=provider, **more)
    return [
        n for n, _ in scratch(graph.nodes[0], graph, KernelSettings(provider, "EXHAUSTIVE", H200, threads))
    ]


@pytest.mark.parametrize(
    ("text", "shapes", "attributes", "expected"),
    [
        ("Softmax x -> y", {"x": (4, 8)}, {"axis": 1}, []),
        ("Softmax x -> y", {"x": (4, 8)}, {}, []),
        ("Softmax x -> y", {"x": (4, 8)}, {"axis": -2}, [128, 128]),
        ("Concat x x -> y", {"x": (4, 8)}, {"axis": 1}, []),
        ("Concat x z -> y", {"x": (4, 8), "z": (4, 2)}, {"axis": 1}, [16, 16, 80, 16]),
        ("Concat " + "x " * 32 + "-> y", {"x": (4, 8)}, {"axis": 1}, []),
        ("Concat " + "x " * 33 + "-> y", {"x": (4, 8)}, {"axis": 1}, [264]),
        ("Split x -> y z", {"x": (4, 8), "y": (4, 4), "z": (4, 4)}, {"axis": 1}, []),
        ("Split x -> y z", {"x": (4, 8), "y": (4, 6), "z": (4, 2)}, {"axis": 1}, [16, 16, 16, 64]),
        ("Split x -> y z", {"x": (8, 4), "y": (6, 4), "z": (2, 4)}, {}, [16, 16, 16, 64]),
        ("Split x -> y" + " y" * 31, {"x": (4, 32), "y": (4, 1)}, {"axis": 1}, []),
        ("Split x -> y" + " y" * 32, {"x": (4, 33), "y": (4, 1)}, {"axis": 1}, [264]),
        ("MatMul x z -> y", {"x": (2, 3, 4, 5), "z": (2, 3, 5, 6), "y": (2, 3, 4, 6)}, {}, []),
        ("MatMul x z -> y", {"x": (2, 3, 4, 5), "z": (5, 6), "y": (2, 3, 4, 6)}, {}, []),
        ("MatMul x z -> y", {"x": (4, 5), "z": (2, 3, 5, 6), "y": (2, 3, 4, 6)}, {}, []),
        ("MatMul x z -> y", {"x": (2, 3, 4, 5), "z": (2, 1, 5, 6), "y": (2, 3, 4, 6)}, {}, [48, 48, 48]),
        ("MatMul x z -> y", {"x": (4, 5), "z": (5, 6), "y": (4, 6)}, {}, []),
        ("Resize x -> y", {"x": (1, 2, 3, 4), "y": (1, 2, 6, 8)}, {"mode": "linear"}, [12 * 14]),
        ("Resize x -> y", {"x": (1, 2, 3, 4), "y": (1, 2, 6, 8)}, {"mode": "cubic"}, [24 * 14]),
        ("Resize x -> y", {"x": (1, 2, 3, 4), "y": (1, 2, 6, 8)}, {}, [8 * (17 + 4)]),
        ("TopK x k -> y", {"x": (1, 1025), "k": ()}, {}, [4096] * 4),
        ("TopK x k -> y", {"x": (1, 1024), "k": ()}, {}, []),
        ("TopK x k -> y", {"x": (2, 1025), "k": ()}, {}, []),
        ("NonZero x -> y", {"x": (256,)}, {}, [4, 1023]),
        ("NonZero x -> y", {"x": (257,)}, {}, [8, 1023]),
        ("InstanceNormalization x -> y", {"x": (2, 3, 4)}, {}, [24] * 4),
        ("InstanceNormalization x -> y", {"x": (1, 3, 4)}, {}, []),
        (
            "NonMaxSuppression x -> y",
            {"x": (1, 65, 4)},
            {},
            [260] * 5 + [1040] * 2 + [65, 4, 4, 1, 4 * 65 * 3, 1024],
        ),
        ("ArgMax x -> y", {"x": (4, 2048)}, {"axis": 1}, [4 * (8 * 2 + 4) + 15]),
        ("ArgMax x -> y", {"x": (4, 8)}, {"axis": -1}, [4 * 12 + 15]),
        ("ArgMin x -> y", {"x": (4, 8)}, {}, [256, 32, 32]),
        ("ReduceSum x -> y", {"x": (4, 8)}, {"axes": (0,)}, []),
        ("ReduceSum x -> y", {"x": (4, 8)}, {"axes": (1,)}, [4 * 4 * 2 + 15]),
        ("ReduceSum x -> y", {"x": (4, 4096)}, {"axes": (-1,)}, [4 * 4 * 5 + 15]),
        ("ReduceSum x -> y", {"x": (4, 8)}, {}, []),
        ("ReduceMax x -> y", {"x": (4, 8)}, {}, [128]),
        ("ReduceMax x -> y", {"x": (4, 8)}, {"axes": (0,)}, [128]),
        ("ReduceSum x -> y", {"x": (4, 8, 2)}, {"axes": (1,)}, [256]),
        ("com.microsoft.MatMulNBits x -> y", {"x": (9, 32)}, {"K": 32, "N": 16}, [2048]),
        ("com.microsoft.MatMulNBits x -> y", {"x": (8, 32)}, {"K": 32, "N": 16}, []),
        ("com.microsoft.MultiHeadAttention x -> y", {"x": (2, 256, 8)}, {"num_heads": 2}, []),
        (
            "com.microsoft.MultiHeadAttention x -> y",
            {"x": (2, 16, 8)},
            {"num_heads": 2},
            [3 * 1024 + 8 * 2 * 2 * 256],
        ),
        (
            "com.microsoft.GroupQueryAttention x -> y",
            {"x": (2, 16, 8)},
            {"num_heads": 2},
            [3072],  # a bound: nothing is known of its cache
        ),
        (
            "com.microsoft.Attention x w -> y",
            {"x": (2, 256, 8), "w": (8, 24)},
            {"num_heads": 2},
            [2 * 256 * 24 * 4] * 2,
        ),
        (
            "com.microsoft.Attention x w -> y",
            {"x": (2, 16, 8), "w": (8, 24)},
            {"num_heads": 2},
            [3072, 3072 + 8192],
        ),
        # [2, 16, 8] needs no transposed copies; [2, 4, 16, 8] (4096 bytes) query's and result's
        ("Attention x x x -> y", {"x": (2, 16, 8)}, {}, []),
        ("Attention x x x -> y", {"x": (2, 4, 16, 8), "y": (2, 4, 16, 8)}, {}, [4096] * 2),
        # two key heads for four of the query, or scores returned: 2 * 4 * 16 * 16 of them, twice in float32, in one block, as
        # ONNX Runtime 1.30.0's own provider asks for them; each half ends at a whole 256 bytes
        (
            "Attention x k k -> y",
            {"x": (2, 4, 16, 8), "k": (2, 2, 16, 8), "y": (2, 4, 16, 8)},
            {},
            [16384],
        ),
        ("Attention x x x -> y _ _ c", {"x": (2, 4, 16, 8), "c": (2, 4, 16, 16)}, {}, [16384]),
        # a mask whose rows of 6 are not aligned, or heads 4 wide: unfused, and in three dimensions everything transposed
        (
            "Attention x k k m -> y",
            {"x": (2, 4, 24), "k": (2, 6, 24), "m": (4, 6), "y": (2, 4, 24)},
            {"q_num_heads": 3, "kv_num_heads": 3},
            [2 * 768, 768, 768, 1152, 1152],
        ),
        (
            "Attention x x x -> y",
            {"x": (1, 2, 12), "y": (1, 2, 12)},
            {"q_num_heads": 3, "kv_num_heads": 3},
            [2 * 256, 96, 96, 96, 96],
        ),
        # with a cache of 12: new keys and values transposed, and how long each is
        (
            "Attention x x x _ c c -> y",
            {"x": (2, 4, 16, 8), "c": (2, 4, 12, 8), "y": (2, 4, 16, 8)},
            {},
            [4096] * 4 + [8],
        ),
        ("GatherND x i -> y", {"x": (4, 4, 4), "i": (5, 2)}, {}, [16, 40]),
        ("MatMul x z -> y", {"x": (4,), "z": (3, 4, 1), "y": (3, 1)}, {}, [24] * 3),
        ("MatMul x z -> y", {"x": (4,), "z": (4, 2), "y": (2,)}, {}, []),
        ("Split x -> y z w", {"x": (4, 8), "y": (4, 3), "z": (4, 3), "w": (4, 2)}, {"axis": -1}, []),
        (
            "Split x s -> y z",
            {"x": (4, 8), "s": (2,), "y": (4, 8), "z": (4, 8)},
            {"axis": 1},
            [16, 16, 16, 64],
        ),
        (
            "Resize x -> y",
            {"x": (1, 1, 4, 4), "y": (1, 1, 2, 2)},
            {"mode": "cubic", "antialias": 1},
            [32, 8, 72, 32, 16, 72, 32, 16],
        ),
        ("ReduceSumSquare x a -> y", {"x": (4, 8), "a": (1,)}, {}, [128] * 2),
        # a diagonal, which no rule covers: the operand, and the result twice
        ("Einsum x -> y", {"x": (4, 4), "y": (4,)}, {"equation": "ii->i"}, [64, 16, 16]),
        ("Exp x -> y", {"x": (4,)}, {}, []),
        ("com.microsoft.Rare x -> y", {"x": (4,)}, {}, []),
        ("AffineGrid x -> y", {"x": (4,)}, {}, []),
        ("GroupNormalization x -> y", {"x": (4,)}, {}, []),
    ],
)
def test_scratch_on_cuda(
    text: str, shapes: dict[str, Any], attributes: dict[str, Any], expected: list[int]
) -> None:
    """Each by its rule's words; float32."""
    assert takes(text, shapes, attributes={"y": attributes}) == expected


@pytest.mark.parametrize(
    ("text", "x", "w", "y", "attributes", "expected"),
    [
        ("Conv x w -> y", (1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 6, 6), {}, [2 * 65536]),
        ("Conv x w -> y", (1, 3, 4, 4), (5, 3, 3, 3), (1, 5, 2, 2), {}, [4 * 4 * 27]),
        ("Conv x w -> y", (1, 3, 4, 4), (4, 3, 3, 3), (1, 4, 2, 2), {}, [2 * 65536]),
        ("Conv x w -> y", (1, 4, 4, 4), (8, 2, 3, 3), (1, 8, 2, 2), {"group": 2}, [2 * 65536]),
        ("Conv x w -> y", (1, 3, 8, 8), (4, 3, 1, 1), (1, 4, 8, 8), {}, []),
        ("Conv x w -> y", (1, 3, 8, 8), (4, 3, 1, 1), (1, 4, 4, 4), {"strides": (2, 2)}, [2 * 65536]),
        ("Conv x w -> y", (1, 3, 8, 8), (4, 3, 1, 1), (1, 4, 10, 10), {"pads": (1, 1, 1, 1)}, [2 * 65536]),
        ("com.microsoft.FusedConv x w -> y", (1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 6, 6), {}, [2 * 65536]),
        (
            "ConvTranspose x w -> y",
            (1, 3, 4, 4),
            (3, 5, 2, 2),
            (1, 5, 8, 8),
            {"strides": (2, 2)},
            [4 * 5 * 4 * 16],
        ),
        # 9 taps, and 9 outputs in eights: 32 bytes a position, then the columns of 3 channels
        ("DeformConv x w -> y", (1, 3, 5, 5), (4, 3, 3, 3), (1, 4, 3, 3), {}, [32 * 9 * 16, 4 * 3 * 9 * 9]),
        (
            "DeformConv x w -> y",
            (1, 4, 5, 5),
            (4, 2, 3, 3),
            (1, 4, 3, 3),
            {"group": 2, "offset_group": 2},
            [2 * 32 * 9 * 16, 4 * 4 * 9 * 9],
        ),
        ("Where x w w -> y", (4,), (4,), (4,), {}, [16, 16]),
        ("com.microsoft.BiasGelu x w -> y", (4,), (4,), (4,), {}, [16]),
        ("Exp x w -> y", (4,), (4,), (4,), {}, []),
    ],
)
def test_scratch_on_the_cpu(
    text: str, x: Any, w: Any, y: Any, attributes: dict[str, Any], expected: list[int]
) -> None:
    """Two threads."""
    shapes = {"x": x, "w": w, "y": y}
    assert takes(text, shapes, attributes={"y": attributes}, provider="cpu", threads=2) == expected


def test_what_takes_its_scratch_first_and_what_is_unknown() -> None:
    for operator, provider, first in (
        ("Einsum", "cuda", True), ("NonZero", "cuda", True), ("Where", "cuda", False), ("Where", "cpu", True), ("Exp", "cpu", False),
    ):  # fmt: skip
        node = build(f"{operator} x -> y", {"x": (4,)}, provider=provider).nodes[0]
        assert before_outputs(node) is first, operator
    for operator, nothing_known in (
        ("Exp", False), ("Nonsense", True), ("SimplifiedLayerNormalization", False), ("ai.onnx.ml.Scaler", False),
        ("com.microsoft.Gelu", False), ("com.microsoft.Nonsense", True), ("mine.Exp", True), ("GroupNormalization", True),
    ):  # fmt: skip
        node = build(f"{operator} x -> y", {"x": (4,)}).nodes[0]
        assert unknown(node) is nothing_known, operator


@pytest.mark.parametrize(
    ("auto_pad", "stride", "dilation", "pad"),
    [
        # x 7, kernel 3: y 4, (4 - 1) * 2 + 2 * 1 + 1 - 7 = 2, half of it on each side.
        ("SAME_UPPER", 2, 1, 1),
        ("SAME_LOWER", 2, 1, 1),
        # y 7, (7 - 1) * 1 + 2 * 2 + 1 - 7 = 4.
        ("SAME_UPPER", 1, 2, 2),
        # y 4, (4 - 1) * 2 + 2 * 3 + 1 - 7 = 6.
        ("SAME_LOWER", 2, 3, 3),
        ("NOTSET", 2, 1, 0),
        ("VALID", 2, 1, 0),
    ],
)
def test_the_padding_that_keeps_sizes(auto_pad: str, stride: int, dilation: int, pad: int) -> None:
    size = -(-7 // stride)
    graph = build(
        "Conv x w -> y",
        {"x": (2, 3, 7), "y": (2, 4, size)},
        {"w": (4, 3, 3)},
        attributes={"y": {"auto_pad": auto_pad, "strides": (stride,), "dilations": (dilation,)}},
    )
    found = convolution_of(graph.nodes[0], graph)
    assert found is not None
    call = found.call
    assert (call.padding[0], call.stride[0], call.dilation[0], call.groups) == (pad, stride, dilation, 1)
    assert (call.x_shape, call.w_shape, found.y_shape) == ((2, 3, 7, 1), (4, 3, 3, 1), (2, 4, size, 1))
    assert (call.operation, call.channels_last) == ("forward", False)


def test_convolutions_in_other_layouts_and_without_shapes() -> None:
    nhwc = build(
        "com.ms.internal.nhwc.Conv x w -> y", {"x": (2, 6, 7, 3), "y": (2, 4, 5, 8)}, {"w": (8, 3, 3, 3)}
    )
    found = convolution_of(nhwc.nodes[0], nhwc)
    assert found is not None and found.call.channels_last
    assert (found.call.x_shape, found.y_shape) == ((2, 3, 6, 7), (2, 8, 4, 5))
    for x, w, y, group in (
        (None, (4, 3, 3), (2, 4, 5), 1), ((2, 3), (4, 3), (2, 4), 1), ((2, 3, 7), (4, 3, 3, 3), (2, 4, 5), 1),
        ((2, 3, 7), (4, 3, 3), (2, 4, 5, 5), 1), ((2, 3, 7), (4, 3, 3), (2, 4, 5), 0),
    ):  # fmt: skip
        graph = build("Conv x w -> y", {"x": x, "w": w, "y": y}, attributes={"y": {"group": group}})
        assert convolution_of(graph.nodes[0], graph) is None


# Packed weights


@pytest.mark.parametrize(
    ("operator", "shape", "attributes", "expected"),
    [
        ("MatMul", (8, 17), {}, [4 * 8 * 32]),
        ("MatMul", (8, 16), {}, [4 * 8 * 16]),
        ("Gemm", (17, 8), {"transB": 1}, [4 * 8 * 32]),
        ("MatMul", (3, 8, 17), {}, [3 * 4 * 8 * 32]),
        ("com.microsoft.FusedMatMul", (8, 17), {}, [4 * 8 * 32]),
        ("com.microsoft.FusedGemm", (8, 17), {}, [4 * 8 * 32]),
        ("MatMul", (8,), {}, []),
        ("MatMul", (0, 8), {}, []),
        ("MatMul", (8, 0), {}, []),
        ("Add", (8, 17), {}, []),
        ("mine.MatMul", (8, 17), {}, []),
        ("ConvTranspose", (3, 4, 2, 2), {}, [4 * 48]),
        ("com.microsoft.MatMulNBits", (4, 8), {}, [128]),
    ],
)
def test_the_cpu_packs_constant_right_operands(
    operator: str, shape: tuple[int, ...], attributes: dict[str, int], expected: list[int]
) -> None:
    """Columns in panels of 16, float32; computed operands, other types and the CUDA provider pack none."""
    graph = build(
        f"{operator} x w -> y", {"x": (4, 8)}, {"w": shape}, attributes={"y": attributes}, provider="cpu"
    )
    assert [buffer.nbytes for buffer in packing.packed(graph.nodes[0], graph)] == expected
    graph.nodes[0].provider = "cuda"
    assert packing.packed(graph.nodes[0], graph) == []
    computed = build(f"{operator} x w -> y", {"x": (4, 8), "w": shape}, provider="cpu")
    assert packing.packed(computed.nodes[0], computed) == []
    half = build(f"{operator} x w -> y", {"x": (4, 8)}, {"w": shape}, provider="cpu", dtypes={"w": "float16"})
    if not operator.endswith("NBits"):
        assert packing.packed(half.nodes[0], half) == []


def test_recurrent_layers_pack_both_weights_and_cuda_keeps_them() -> None:
    """Directions 1, hidden 5: rows 20 for LSTM, packed transposed in panels of 16; CUDA keeps 24 bytes a thread."""
    given = {"w": (1, 20, 3), "r": (1, 20, 5)}
    graph = build(
        "LSTM x w r -> y", {"x": (2, 4, 3)}, given, attributes={"y": {"hidden_size": 5}}, provider="cpu"
    )
    node = graph.nodes[0]
    assert [buffer.nbytes for buffer in packing.packed(node, graph)] == [4 * 3 * 32, 4 * 5 * 32]
    assert packing.cached(node, graph, H200) == []
    node.provider = "cuda"
    state = 24 * H200.sm_count * H200.max_threads_per_sm
    assert packing.cached(node, graph, H200) == [state, 20 * (3 + 5 + 2) * 4]
    computed = build(
        "LSTM x w r -> y",
        {"x": (2, 4, 3), "r": (1, 20, 5)},
        {"w": (1, 20, 3)},
        attributes={"y": {"hidden_size": 5}},
    )
    assert packing.cached(computed.nodes[0], computed, H200) == [state]


def test_equal_packed_weights_are_kept_once() -> None:
    graph = build(
        "MatMul x w -> a; MatMul a w -> y", {"x": (16, 16)}, {"w": np.ones((16, 16))}, provider="cpu"
    )
    assert told(graph, provider="cpu")[:4] == [
        "+n0 packed weights 1024!^", "+n1 packed weights 1024!^", "-n1 packed weights", "=session",
    ]  # fmt: skip
