"""The peaks of many requests in plain numbers: those of the allocator itself, whatever is requested."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.allocators.played import FREE
from analyzer.allocators.pytorch import peaks as module
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.create import create
from analyzer.allocators.pytorch.peaks import UNIT_BYTES, peaks, plain
from tests.allocators.compiled import implementation

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


def simulated(
    program: tuple[list[tuple[int, int]], list[int], int], allocator: PyTorchAllocator
) -> tuple[int, int]:
    events, sizes, setup_count = program
    handles: dict[int, int] = {}
    for place, (key, number) in enumerate(events):
        if place == setup_count:
            allocator.reset_peaks()
        if number == FREE:
            allocator.free(handles.pop(key))
        else:
            handles[key] = allocator.malloc(sizes[number])
    if setup_count == len(events):
        allocator.reset_peaks()
    return allocator.peak_allocated, allocator.peak_reserved


@pytest.mark.parametrize("kind", ["python", "compiled"])
@pytest.mark.parametrize("conf", ["", "large_segment_size_mb:64"])
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # a busy machine is no failure
@given(program=programs())
def test_they_are_the_allocators(
    kind: str, conf: str, program: tuple[list[tuple[int, int]], list[int], int]
) -> None:
    allocator: Any = create(conf)
    assert plain(allocator)
    events, sizes, setup_count = program
    units = np.array([-(-size // UNIT_BYTES) for size in sizes], np.int64)
    with mock.patch.object(module, "played", implementation(kind)):
        found = peaks(np.array(events, np.int64), units, setup_count, allocator.settings)
    assert found == simulated(program, allocator)


@pytest.mark.parametrize("kind", ["python", "compiled"])
@pytest.mark.parametrize("units", [1 << 40, 1 << 62])
def test_sizes_no_device_has_are_refused(kind: str, units: int) -> None:
    with mock.patch.object(module, "played", implementation(kind)), pytest.raises(OverflowError):
        peaks(np.array([(0, 0)]), np.array([units]), 0, create("").settings)


@pytest.mark.parametrize("events", [[(0, 1)], [(-1, 0)], [(1 << 40, 0)], [(0, -3)]])
def test_compiled_code_looks_at_every_number_before_it_uses_it(events: list[tuple[int, int]]) -> None:
    compiled = implementation("compiled")
    with pytest.raises(IndexError):
        compiled.peaks(np.array(events), np.array([1]), 0, 1, int)


def test_compiled_code_takes_nothing_but_whole_numbers_of_64_bits() -> None:
    with pytest.raises(TypeError):
        implementation("compiled").peaks(np.array([(0, 0)], np.int32), np.array([1]), 0, 1, int)


def test_an_error_while_the_driver_is_asked_comes_through() -> None:
    def take(_: int) -> int:
        raise KeyError("no address")

    for kind in ("python", "compiled"):
        with pytest.raises(KeyError):
            implementation(kind).peaks(np.array([(0, 0)]), np.array([1]), 0, 1, take)
    with pytest.raises(TypeError):
        implementation("compiled").peaks(np.array([(0, 0)]), np.array([1]), 0, 1, str)


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
    assert not plain(create(conf))
    assert not plain(create("", limit_bytes=MIB))
    used = create("")
    used.malloc(1)
    assert not plain(used)
