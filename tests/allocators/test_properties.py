"""What must hold for every allocator, whatever is asked of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer import allocators
from analyzer.allocators.chunks import RegionState
from analyzer.allocators.driver import AddressSpace
from analyzer.allocators.pytorch.segments import SegmentState

MIB = 2**20
# name, settings, and the step sizes are rounded up to.
KINDS: dict[str, tuple[str, dict[str, Any], int]] = {
    "pytorch": ("pytorch", {}, 512),
    "pytorch expandable": ("pytorch", {"expandable_segments": True}, 512),
    "pytorch max_split": ("pytorch", {"max_split_size_mb": 24}, 512),
    "pytorch rounding": ("pytorch", {"roundup_power2_divisions": 4}, 512),
    "pytorch collecting": (
        "pytorch",
        {
            "garbage_collection_threshold": 0.5,
            "per_process_memory_fraction": 0.5,
            "device_total_bytes": 600 * MIB,
            "limit_bytes": 250 * MIB,
        },
        512,
    ),
    "pytorch limited": ("pytorch", {"limit_bytes": 100 * MIB}, 512),
    "pytorch expandable limited": ("pytorch", {"limit_bytes": 100 * MIB, "expandable_segments": True}, 512),
    # Ranges for 9/8 of 80 MiB: those too broken up for a request get another beside them.
    "pytorch expandable ranges": (
        "pytorch",
        {"limit_bytes": 90 * MIB, "device_total_bytes": 80 * MIB, "expandable_segments": True},
        512,
    ),
    "onnxruntime": ("onnxruntime_bfc", {}, 256),
    "onnxruntime same": ("onnxruntime_bfc", {"arena_extend_strategy": "kSameAsRequested"}, 256),
    "onnxruntime limited": ("onnxruntime_bfc", {"gpu_mem_limit": 100 * MIB, "device_bytes": 90 * MIB}, 256),
    "tensorflow": ("tensorflow_bfc", {}, 256),
    "tensorflow whole": ("tensorflow_bfc", {"allow_growth": False, "memory_limit_bytes": 100 * MIB}, 256),
    "paddle growth": ("paddle_auto_growth", {}, 256),
    "paddle growth limited": (
        "paddle_auto_growth",
        {"gpu_memory_limit_mb": 100, "free_idle_chunk": True},
        256,
    ),
    "paddle chunk": ("paddle_naive_best_fit", {"available_bytes": 100 * MIB}, 256),
    "paddle direct": ("paddle_naive_best_fit", {"fraction_of_gpu_memory_to_use": 0.0}, 256),
}

SIZES = st.one_of(
    st.integers(0, 4096),
    st.integers(0, 3 * MIB),
    st.integers(MIB, 60 * MIB),
    st.sampled_from([0, 1, 512, 513, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 20 * MIB]),
)
# A size asks for memory; a number in [0, 1) says which of the living to free.
STEPS = st.lists(st.one_of(SIZES, st.floats(0, 1, exclude_max=True)), max_size=60)


def tiles(allocator: Any) -> tuple[int, int]:
    """Check that blocks tile their region without overlap and regions do not overlap; bytes in regions, and in use."""
    end, held, used = 0, 0, 0
    for region in allocator.snapshot():
        assert isinstance(region, SegmentState | RegionState)
        assert region.address >= end, "regions overlap"
        at, free_before = region.address, False
        for block in region.blocks if isinstance(region, SegmentState) else region.chunks:
            assert block.address == at, "a gap or an overlap"
            assert block.size > 0
            at += block.size
            in_use = block.allocated if hasattr(block, "allocated") else block.used
            assert in_use or not free_before, "two free neighbours"
            free_before = not in_use
            assert in_use == (block.requested > 0)
            assert block.requested <= block.size
            used += block.size * in_use
        end = region.address + region.size
        assert at == end
        held += region.size
    return held, used


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_invariants(kind: str, steps: list[int | float]) -> None:
    name, options, step = KINDS[kind]
    allocator: Any = allocators.create(name, **options)
    live: dict[int, int] = {}
    freed: list[int] = []
    peak = peak_reserved = 0
    for number in steps:
        if isinstance(number, int):
            before = (allocator.allocated, len(live))
            try:
                handle = allocator.malloc(number)
            except allocators.OutOfMemoryError:
                assert (allocator.allocated, len(live)) == before
                assert options, "an allocator without a limit ran out"
                continue
            assert handle not in live
            assert handle not in freed
            live[handle] = number
            assert allocator.size_of(handle) >= number
            if number:
                assert allocator.address_of(handle) % step == 0
        elif live:
            handle = list(live)[int(number * len(live))]
            allocator.free(handle)
            del live[handle]
            freed.append(handle)
            with pytest.raises(ValueError, match="not alive"):
                allocator.free(handle)
        peak = max(peak, allocator.allocated)
        peak_reserved = max(peak_reserved, allocator.reserved)
        assert sum(map(allocator.size_of, live)) == allocator.allocated >= sum(live.values())
        assert allocator.reserved >= allocator.allocated
        assert allocator.peak_allocated == peak
        # Memory may be given back and taken again within one call.
        assert allocator.peak_reserved >= peak_reserved
        spans = sorted(
            (allocator.address_of(handle), allocator.size_of(handle)) for handle in live if live[handle]
        )
        assert all(one + size <= other for (one, size), (other, _) in pairwise(spans))
        held, used = tiles(allocator)
        assert held <= allocator.reserved
        assert used <= allocator.allocated
    for handle in list(live):
        allocator.free(handle)
    assert allocator.allocated == 0
    held, used = tiles(allocator)
    assert (held, used) == (allocator.reserved, 0)


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(st.one_of(st.integers(1, 80 * MIB), st.floats(0, 1, exclude_max=True)), max_size=60))
def test_addresses_never_overlap(steps: list[int | float]) -> None:
    space = AddressSpace()
    taken: dict[int, int] = {}
    for number in steps:
        if isinstance(number, int):
            address = space.take(number)
            assert address not in taken
            taken[address] = number
        elif taken:
            address = list(taken)[int(number * len(taken))]
            space.give(address, taken.pop(address))
        spans = sorted(taken.items())
        assert all(one + size <= other for (one, size), (other, _) in pairwise(spans))
        assert space.page_bytes >= sum(size for size in taken.values() if size >= 2 * MIB)
        assert space.page_bytes % (2 * MIB) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_negative_sizes_are_mistakes(kind: str) -> None:
    name, options, _ = KINDS[kind]
    with pytest.raises(ValueError, match="malloc of -1 bytes"):
        allocators.create(name, **options).malloc(-1)


def test_every_name_is_covered() -> None:
    assert {name for name, _, _ in KINDS.values()} == set(allocators.names())


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_a_replay_gives_the_same_addresses(kind: str, steps: list[int | float]) -> None:
    """Two simulators asked the same do the same, to the last address, region and call of the driver."""
    name, options, _ = KINDS[kind]

    def simulate() -> tuple[list[Any], Any]:
        allocator: Any = allocators.create(name, **options)
        live: list[int] = []
        said: list[Any] = []
        for number in steps:
            if isinstance(number, int):
                try:
                    live.append(allocator.malloc(number))
                except allocators.OutOfMemoryError as error:
                    said.append((str(error), error.requested, error.limit))
                    continue
                said.append((allocator.address_of(live[-1]), allocator.size_of(live[-1])))
            elif live:
                allocator.free(live.pop(int(number * len(live))))
            said.append((allocator.allocated, allocator.reserved, allocator.device_calls))
        return said, allocator.snapshot()

    assert simulate() == simulate()


# What each limited kind may take from the device, in bytes.
LIMITS = {
    "pytorch collecting": 250 * MIB,
    "pytorch limited": 100 * MIB,
    "pytorch expandable limited": 100 * MIB,
    "onnxruntime limited": 90 * MIB,
    "tensorflow whole": 100 * MIB,
    "paddle growth limited": 100 * MIB,
    "paddle chunk": 100 * MIB,
}


@pytest.mark.parametrize("kind", LIMITS)
@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_limits_are_respected(kind: str, steps: list[int | float]) -> None:
    """Never more than the limit is held, not even within a call; and a refusal says what was asked, and the limit."""
    name, options, _ = KINDS[kind]
    allocator: Any = allocators.create(name, **options)
    live: list[int] = []
    for number in steps:
        if isinstance(number, int):
            try:
                live.append(allocator.malloc(number))
            except allocators.OutOfMemoryError as error:
                assert error.requested >= number
                assert error.limit in (LIMITS[kind], *(v for v in options.values() if isinstance(v, int)))
                assert error.allocated == allocator.allocated
        elif live:
            allocator.free(live.pop(int(number * len(live))))
        assert allocator.peak_reserved <= LIMITS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_freed_in_any_order_is_one_block_again(kind: str) -> None:
    """Coalescing is complete: after everything was freed, each region is one free block (or wholly mapped pages)."""
    name, options, _ = KINDS[kind]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]):
        allocator: Any = allocators.create(name, **options)
        handles = [allocator.malloc(nbytes) for nbytes in (600, 3000, 200_000, 5000)]
        for at in order:
            allocator.free(handles[at])
        for region in allocator.snapshot():
            blocks = region.blocks if isinstance(region, SegmentState) else region.chunks
            assert len(blocks) == 1
            assert blocks[0].size == region.size
