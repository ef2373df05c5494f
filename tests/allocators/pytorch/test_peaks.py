"""The peaks of many requests in plain numbers: those of the allocator itself, whatever is requested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer import allocators
from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.compiled import FREE
from analyzer.allocators.driver import AddressSpace
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.create import create
from analyzer.allocators.pytorch.peaks import UNIT_BYTES, Peaks, has_fast_path, peaks
from analyzer.allocators.pytorch.settings import Ties
from tests.allocators.compiled import compiled

KIB, MIB = 2**10, 2**20
# Around every border of the rules: rounding, the pools, splitting, segments; and what fits together again.
SIZES = st.one_of(
    st.sampled_from((0, 1, 512, 513, 4 * KIB, MIB - 512, MIB, MIB + 1, 2 * MIB, 3 * MIB, 10 * MIB - 512, 10 * MIB)),
    st.integers(1, 3 * MIB),
    st.integers(1, 90).map(lambda count: count * MIB),
)  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[int], int]:
    """Events, sizes in bytes, and how many events come before the first iteration."""
    sizes = draw(st.lists(SIZES, min_size=1, max_size=50))
    events: list[tuple[int, int]] = []
    alive: list[int] = []
    for key in range(len(sizes)):
        events.append((key, key))
        alive.append(key)
        for _ in range(draw(st.integers(0, 2))):
            if alive:
                events.append((alive.pop(draw(st.integers(0, len(alive) - 1))), FREE))
    return events, sizes, draw(st.integers(0, len(events)))


def returned(allocator: PyTorchAllocator) -> bool:
    return any(event.action == "segment_free" for event in allocator.segment_events)


def simulated(program: tuple[list[tuple[int, int]], list[int], int], allocator: PyTorchAllocator) -> Peaks:
    events, sizes, setup_count = program
    handles: dict[int, int] = {}
    most, row = 0, -1
    for place, (key, number) in enumerate(events):
        if place == setup_count:
            allocator.reset_peaks()
            most, row = allocator.peak_allocated, setup_count - 1
        if number == FREE:
            allocator.free(handles.pop(key))
            continue
        try:
            handles[key] = allocator.malloc(sizes[number])
        except OutOfMemoryError:
            return Peaks(allocator.peak_allocated, allocator.peak_reserved, False, returned(allocator), row)
        if allocator.peak_allocated > most:
            most, row = allocator.peak_allocated, place
    if setup_count == len(events):
        allocator.reset_peaks()
        row = setup_count - 1
    return Peaks(allocator.peak_allocated, allocator.peak_reserved, True, returned(allocator), row)


@pytest.fixture(autouse=True)
def of_this_checkout() -> Iterator[None]:
    """`peaks` with what this checkout's C says."""
    with mock.patch.object(allocators, "_best_fit", compiled(), create=True):
        yield


@pytest.mark.parametrize("conf", ["", "large_segment_size_mb:64"])
@pytest.mark.parametrize("ties", ["address", "segment"])
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None)
@given(program=programs(), limit=st.one_of(st.none(), st.integers(1, 400).map(lambda count: count * MIB)))
def test_they_are_the_allocators(
    conf: str,
    ties: Ties,
    program: tuple[list[tuple[int, int]], list[int], int],
    limit: int | None,
) -> None:
    allocator: Any = create(conf, ties=ties, limit_bytes=limit)
    assert has_fast_path(create(conf, ties=ties))
    events, sizes, setup_count = program
    units = np.array([-(-size // UNIT_BYTES) for size in sizes], np.int64)
    found = peaks(np.array(events, np.int64), units, setup_count, allocator.settings, limit)
    assert found == simulated(program, allocator)


def test_under_a_limit_free_segments_are_given_back_before_a_request_fails() -> None:
    # 40 MiB are cached when 50 are asked for: with 89 MiB there is room for both, with 50 only for the second, with 49 for neither.
    events, units = np.array([(0, 0), (0, FREE), (1, 1)], np.int64), np.array([81920, 102400], np.int64)
    found = [peaks(events, units, 0, create("").settings, limit * MIB) for limit in (90, 50, 49)]
    assert found == [
        (50 * MIB, 90 * MIB, True, False, 2, ()),
        (50 * MIB, 50 * MIB, True, True, 2, ()),
        (40 * MIB, 40 * MIB, False, True, 0, ()),
    ]


def test_what_is_given_back_is_what_was_taken() -> None:
    """The compiled core knows segments by units; a space is told its own addresses."""
    taken, given = [], []

    class Told(AddressSpace):
        def take(self, size: int) -> int:
            taken.append((super().take(size), size))
            return taken[-1][0]

        def give(self, address: int, size: int) -> None:
            given.append((address, size))
            super().give(address, size)

    events = np.array([(0, 0), (1, 1), (0, FREE), (1, FREE), (2, 2)], np.int64)
    units = np.array([size * MIB // UNIT_BYTES for size in (40, 60, 90)], np.int64)
    found = peaks(events, units, 0, create("").settings, 100 * MIB, space=Told())
    assert found == (100 * MIB, 100 * MIB, True, True, 1, ())
    assert sorted(given) == sorted(taken[:2])


@pytest.mark.parametrize("units", [1 << 40, 1 << 62])
def test_sizes_no_device_has_are_refused(units: int) -> None:
    with pytest.raises(OverflowError):
        peaks(np.array([(0, 0)]), np.array([units]), 0, create("").settings)


@pytest.mark.parametrize("events", [[(0, 1)], [(-1, 0)], [(1 << 40, 0)], [(0, -3)]])
def test_it_looks_at_every_number_before_it_uses_it(events: list[tuple[int, int]]) -> None:
    with pytest.raises(IndexError):
        compiled().peaks(np.array(events), np.array([1]), 0, 1, 9, int, max)


def test_it_takes_nothing_but_whole_numbers_of_64_bits() -> None:
    with pytest.raises(TypeError):
        compiled().peaks(np.array([(0, 0)], np.int32), np.array([1]), 0, 1, 9, int, max)


def test_an_error_while_the_driver_is_asked_comes_through() -> None:
    def none(*_: int) -> int:
        raise KeyError("no address")

    events, units = np.array([(0, 0), (0, FREE), (1, 1)]), np.array([1, 1 << 20])
    with pytest.raises(KeyError):
        compiled().peaks(events, units, 0, 1, 1 << 20, none, max)
    with pytest.raises(KeyError):
        compiled().peaks(events, units, 0, 1, 1 << 20, lambda count, _: count, none)
    with pytest.raises(TypeError):
        compiled().peaks(events, units, 0, 1, 1 << 20, str, max)


def test_without_it_the_simulator_answers() -> None:
    with mock.patch("analyzer.allocators.pytorch.peaks.AVAILABLE", False):
        assert not has_fast_path(create(""))


@pytest.mark.parametrize(
    "conf",
    [
        "max_split_size_mb:64",
        "garbage_collection_threshold:0.5",
        "roundup_power2_divisions:8",
        "expandable_segments:True",
        "backend:cudaMallocAsync",
    ],
)
def test_other_settings_are_the_allocators_own(conf: str) -> None:
    assert not has_fast_path(create(conf))
    assert not has_fast_path(create("", limit_bytes=MIB))
    used = create("")
    used.malloc(1)
    assert not has_fast_path(used)
