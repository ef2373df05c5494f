"""PaddlePaddle's strategies as its guide (document 003) describes them, on hand-computed sequences."""

from __future__ import annotations

import pytest

from analyzer import allocators
from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.paddle import AutoGrowthAllocator, NaiveBestFitAllocator
from analyzer.errors import OptionError

MIB, GIB = 2**20, 2**30


def test_auto_growth_caches_and_splits() -> None:
    """Freed memory stays; a smaller request is cut from its high end; only a larger one goes to the device."""
    allocator = AutoGrowthAllocator()
    first = allocator.malloc(4 * MIB)
    assert (allocator.allocated, allocator.reserved) == (4 * MIB, 4 * MIB + 256)
    top = allocator.address_of(first) + 4 * MIB
    allocator.free(first)
    assert (allocator.allocated, allocator.reserved) == (0, 4 * MIB + 256)
    small = allocator.malloc(MIB)
    assert allocator.address_of(small) + MIB == top
    assert allocator.reserved == 4 * MIB + 256
    allocator.malloc(4 * MIB)
    assert allocator.reserved == 8 * MIB + 512


def test_auto_growth_rounds_to_256() -> None:
    allocator = AutoGrowthAllocator()
    assert allocator.size_of(allocator.malloc(1)) == 256
    assert allocator.size_of(allocator.malloc(257)) == 512


def test_auto_growth_chunk_size() -> None:
    allocator = AutoGrowthAllocator(auto_growth_chunk_size_in_mb=16)
    for _ in range(4):
        allocator.malloc(4 * MIB)
    assert allocator.reserved == 16 * MIB + 256


def test_limit_counts_cached_memory_but_frees_it_first() -> None:
    """FLAGS_gpu_memory_limit_mb=10: 6 MiB cached do not keep 8 MiB away; 6 MiB in use do."""
    allocator = allocators.create("paddle_auto_growth", FLAGS_gpu_memory_limit_mb=10)
    allocator.free(allocator.malloc(6 * MIB))
    held = allocator.malloc(8 * MIB)
    assert allocator.reserved == 8 * MIB + 256
    allocator.free(held)
    allocator.malloc(6 * MIB)
    with pytest.raises(OutOfMemoryError) as caught:
        allocator.malloc(6 * MIB)
    assert caught.value.limit == 10 * MIB


def test_free_idle_chunk_gives_back_at_once() -> None:
    allocator = AutoGrowthAllocator(free_idle_chunk=True)
    allocator.free(allocator.malloc(MIB))
    assert (allocator.reserved, allocator.peak_reserved) == (0, MIB + 256)


def test_pre_allocation_takes_its_share_at_once() -> None:
    """16 GiB available: the first request takes 0.92 of them; what follows is cut from it; nothing goes back."""
    allocator = NaiveBestFitAllocator(available_bytes=16 * GIB)
    chunk = int(0.92 * 16 * GIB) // 256 * 256
    assert allocator.reserved == 0
    first = allocator.malloc(1024)
    assert (allocator.allocated, allocator.reserved) == (1024, chunk)
    second = allocator.malloc(2 * GIB)
    assert (allocator.allocated, allocator.reserved) == (1024 + 2 * GIB, chunk)
    for handle in (first, second):
        allocator.free(handle)
    assert (allocator.allocated, allocator.reserved) == (0, chunk)


def test_larger_than_the_chunk_goes_to_the_device() -> None:
    """40 percent of 1,000 MiB: 500 MiB are no part of the chunk, and go back when freed."""
    allocator = NaiveBestFitAllocator(fraction_of_gpu_memory_to_use=0.4, available_bytes=1000 * MIB)
    big = allocator.malloc(500 * MIB)
    assert (allocator.allocated, allocator.reserved) == (500 * MIB, 500 * MIB)
    small = allocator.malloc(400 * MIB)
    assert (allocator.allocated, allocator.reserved) == (900 * MIB, 900 * MIB)
    allocator.free(big)
    assert (allocator.allocated, allocator.reserved) == (400 * MIB, 400 * MIB)
    allocator.free(small)
    assert (allocator.allocated, allocator.reserved) == (0, 400 * MIB)


def test_second_chunk_is_a_share_of_what_is_left() -> None:
    """Half of 1,000 MiB; when that is full, half of the other 500, but at least the request."""
    allocator = NaiveBestFitAllocator(fraction_of_gpu_memory_to_use=0.5, available_bytes=1000 * MIB)
    allocator.malloc(500 * MIB)
    allocator.malloc(MIB)
    assert allocator.reserved == 750 * MIB
    with pytest.raises(OutOfMemoryError):
        allocator.malloc(400 * MIB)
    allocator.malloc(249 * MIB)
    allocator.malloc(200 * MIB)
    assert allocator.reserved == 950 * MIB


def test_fraction_zero_follows_every_request() -> None:
    allocator = NaiveBestFitAllocator(fraction_of_gpu_memory_to_use=0.0)
    handles = [allocator.malloc(nbytes) for nbytes in (100, MIB)]
    assert allocator.reserved == allocator.allocated == 256 + MIB
    allocator.free(handles[1])
    assert allocator.reserved == allocator.allocated == 256


def test_limit_of_pre_allocation() -> None:
    with pytest.raises(OutOfMemoryError):
        NaiveBestFitAllocator(available_bytes=GIB, gpu_memory_limit_mb=100).malloc(1)
    sized = NaiveBestFitAllocator(available_bytes=GIB, gpu_memory_limit_mb=100, initial_gpu_memory_in_mb=64)
    sized.malloc(1)
    assert sized.reserved == 64 * MIB


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("paddle_auto_growth", {"gpu_memory_limit_mb": -1}),
        ("paddle_auto_growth", {"fraction_of_gpu_memory_to_use": 0.5}),
        ("paddle_naive_best_fit", {"fraction_of_gpu_memory_to_use": 1.5}),
        ("paddle_naive_best_fit", {"available_bytes": 0}),
        ("paddle_naive_best_fit", {"fraction_of_gpu_memory_to_use": -0.1}),
        ("paddle_naive_best_fit", {"initial_gpu_memory_in_mb": -1}),
        ("paddle_naive_best_fit", {"reallocate_gpu_memory_in_mb": -1}),
        ("paddle_auto_growth", {"auto_growth_chunk_size_in_mb": -1}),
    ],
)
def test_bad_settings(name: str, settings: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        allocators.create(name, **settings)


def test_settings_at_the_edge_of_their_range() -> None:
    assert (
        allocators.create("paddle_naive_best_fit", fraction_of_gpu_memory_to_use=1, available_bytes=1).malloc(
            0
        )
        == 0
    )
    held = allocators.create("paddle_auto_growth", available_bytes=512 + 256)
    assert (held.malloc(512), held.reserved) == (0, 768)
    assert held.malloc(256) == 1  # what was taken for alignment
    with pytest.raises(OutOfMemoryError):
        held.malloc(1)


def test_a_second_chunk_of_a_given_size() -> None:
    allocator = NaiveBestFitAllocator(
        initial_gpu_memory_in_mb=10, reallocate_gpu_memory_in_mb=4, available_bytes=100 * MIB
    )
    handles = [allocator.malloc(10 * MIB), allocator.malloc(MIB)]
    assert allocator.reserved == 14 * MIB
    assert allocator.malloc(5 * MIB) == 2 and allocator.reserved == 19 * MIB
    assert allocator.address_of(handles[1]) != allocator.address_of(handles[0])
    assert allocator.malloc(10 * MIB + 1) == 3 and allocator.reserved == 29 * MIB + 256


def test_a_miss_drops_idle_chunks_where_told() -> None:
    for free_when_no_cache_hit, reserved in ((False, 3 * MIB + 512), (True, 2 * MIB + 256)):
        allocator = AutoGrowthAllocator(free_when_no_cache_hit=free_when_no_cache_hit)
        allocator.free(allocator.malloc(MIB))
        allocator.malloc(2 * MIB)
        assert allocator.reserved == reserved
    with pytest.raises(ValueError, match="handle 7 is not alive"):
        allocator.free(7)
    with pytest.raises(ValueError, match="malloc of -1 bytes"):
        allocator.malloc(-1)
    empty = allocator.malloc(0)
    assert (allocator.size_of(empty), allocator.address_of(empty)) == (0, 0)
    allocator.free(empty)
