"""PyTorch's caching allocator on hand-computed sequences and published figures."""

from __future__ import annotations

import pytest

from analyzer import allocators
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.settings import PyTorchSettings, ties_of

MIB = 2**20


def test_document_001_first_tensor() -> None:
    """Document 001: a 1,024-element float32 tensor, del, empty_cache; 800 elements take 3,584 B."""
    allocator = PyTorchAllocator()
    tensor = allocator.malloc(1024 * 4)
    assert (allocator.allocated, allocator.reserved) == (4096, 2097152)
    allocator.free(tensor)
    assert (allocator.allocated, allocator.reserved) == (0, 2097152)
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved) == (0, 0)
    allocator.malloc(800 * 4)
    assert allocator.allocated == 3584
    assert allocator.requested == 3200


def test_document_001_linear() -> None:
    """Document 001: Linear(256 -> 250), batch 1, with the 8,519,680-byte workspaces of forward and backward."""
    allocator = PyTorchAllocator()
    allocator.malloc(256 * 250 * 4)
    allocator.malloc(250 * 4)
    assert allocator.allocated == 257024
    allocator.malloc(256 * 4)
    assert allocator.allocated == 258048
    allocator.malloc(8519680)
    allocator.malloc(250 * 4)
    assert allocator.allocated == 8778752


def test_document_000_variable() -> None:
    """Document 000: a variable of 1 GiB: 1024.0 MiB allocated and reserved."""
    allocator = PyTorchAllocator()
    allocator.malloc(2**30)
    assert allocator.allocated == allocator.reserved == 1024 * MIB


@pytest.mark.parametrize(
    ("nbytes", "block", "segment"),
    [
        (0, 0, 0),
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB - 1, 12 * MIB, 12 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),
        (12 * MIB + 1, 12 * MIB + 512, 14 * MIB),
    ],
)
def test_block_and_segment(nbytes: int, block: int, segment: int) -> None:
    """Rules 1, 2 and 4: a rest of at most 1 MiB in the large pool stays with its block."""
    allocator = PyTorchAllocator()
    handle = allocator.malloc(nbytes)
    assert (allocator.size_of(handle), allocator.reserved) == (block, segment)


def test_best_fit_then_lowest_address() -> None:
    """Rule 3: of two free blocks of 2 MiB, between blocks in use, the lower one serves; a 3 MiB one is left alone."""
    allocator = PyTorchAllocator()
    handles = [allocator.malloc(size * MIB) for size in (2, 4, 3, 4, 2, 4)]
    start = allocator.address_of(handles[0])
    for index in (4, 2, 0):
        allocator.free(handles[index])
    assert allocator.address_of(allocator.malloc(2 * MIB)) == start
    assert allocator.address_of(allocator.malloc(2 * MIB)) == start + 13 * MIB


@pytest.mark.parametrize(("release", "order"), [((2, 11), (0, 4)), ((2, 12), (4, 0)), ((2, 13), (0, 4))])
def test_which_of_two_equal_blocks(release: tuple[int, int], order: tuple[int, int]) -> None:
    """Rule 3: two free blocks of 2 MiB in one segment; in torch 2.12 what is handed out of a larger block is made anew, so that the upper
    one, taken from the last rest as a whole, is the older."""
    allocator = PyTorchAllocator(PyTorchSettings(ties=ties_of(release)))
    handles = [allocator.malloc(size * MIB) for size in (2, 4, 8, 4, 2)]  # all of 20 MiB
    addresses = [allocator.address_of(handle) for handle in handles]
    for index in (0, 4):
        allocator.free(handles[index])
    again = [allocator.address_of(allocator.malloc(2 * MIB)) for _ in range(2)]
    assert again == [addresses[index] for index in order]


def test_what_another_stream_uses_is_requested_until_it_serves_again() -> None:
    """Rule 5, as the counters of torch 2.13 have it: allocated falls at once, requested once the block is free."""
    allocator = PyTorchAllocator()
    handle = allocator.malloc(1000)
    allocator.use(handle, 1)
    allocator.free(handle)
    (segment,) = allocator.snapshot()
    assert (allocator.allocated, allocator.requested) == (0, 1000)
    assert [(block.allocated, block.pending) for block in segment.blocks] == [(False, True), (False, False)]
    allocator.wait()
    assert allocator.requested == 0


def test_free_joins_neighbours() -> None:
    """Rule 5: three adjacent blocks become one again, whichever goes last."""
    for order in ((0, 1, 2), (0, 2, 1), (2, 1, 0)):
        allocator = PyTorchAllocator()
        handles = [allocator.malloc(1024) for _ in range(3)]
        for index in order:
            allocator.free(handles[index])
        (segment,) = allocator.snapshot()
        assert [(block.size, block.allocated) for block in segment.blocks] == [(2 * MIB, False)]


def test_freed_twice() -> None:
    allocator = PyTorchAllocator()
    handle = allocator.malloc(1)
    allocator.free(handle)
    with pytest.raises(ValueError, match="not alive"):
        allocator.free(handle)


def test_limit_frees_cached_segments_first() -> None:
    """Rule 6: 30 MiB of room: a cached 20 MiB goes back before 24 MiB are taken; 32 MiB never fit."""
    allocator = allocators.create("pytorch", limit_bytes=30 * MIB)
    allocator.free(allocator.malloc(20 * MIB))
    held = allocator.malloc(24 * MIB)
    assert (allocator.allocated, allocator.reserved, allocator.peak_reserved) == (
        24 * MIB,
        24 * MIB,
        24 * MIB,
    )
    with pytest.raises(allocators.OutOfMemoryError) as caught:
        allocator.malloc(32 * MIB)
    error = caught.value
    assert (error.requested, error.allocated, error.reserved, error.limit) == (
        32 * MIB,
        24 * MIB,
        24 * MIB,
        30 * MIB,
    )
    allocator.free(held)
    assert allocator.allocated == 0
