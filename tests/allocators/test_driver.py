"""Where the driver puts allocations: its rules on addresses worked out by hand, and the room's values."""

from __future__ import annotations

import pytest

from analyzer.allocators.driver import (
    ONNXRUNTIME_LEFTOVER,
    ORIGIN,
    PYTORCH_LEFTOVER,
    AddressSpace,
    Leftover,
)
from tests.values import not_values

MIB = 2**20
NOTHING = Leftover(())


def test_whole_pages_in_the_lowest_hole_that_has_room() -> None:
    space = AddressSpace(Leftover(((ORIGIN + 100 * MIB, 4 * MIB), (ORIGIN + 50 * MIB, 6 * MIB))))
    assert space.take(4 * MIB) == ORIGIN + 50 * MIB
    assert space.take(4 * MIB) == ORIGIN + 100 * MIB  # the first hole has 2 MiB left
    assert space.take(2 * MIB) == ORIGIN + 54 * MIB
    assert space.page_bytes == 10 * MIB


def test_chunks_of_32_mib_below_the_lowest() -> None:
    """40 MiB open 64; the 24 MiB left over are a hole for what comes next; 32 MiB leave none."""
    space = AddressSpace(NOTHING)
    assert space.take(40 * MIB) == ORIGIN - 64 * MIB
    assert space.take(24 * MIB - 1) == ORIGIN - 24 * MIB
    assert space.take(32 * MIB) == ORIGIN - 96 * MIB
    assert space.take(2 * MIB) == ORIGIN - 128 * MIB
    assert space.take(2 * MIB + 1) == ORIGIN - 126 * MIB
    assert space.page_bytes == (40 + 24 + 32 + 2 + 4) * MIB


def test_a_copy_goes_its_own_way_from_where_it_was_made() -> None:
    space = AddressSpace(ONNXRUNTIME_LEFTOVER)
    kept = [space.take(size) for size in (40 * MIB, 700, 3 * MIB)]
    space.give(kept[0], 40 * MIB)
    sizes = (500, 12 * MIB, 24 * MIB, 60 * MIB, 2 * MIB, 900_000)
    first, second = space.copy(), space.copy()
    addresses = [first.take(size) for size in sizes]
    assert [second.take(size) for size in sizes] == addresses == [space.take(size) for size in sizes]
    assert (second.page_bytes, second.call_count) == (space.page_bytes, space.call_count)


def test_each_request_and_each_return_is_a_call() -> None:
    space = AddressSpace(NOTHING)
    for size in (700, 40 * MIB):
        space.give(space.take(size), size)
    assert space.call_count == 4


def test_small_allocations_share_pages() -> None:
    """Steps of 512 bytes, the smallest gap that fits; a page is taken only where none has room."""
    space = AddressSpace(NOTHING)
    page = ORIGIN - 32 * MIB
    assert space.take(1) == page
    assert space.take(513) == page + 512
    assert space.page_bytes == 2 * MIB
    assert space.take(2 * MIB - 1) == page + 2 * MIB  # a whole page after rounding
    assert space.take(2 * MIB - 1536) == page + 1536
    assert space.take(512) == page + 4 * MIB
    assert space.page_bytes == 6 * MIB


def test_the_smallest_gap_that_fits_the_lowest_among_equals() -> None:
    gaps = ((ORIGIN + 5000, 2048), (ORIGIN + 90_000, 1024), (ORIGIN + 70_000, 1024))
    space = AddressSpace(Leftover((), gaps))
    assert space.take(1000) == ORIGIN + 70_000
    assert space.take(512) == ORIGIN + 90_000
    assert space.take(512) == ORIGIN + 90_512
    assert space.take(1025) == ORIGIN + 5000
    assert space.page_bytes == 0


def test_freed_pages_join_their_neighbours() -> None:
    space = AddressSpace(NOTHING)
    chunk = space.take(8 * MIB)
    parts = [chunk, space.take(8 * MIB), space.take(8 * MIB), space.take(8 * MIB)]
    assert parts == [chunk + 8 * MIB * place for place in range(4)]
    space.give(parts[0], 8 * MIB)
    space.give(parts[2], 8 * MIB - 1)
    assert space.page_bytes == 16 * MIB
    assert space.take(10 * MIB) == chunk - 32 * MIB  # no 10 MiB in a row
    space.give(parts[1], 8 * MIB)
    assert space.take(24 * MIB) == chunk
    space.give(parts[3], 8 * MIB)
    assert space.take(8 * MIB) == chunk - 22 * MIB
    assert space.take(16 * MIB) == chunk - 64 * MIB


def test_an_empty_chunk_is_given_back_and_ranges_serve_from_the_highest_address_down() -> None:
    space = AddressSpace(NOTHING)
    chunks = [space.take(size * MIB) for size in (64, 96, 32)]
    space.give(chunks[0], 64 * MIB)
    space.give(chunks[1], 96 * MIB)
    assert space.take(30 * MIB) == ORIGIN - 32 * MIB  # the two ranges are one of 160 MiB
    assert space.take(128 * MIB) == ORIGIN - 160 * MIB
    assert space.take(32 * MIB) == ORIGIN - 224 * MIB
    assert space.page_bytes == (32 + 30 + 128 + 32) * MIB


def test_holes_of_two_chunks_do_not_join() -> None:
    space = AddressSpace(NOTHING)
    upper, lower = space.take(32 * MIB), space.take(30 * MIB)
    assert space.take(2 * MIB) == lower + 30 * MIB == upper - 2 * MIB
    space.give(upper - 2 * MIB, 2 * MIB)
    half = space.take(32 * MIB)  # a third chunk, so that the first may become a hole in parts
    space.give(upper, 16 * MIB)
    assert half == lower - 32 * MIB
    assert space.take(18 * MIB) == half - 32 * MIB  # 2 MiB and 16 MiB lie side by side, in two chunks


def test_freed_small_allocations_keep_their_page() -> None:
    space = AddressSpace(NOTHING)
    first, _ = space.take(1000), space.take(1000)
    space.give(first, 1000)
    assert space.page_bytes == 2 * MIB
    assert space.take(1024) == first


def test_a_page_taken_for_a_small_allocation_is_no_hole() -> None:
    space = AddressSpace(Leftover(((ORIGIN, 2 * MIB),)))
    assert space.take(600) == ORIGIN
    assert space.take(2 * MIB) == ORIGIN - 32 * MIB
    assert space.take(2 * MIB - 1024) == ORIGIN + 1024


def test_what_a_process_finds() -> None:
    """PyTorch: 6 MiB and 22 MiB; ONNX Runtime: 12 MiB, and 1.85 MiB of a shared page that begins 0x26A00 into it."""
    space = AddressSpace()
    assert [space.take(size * MIB) - ORIGIN for size in (6, 20, 4, 2)] == [
        *(26 * MIB, 1034 * MIB, -32 * MIB, -28 * MIB)
    ]
    assert [size for _, size in PYTORCH_LEFTOVER.holes] == [6 * MIB, 22 * MIB]
    assert [address + size for address, size in ONNXRUNTIME_LEFTOVER.holes] == [
        ORIGIN + 32 * MIB
    ]  # a chunk's end
    space = AddressSpace(ONNXRUNTIME_LEFTOVER)
    assert space.take(12 * MIB) == ORIGIN + 20 * MIB
    assert space.take(0x1D9600) == ORIGIN + 8 * MIB + 0x26A00
    assert space.take(512) == ORIGIN - 32 * MIB
    assert ONNXRUNTIME_LEFTOVER.gaps[0][1] == 2 * MIB - 0x26A00


def test_values_cannot_be_changed() -> None:
    assert not_values("analyzer.allocators") == set()


@pytest.mark.parametrize("size", [1, 511, 512, 2 * MIB - 1, 2 * MIB, 33 * MIB])
def test_give_undoes_take(size: int) -> None:
    space = AddressSpace()
    address = space.take(size)
    space.give(address, size)
    assert space.take(size) == address


def test_the_lowest_hole_also_after_none_had_room() -> None:
    """A search in vain is not made again for as much, until there is a larger hole."""
    space = AddressSpace(NOTHING)
    taken = [space.take(20 * MIB) for _ in range(3)]  # each leaves 12 MiB of its chunk
    assert space.take(12 * MIB) == min(taken) + 20 * MIB
    assert space.take(14 * MIB) < min(taken)
    space.give(taken[0], 20 * MIB)  # its whole chunk goes back
    space.give(taken[1], 20 * MIB)
    first = space.take(2 * MIB)
    assert space.take(10 * MIB) == first + 2 * MIB
