"""The same requests with other sizes: what a simulation of each says, whoever is asked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.allocators import create
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.peaks import Scattered
from analyzer.graph import Category
from analyzer.runtimes import variants
from analyzer.runtimes.base import Limit, Prediction
from analyzer.runtimes.events import AllocationEvent, EmptyCache, Event, Free, Malloc, Wait
from analyzer.runtimes.timeline import simulate
from analyzer.runtimes.variants import Plain, Variants

MIB = 2**20
SIZES = st.one_of(st.sampled_from((0, 1, 512, MIB, MIB + 1, 10 * MIB)), st.integers(1, 40 * MIB))


def allocator(nbytes: int | None = None, device: bool = True) -> Any:
    if nbytes is None:
        return create("pytorch")
    if device:
        return create("pytorch", limit_bytes=nbytes)
    return create("pytorch", per_process_memory_fraction=0.5, device_total_bytes=2 * nbytes)


def prediction(*events: AllocationEvent) -> Prediction:
    return Prediction(events, allocator, lambda simulation: simulation.peak_reserved, limited=allocator)


@st.composite
def programs(draw: st.DrawFn) -> tuple[AllocationEvent, ...]:
    """Requests, some of which a plan may ask for less of, in up to two steps; some programs have a side
    stream or empty the cache."""
    events: list[AllocationEvent] = [Event("model")]
    odd = draw(st.booleans())
    alive: list[int] = []
    for key in range(draw(st.integers(1, 25))):
        if draw(st.integers(0, 9)) == 0:
            events.append(Event(f"{sum(isinstance(event, Event) for event in events)}.input"))
        plan, smaller = draw(st.sampled_from((("", ()), ("", ()), ("first", (MIB, 0)))))
        stream = draw(st.sampled_from((0, 1))) if odd else 0
        events.append(Malloc(key, draw(SIZES), Category.WORKSPACE, stream=stream, plan=plan, smaller=smaller))
        alive.append(key)
        while alive and draw(st.booleans()):
            events.append(Free(alive.pop(draw(st.integers(0, len(alive) - 1)))))
        if draw(st.integers(0, 9)) == 0:
            events.append(EmptyCache() if odd else Wait())
    return tuple(events)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(programs(), st.data())
def test_what_is_held_is_what_a_simulation_holds(
    events: tuple[AllocationEvent, ...], data: st.DataObject
) -> None:
    found = Variants(prediction(*events))
    sizes = tuple(data.draw(SIZES) for _ in found.sizes)
    limits: tuple[Limit | None, Limit] = (
        None,
        Limit(data.draw(st.integers(1, 60)) * 2 * MIB, data.draw(st.booleans())),
    )
    remaining = iter(sizes)
    resized = [replace(e, nbytes=next(remaining)) if isinstance(e, Malloc) else e for e in events]
    for limit in limits:
        simulation = simulate(resized, allocator(*(limit or ())))
        assert found.held(sizes, limit) == (simulation.peak_reserved, simulation.failure is None)
        if found._rows is not None:
            peaks = found._rows.peaks(np.array(sizes, np.int64), limit, plans=found._plans)
            assert (peaks.allocated, len(peaks.refused)) == (
                simulation.peak_allocated,
                len(simulation.refused),
            )
    device = partial(create, "pytorch", limit_bytes=limits[1].nbytes, device_total_bytes=80 * MIB)
    simulation = simulate(resized, device())
    found = Variants(replace(prediction(*events), allocator=device))
    assert found.held(sizes) == (simulation.peak_reserved, simulation.failure is None)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(1, 60), st.booleans())
def test_plain_numbers_say_what_a_simulation_says(
    events: tuple[AllocationEvent, ...], nbytes: int, limited: bool
) -> None:
    asked = prediction(*events)
    whole = Variants(asked)
    if whole._rows is None:
        return
    limit = Limit(nbytes * 2 * MIB, True) if limited else None
    told = [place for place, each in enumerate(whole.requests) if each.smaller or place % 2]
    plain = Plain(whole._rows, np.array(whole.sizes, np.int64), np.array(told, np.int64), len(events))
    requests = tuple(whole.requests[place] for place in told)
    own = whole.simulated(limit)
    found = Variants(replace(asked, events=requests, plain=plain)).simulated(limit)
    assert (found.peak_allocated, found.peak_reserved) == (own.peak_allocated, own.peak_reserved)
    assert (found.failure is None, len(found.refused)) == (own.failure is None, len(own.refused))
    kept = {alive.malloc.key: alive for alive in own.alive if alive.malloc in requests and alive.block_bytes}
    assert {alive.malloc.key: alive for alive in found.alive} == kept


def test_segments_at_other_addresses() -> None:
    """The compiled core holds what the simulator holds with segments at the same addresses."""
    events: list[AllocationEvent] = [
        Malloc(key, size * MIB, Category.ACTIVATION) for key, size in enumerate((12, 24))
    ]
    events += [Free(1), *(Malloc(key, 12 * MIB, Category.ACTIVATION) for key in (2, 3)), Free(0)]
    events += [
        Malloc(4, 12 * MIB, Category.ACTIVATION),
        Free(2),
        Free(4),
        Malloc(5, 24 * MIB, Category.INPUT),
    ]
    for seed in range(20):
        simulation = simulate(events, PyTorchAllocator(None, Scattered(Random(seed))))
        found = Variants(prediction(*events)).placed(Scattered(Random(seed)))
        assert found is not None
        assert (found.allocated, found.reserved) == (simulation.peak_allocated, simulation.peak_reserved)


def test_a_plan_without_room_is_asked_for_less() -> None:
    """30 MiB live, a workspace of 20 that may be 10: under 40 MiB the program runs with the smaller one."""
    asked = prediction(
        Malloc(1, 30 * MIB, Category.ACTIVATION),
        Malloc(2, 20 * MIB, Category.WORKSPACE, plan="first", smaller=(10 * MIB,)),
    )
    assert Variants(asked).held((30 * MIB, 20 * MIB), Limit(40 * MIB, True)) == (40 * MIB, True)


def test_plain_programs_are_not_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "simulate", partial(pytest.fail, "simulated"))
    asked = prediction(Malloc(1, 30 * MIB, Category.ACTIVATION), Free(1), Event("0.input"))
    assert Variants(asked).held((50 * MIB,)) == (50 * MIB, True)
