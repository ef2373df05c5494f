"""A session's arena in plain numbers: what the arena itself reaches, whatever is requested and on whatever stream."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.allocators.onnxruntime_bfc import SESSION
from analyzer.graph import Category
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.onnxruntime import plain_arena
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.plain_arena import PlainArena, Reached, Steps, steps
from analyzer.runtimes.timeline import simulate
from tests.allocators.compiled import compiled

KIB, MIB = 2**10, 2**20
# Around every border of the rules: rounding, splitting, doubling regions; and what fits together again.
SIZES = st.one_of(
    st.sampled_from((0, 1, 256, 257, 4 * KIB, MIB - 256, MIB, MIB + 1, 2 * MIB, 3 * MIB, 128 * MIB, 200 * MIB)),
    st.integers(1, 3 * MIB),
    st.integers(1, 90).map(lambda count: count * MIB),
)  # fmt: skip


@st.composite
def sessions(draw: st.DrawFn) -> tuple[AllocationEvent, ...]:
    """Initializers outside any stream, some given back; then runs on a stream or, as the CPU's, on none."""
    events: list[AllocationEvent] = []
    alive: list[int] = []
    stream = draw(st.sampled_from((0, None)))
    for stage in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(0, 20))):
            key = len(events)
            events.append(Malloc(key, draw(SIZES), Category.ACTIVATION, stream=stream if stage else None))
            alive.append(key)
            for _ in range(draw(st.integers(0, 2))):
                if alive:
                    events.append(Free(alive.pop(draw(st.integers(0, len(alive) - 1)))))
        events.append(Event(f"run {stage}" if stage else SESSION))
    return tuple(events)


@pytest.mark.parametrize("strategy", ["kNextPowerOfTwo", "kSameAsRequested"])
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # a busy machine is no failure
@given(events=sessions(), room=st.sampled_from((None, 64 * MIB, 1024 * MIB)))
def test_it_is_the_arena(strategy: str, events: tuple[AllocationEvent, ...], room: int | None) -> None:
    options = SessionOptions(arena_extend_strategy=strategy)
    with mock.patch.object(plain_arena, "Chunks", compiled().Chunks):
        arena, plain = options.arena(room), PlainArena(options, room)
    simulation = steps(events, options)
    assert simulation is not None
    half = len(simulation.events) // 2
    before, after = (
        Steps(part, simulation.units) for part in (simulation.events[:half], simulation.events[half:])
    )
    whole = plain.simulate(before)
    later = plain.copy()  # a copy goes on where the arena was
    whole = whole and plain.simulate(after)
    failed = simulate(events, arena).failure is not None
    if whole:
        assert not failed
        reached = Reached(arena.peak_allocated, arena.reserved, arena.page_bytes)
        assert plain.reached == reached
        assert later.simulate(after) and later.reached == reached
    else:
        assert room is not None  # the arena itself may still make do with less than it wants


def test_other_rules_are_the_arenas_own() -> None:
    event = Malloc(0, 512, Category.PARAMETER)
    assert steps([event], SessionOptions()) is not None
    assert steps([event], SessionOptions(gpu_mem_limit=MIB)) is None
    assert steps([event], SessionOptions(enable_memory_arena_shrinkage=True)) is None
    assert steps([Malloc(0, 512, Category.PARAMETER, outside_pools=True)], SessionOptions()) is None
