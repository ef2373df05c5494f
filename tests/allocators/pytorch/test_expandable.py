"""Expandable segments on hand-computed sequences."""

from __future__ import annotations

import pytest

from analyzer import allocators
from analyzer.allocators.pytorch.expandable import ExpandableAllocator
from analyzer.allocators.pytorch.settings import PyTorchSettings

MIB = 2**20


def test_reserved_counts_pages() -> None:
    """Rule 1: 3 MiB map one 20 MiB page; 18 MiB more need one more; a small request maps 2 MiB of its own range."""
    allocator = ExpandableAllocator()
    first = allocator.malloc(3 * MIB)
    assert allocator.reserved == 20 * MIB
    second = allocator.malloc(18 * MIB)
    assert (allocator.size_of(first), allocator.size_of(second), allocator.reserved) == (
        3 * MIB,
        18 * MIB,
        40 * MIB,
    )
    assert allocator.address_of(second) == allocator.address_of(first) + 3 * MIB
    allocator.malloc(1)
    assert allocator.reserved == 42 * MIB


def test_growing_end_comes_last() -> None:
    """Rule 2: a hole of 9 MiB serves a 5 MiB request although the 6 MiB at the growing end fit better."""
    allocator = ExpandableAllocator()
    hole = allocator.malloc(9 * MIB)
    allocator.malloc(5 * MIB)
    start = allocator.address_of(hole)
    allocator.free(hole)
    assert allocator.address_of(allocator.malloc(5 * MIB)) == start
    assert allocator.reserved == 20 * MIB


def test_splits_small_rests() -> None:
    """Rule 4: a rest of 512 B is split off in the large pool too."""
    allocator = ExpandableAllocator()
    taken = allocator.malloc(20 * MIB - 512)
    assert allocator.size_of(taken) == 20 * MIB - 512


def test_empty_cache_unmaps_whole_pages() -> None:
    """Rule 5: of 50 MiB behind a 5 MiB block, pages from 20 MiB to 60 MiB go; then growth fills the gap again."""
    allocator = ExpandableAllocator()
    first = allocator.malloc(5 * MIB)
    big = allocator.malloc(50 * MIB)
    last = allocator.malloc(10 * MIB)
    assert allocator.reserved == 80 * MIB
    allocator.free(big)
    allocator.empty_cache()
    # 5..20 stays as the front, 20..40 goes; 40..55 shares its page with `last`, which ends at 65 in 60..80.
    assert allocator.reserved == 60 * MIB
    runs = [
        (run.size, [(block.size, block.allocated) for block in run.blocks]) for run in allocator.snapshot()
    ]
    assert runs == [
        (20 * MIB, [(5 * MIB, True), (15 * MIB, False)]),
        (40 * MIB, [(15 * MIB, False), (10 * MIB, True), (15 * MIB, False)]),
    ]
    refilled = allocator.malloc(50 * MIB)
    assert allocator.reserved == 80 * MIB
    assert allocator.address_of(refilled) == allocator.address_of(first) + 5 * MIB
    for handle in (first, last, refilled):
        allocator.free(handle)
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved, allocator.snapshot()) == (0, 0, ())


def test_limit() -> None:
    """The last attempt unmaps the small pool's page; then there is room for a third large page, not for a fourth."""
    allocator = allocators.create("pytorch", expandable_segments=True, limit_bytes=61 * MIB)
    allocator.free(allocator.malloc(1024))
    allocator.malloc(60 * MIB)
    assert allocator.reserved == 60 * MIB
    with pytest.raises(allocators.OutOfMemoryError):
        allocator.malloc(2 * MIB)


def test_page_size_is_a_setting() -> None:
    allocator = ExpandableAllocator(PyTorchSettings(large_segment_size_mb=12))
    allocator.malloc(2 * MIB)
    assert allocator.reserved == 12 * MIB


def test_a_second_range_where_the_first_is_too_broken_up() -> None:
    """The range has addresses for 9/8 of 160 MiB: 180. Of 40, 60 and 40 MiB the middle one is unmapped, 40 are
    left behind them: 80 MiB fit in neither place."""
    allocator = ExpandableAllocator(PyTorchSettings(device_total_bytes=160 * MIB))
    first, middle, last = (allocator.malloc(nbytes * MIB) for nbytes in (40, 60, 40))
    allocator.free(middle)
    allocator.empty_cache()
    assert allocator.reserved == 80 * MIB
    wide = allocator.malloc(80 * MIB)
    assert allocator.reserved == 160 * MIB
    assert allocator.address_of(wide) >= allocator.address_of(first) + 180 * MIB
    for handle in (first, last, wide):
        allocator.free(handle)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.snapshot()) == (0, ())


def test_more_than_the_device_without_a_limit() -> None:
    """The need of a program that does not fit: a range as long as the request, in whole pages of 20 MiB."""
    allocator = ExpandableAllocator(PyTorchSettings(device_total_bytes=100 * MIB))
    allocator.malloc(1024 * MIB)
    assert allocator.reserved == 1040 * MIB


def test_empty_cache_waits_for_other_streams() -> None:
    """`emptyCache` synchronizes the events of freed blocks first (`release_cached_blocks`)."""
    allocator = ExpandableAllocator(PyTorchSettings())
    handle = allocator.malloc(20 * MIB)
    allocator.use(handle, 1)
    allocator.free(handle)
    assert allocator.reserved == 20 * MIB
    allocator.empty_cache()
    assert allocator.reserved == 0
