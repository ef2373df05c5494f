"""Simulating events: marks, iteration peaks, and what is alive at the peak."""

from __future__ import annotations

import random
from typing import Any

import pytest

from analyzer import allocators
from analyzer.allocators import Allocator, OutOfMemoryError
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.graph import Category
from analyzer.runtimes.events import AllocationEvent, EmptyCache, Event, Free, Malloc
from analyzer.runtimes.timeline import Alive, SimulatedMark, simulate

MIB = 2**20
SEGMENT = 2 * MIB


def take(key: int, nbytes: int, label: str = "", category: Category = Category.ACTIVATION) -> Malloc:
    return Malloc(key, nbytes, category, label=label)


def test_marks_follow_the_measuring_loop() -> None:
    """Peaks start anew at each iteration: 0.input comes after 'model', 1.input after '0.step'."""
    events: list[AllocationEvent] = [
        take(90, 4096, "setup scratch"),
        Free(90),
        take(0, 512, "weight", Category.PARAMETER),
        Event("model"),
        take(1, 1000, "x", Category.INPUT),
        Event("0.input"),
        take(2, 1536),
        take(3, 0, "empty"),
        Event("0.forward"),
        Free(2),
        Event("0.step"),
        take(4, 1000),
        Free(1),
        Event("1.input"),
        take(5, 512),
        Event("1.forward"),
    ]
    simulation = simulate(events, allocators.create("pytorch"))
    assert simulation.marks == (
        SimulatedMark("model", 512, 4096, SEGMENT),
        SimulatedMark("0.input", 1536, 1536, SEGMENT),
        SimulatedMark("0.forward", 3072, 3072, SEGMENT),
        SimulatedMark("0.step", 1536, 3072, SEGMENT),
        SimulatedMark("1.input", 1536, 2560, SEGMENT),
        SimulatedMark("1.forward", 2048, 2560, SEGMENT),
    )
    assert (simulation.peak_allocated, simulation.peak_reserved, simulation.peak_requested) == (
        3072,
        SEGMENT,
        3048,
    )
    assert (simulation.peak_position, simulation.peak_phase) == (6, "0.forward")
    assert [(alive.malloc.key, alive.block_bytes) for alive in simulation.alive] == [
        (0, 512),
        (1, 1024),
        (2, 1536),
    ]
    assert simulation.delta[:4] == (4096, -4096, 512, 0)
    assert simulation.delta[7] == 0
    assert simulation.label[:4] == ("setup scratch", "setup scratch", "weight", "model")
    assert simulation.category[2:5] == ("parameters", "", "inputs")
    assert simulation.phase[:6] == ("model",) * 4 + ("0.input",) * 2


def test_accumulation_repeats_input_within_an_iteration() -> None:
    """A second 0.input starts no new peak."""
    events: list[AllocationEvent] = [
        Event("model"),
        take(0, 512),
        Event("0.input"),
        take(1, 2048),
        Free(1),
        Event("0.backward"),
        take(2, 512),
        Event("0.input"),
    ]
    simulation = simulate(events, allocators.create("pytorch"))
    assert [mark.peak for mark in simulation.marks] == [0, 512, 2560, 2560]


def test_iteration_peak_may_be_its_start() -> None:
    events: list[AllocationEvent] = [take(0, 4096), Event("model"), Free(0), take(1, 512), Event("0.input")]
    simulation = simulate(events, allocators.create("pytorch"))
    assert (simulation.peak_allocated, simulation.peak_position, simulation.peak_phase) == (4096, 1, "model")
    assert simulation.alive == (Alive(take(0, 4096), 4096),)


def test_without_iterations_everything_counts() -> None:
    simulation = simulate([take(0, 4096), Free(0), take(1, 1)], allocators.create("pytorch"))
    assert (simulation.peak_allocated, simulation.peak_position, simulation.peak_phase) == (4096, 0, "")
    nothing = simulate([Event("start")], allocators.create("pytorch"))
    assert (nothing.peak_allocated, nothing.peak_position, nothing.alive) == (0, -1, ())


def test_mistakes_are_errors() -> None:
    with pytest.raises(KeyError):
        simulate([Free(7)], allocators.create("pytorch"))
    with pytest.raises(KeyError, match="which is alive"):
        simulate([take(0, 1), take(0, 1)], allocators.create("pytorch"))


def test_out_of_memory_names_the_request() -> None:
    """The program ends at the request; what happened before it is kept. A 2 MiB segment has 512 bytes in use."""
    events = [take(0, 1), take(1, 10 * MIB, "logits"), Free(0), Event("0.forward")]
    simulation = simulate(events, allocators.create("pytorch", limit_bytes=4 * MIB))
    failure = simulation.failure
    assert failure is not None
    assert (failure.position, failure.malloc.label, failure.limit) == (1, "logits", 4 * MIB)
    assert (failure.allocated, failure.reserved, failure.free) == (512, 2 * MIB, (2 * MIB - 512,))
    assert (simulation.peak_allocated, simulation.allocated, simulation.marks) == (512, (512,), ())
    assert simulation.phase == ("0.forward",)


def test_a_program_that_is_served_has_no_failure() -> None:
    assert simulate([take(0, 1)], allocators.create("pytorch", limit_bytes=4 * MIB)).failure is None


class _Listening(Allocator):
    """Writes down what it is asked."""

    def __init__(self) -> None:
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self.heard: list[object] = []

    def malloc(self, nbytes: int, stream: int | None = 0) -> int:
        self.heard.append((nbytes, stream))
        if nbytes > 100:
            raise OutOfMemoryError(nbytes, 0, 0, 100)
        return len(self.heard)

    def reserve(self, nbytes: int) -> int:
        self.heard.append(("apart", nbytes))
        return len(self.heard)

    def end_event(self, event: str, value: float | None = None) -> None:  # noqa: ARG002
        self.heard.append(event)
        self.reserved = 7

    def free(self, handle: int) -> None:
        self.heard.append(handle)


def test_the_allocator_hears_of_streams_of_memory_apart_and_of_what_is_over() -> None:
    """Each request arrives with its stream, and a named event after its own figures have been taken."""
    allocator = _Listening()
    simulation = simulate(
        [
            Malloc(0, 1, Category.PARAMETER, stream=None),
            Malloc(1, 2, Category.PARAMETER, stream=None, outside_pools=True),
            Event("session"),
            Malloc(2, 3, Category.ACTIVATION),
            Malloc(3, 4, Category.ACTIVATION, stream=1),
            Free(1),
        ],
        allocator,
    )
    assert allocator.heard == [(1, None), ("apart", 2), "session", (3, 0), (4, 1), 2]
    assert simulation.marks[0].reserved == 0
    assert simulation.reserved == (0, 0, 0, 7, 7, 7)


def test_an_allocator_may_already_hold_something() -> None:
    """What was there counts, in bytes allocated, not requested; nothing taken in excess of it is a peak of its own."""
    allocator = allocators.create("pytorch")
    held = allocator.malloc(30 * MIB)
    simulation = simulate([take(0, 1000)], allocator)
    assert (simulation.peak_allocated, simulation.peak_requested, simulation.peak_position) == (
        30 * MIB + 1024,
        1000,
        0,
    )
    assert (simulation.allocated, simulation.delta) == ((30 * MIB + 1024,), (1024,))
    assert simulation.peak_reserved == 32 * MIB
    assert held == 0
    nothing = simulate([Event("0.input"), Free(5)][:1], allocator)
    assert (nothing.peak_allocated, nothing.peak_position, nothing.peak_phase) == (30 * MIB + 1024, -1, "")
    assert nothing.marks == (SimulatedMark("0.input", 30 * MIB + 1024, 30 * MIB + 1024, 32 * MIB),)


def test_the_first_event_may_be_the_peak_and_has_a_phase() -> None:
    simulation = simulate([take(0, 512), Event("model"), Event("0.forward")], allocators.create("pytorch"))
    assert (simulation.peak_position, simulation.peak_phase) == (0, "model")
    assert simulation.phase == ("model", "model", "0.forward")
    start = simulate([Event("model"), Event("0.input")], allocators.create("pytorch"))
    assert (start.peak_allocated, start.peak_position, start.peak_phase) == (0, 0, "model")
    later = simulate([take(0, 512), Event("a"), take(1, 1)], allocators.create("pytorch"))
    assert (later.peak_position, later.peak_phase, later.phase) == (2, "", ("a", "a", ""))


def test_reserved_and_requested_have_peaks_of_their_own() -> None:
    """The second iteration asks for more at once, in fewer bytes of blocks; reserved never falls."""
    events: list[AllocationEvent] = [
        *(Event("model"), take(0, 1), take(1, 1), take(2, 1), Event("0.input")),
        *(Free(0), Free(1), Free(2), Event("0.step"), take(3, 1000), Event("1.input")),
    ]
    simulation = simulate(events, allocators.create("pytorch"))
    assert (simulation.peak_allocated, simulation.peak_position, simulation.peak_requested) == (1536, 3, 1000)
    assert simulation.requested == (0, 1, 2, 3, 3, 2, 1, 0, 0, 1000, 1000)
    assert simulation.allocated == (0, 512, 1024, 1536, 1536, 1024, 512, 0, 0, 1024, 1024)
    assert [mark.peak for mark in simulation.marks] == [0, 1536, 1536, 1024]
    assert simulation.reserved == (0, *(2 * MIB,) * 10)


def test_only_numbered_inputs_begin_iterations() -> None:
    events: list[AllocationEvent] = [take(0, 4096), Free(0), Event("x.input"), Event("12.inputs"), take(1, 1)]
    assert simulate(events, allocators.create("pytorch")).peak_allocated == 4096
    events[2] = Event("12.input")
    assert simulate(events, allocators.create("pytorch")).peak_allocated == 4096
    events.insert(2, Event("model"))
    assert simulate(events, allocators.create("pytorch")).peak_allocated == 512


def test_an_optional_request_without_room_is_refused_for_good() -> None:
    """20 MiB are held, of 30 allowed: 12 MiB more find no room. The program goes on, and never asks for its like again."""
    optional = Malloc(1, 12 * MIB, Category.SCRATCH, label="workspace", plan="plan", smaller=(0,))
    events = [take(0, 20 * MIB), optional, Free(1), Free(0), optional, take(2, 512), Event("0.forward")]
    simulation = simulate(events, allocators.create("pytorch", limit_bytes=30 * MIB))
    assert simulation.failure is None
    assert simulation.refused == (1,)
    assert simulation.allocated == (20 * MIB, 20 * MIB, 20 * MIB, 0, 0, 512, 512)
    assert (simulation.peak_allocated, simulation.peak_requested) == (20 * MIB, 20 * MIB)


def test_pieces_by_the_record_of_calls_and_by_comparison() -> None:
    """The allocator's own record of its segments, where it has one, says what all of them compared would."""

    class Unrecorded(PyTorchAllocator):
        def _reserve(self, action: Any, address: int, size: int) -> None:
            super()._reserve(action, address, size)
            self.segment_events.clear()

    draw = random.Random(3)
    events: list[AllocationEvent] = []
    live: list[int] = []
    for key in range(600):
        events.append(take(key, draw.choice((512, 3 * MIB, 30 * MIB))))
        live.append(key)
        while live and draw.random() < 0.45:
            events.append(Free(live.pop(draw.randrange(len(live)))))
        if draw.random() < 0.05:
            events.append(EmptyCache())
    recorded = simulate(events, PyTorchAllocator(), places=True)
    compared = simulate(events, Unrecorded(), places=True)
    assert recorded.pieces == compared.pieces and len(recorded.pieces) > 80
    assert any(piece.died >= 0 for piece in recorded.pieces)


def test_many_segments_are_not_compared_after_each() -> None:
    class Counts(PyTorchAllocator):
        count = 0

        def segments(self) -> tuple[tuple[int, int], ...]:
            self.count += 1
            return super().segments()

    allocator = Counts()
    simulation = simulate([take(key, 20 * MIB) for key in range(50)], allocator, places=True)
    assert len(simulation.pieces) == 50 and allocator.count < 3
