"""PyTorch's allocator where memory is short: its settings for large blocks, garbage collection, fractions; by hand."""

from __future__ import annotations

import pytest

from analyzer import allocators
from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.expandable import ExpandableAllocator
from analyzer.allocators.pytorch.settings import PyTorchSettings, as_divisions
from analyzer.errors import OptionError

MIB = 2**20


def made(**settings: object) -> PyTorchAllocator:
    allocator = allocators.create("pytorch", **settings)
    assert isinstance(allocator, PyTorchAllocator)
    return allocator


def test_small_requests_never_take_a_block_that_is_not_split() -> None:
    """max_split_size 40 MiB: a cached block of 40 MiB is left alone by 12 MiB; one of 38 serves it."""
    for size, reserved in ((40, 52), (38, 38)):
        allocator = made(max_split_size_mb=40)
        allocator.free(allocator.malloc(size * MIB))
        handle = allocator.malloc(12 * MIB)
        assert (allocator.reserved, allocator.size_of(handle)) == (reserved * MIB, 12 * MIB)


@pytest.mark.parametrize(("cached", "reserved"), [(58, 58), (60, 100), (62, 102)])
def test_large_requests_take_one_only_a_little_larger(cached: int, reserved: int) -> None:
    """40 MiB take a block of less than 40 + 20 MiB, whole."""
    allocator = made(max_split_size_mb=40, max_non_split_rounding_mb=20)
    allocator.free(allocator.malloc(cached * MIB))
    handle = allocator.malloc(40 * MIB)
    assert allocator.reserved == reserved * MIB
    assert allocator.size_of(handle) == (58 if reserved == 58 else 40) * MIB


def test_smaller_blocks_are_split_as_ever() -> None:
    allocator = made(max_split_size_mb=40)
    allocator.free(allocator.malloc(38 * MIB))
    handle = allocator.malloc(30 * MIB)
    assert (allocator.size_of(handle), allocator.reserved) == (30 * MIB, 38 * MIB)


@pytest.mark.parametrize(
    ("request_mib", "freed", "reserved"), [(135, [80, 60], 148), (150, [80, 60, 12], 150)]
)
def test_large_cached_blocks_go_back_before_all_of_them(
    request_mib: int, freed: list[int], reserved: int
) -> None:
    """Limit 200 MiB, 60 + 80 + 12 cached: the largest go first, those of at least 40; the 12 only if that is too little."""
    allocator = made(max_split_size_mb=40, limit_bytes=200 * MIB)
    for handle in [allocator.malloc(size * MIB) for size in (60, 80, 12)]:
        allocator.free(handle)
    allocator.malloc(request_mib * MIB)
    events = [event.size // MIB for event in allocator.segment_events if event.action == "segment_free"]
    assert (events, allocator.reserved) == (freed, reserved * MIB)


def test_one_cached_block_as_large_as_the_request_is_enough() -> None:
    """Limit 330: of 60, 110 and 130 MiB cached, 80 MiB (which none may serve) give back the smallest that covers it."""
    allocator = made(max_split_size_mb=40, max_non_split_rounding_mb=20, limit_bytes=330 * MIB)
    handles = [allocator.malloc(size * MIB) for size in (60, 110, 130)]
    for handle in handles:
        allocator.free(handle)
    allocator.malloc(80 * MIB)
    freed = [event.size // MIB for event in allocator.segment_events if event.action == "segment_free"]
    assert freed == [110]
    assert allocator.reserved == (60 + 130 + 80) * MIB


def test_without_max_split_everything_cached_goes_back() -> None:
    allocator = made(limit_bytes=100 * MIB)
    for handle in [allocator.malloc(size) for size in (30 * MIB, 40 * MIB, 100)]:
        allocator.free(handle)
    allocator.malloc(80 * MIB)
    events = [(event.action, event.size // MIB) for event in allocator.segment_events]
    assert events == [
        *(("segment_alloc", 30), ("segment_alloc", 40), ("segment_alloc", 2)),
        *(("segment_free", 30), ("segment_free", 40), ("segment_free", 2), ("segment_alloc", 80)),
    ]
    assert (allocator.peak_reserved, allocator.reserved) == (80 * MIB, 80 * MIB)


def test_a_segment_in_use_stays() -> None:
    allocator = made()
    kept, gone = allocator.malloc(12 * MIB), allocator.malloc(14 * MIB)
    allocator.free(gone)
    allocator.empty_cache()
    assert allocator.reserved == 12 * MIB
    allocator.free(kept)
    part = allocator.malloc(2 * MIB)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.size_of(part)) == (12 * MIB, 2 * MIB)


@pytest.mark.parametrize(
    ("threshold", "freed", "reserved"),
    [(0.3, [12, 14, 16], 50), (0.4, [12, 14], 66), (0.61, [12, 14], 66), (0.62, [], 92), (0.0, [], 92)],
)
def test_garbage_collection_returns_the_oldest(threshold: float, freed: list[int], reserved: int) -> None:
    """62 of 100 MiB are reserved when 30 more find no block. Cached are 12, 14 and 16 MiB, 3, 2 and 1 searches old: on
    average 2, so the first two go together; the third only while more than the threshold is still reserved."""
    allocator = made(
        garbage_collection_threshold=threshold, per_process_memory_fraction=0.5, device_total_bytes=200 * MIB
    )
    allocator.malloc(2 * MIB)
    allocator.malloc(9 * MIB)  # 9 MiB of the first segment stay free: the smallest block, which serves 2 MiB
    for handle in [allocator.malloc(size * MIB) for size in (12, 14, 16)]:
        allocator.free(handle)
        allocator.free(allocator.malloc(2 * MIB))
    allocator.malloc(30 * MIB)
    events = [event.size // MIB for event in allocator.segment_events if event.action == "segment_free"]
    assert (events, allocator.reserved) == (freed, reserved * MIB)


def test_the_fraction_bounds_what_is_reserved() -> None:
    allocator = made(per_process_memory_fraction=0.5, device_total_bytes=100 * MIB)
    allocator.malloc(50 * MIB)
    with pytest.raises(OutOfMemoryError) as caught:
        allocator.malloc(1)
    assert (caught.value.requested, caught.value.limit) == (512, 50 * MIB)
    both = made(per_process_memory_fraction=0.5, device_total_bytes=100 * MIB, limit_bytes=40 * MIB)
    with pytest.raises(OutOfMemoryError) as caught:
        both.malloc(50 * MIB)
    assert caught.value.limit == 40 * MIB
    assert made(per_process_memory_fraction=1, device_total_bytes=MIB).malloc(50 * MIB) == 0
    assert made(per_process_memory_fraction=0, device_total_bytes=MIB).settings.allowed_bytes == 0
    assert made(per_process_memory_fraction=0.5).settings.allowed_bytes is None


def test_peaks_start_anew() -> None:
    for allocator in (PyTorchAllocator(), ExpandableAllocator()):
        held = allocator.malloc(1000)
        allocator.free(allocator.malloc(30 * MIB))
        allocator.empty_cache()
        allocator.reset_peaks()
        assert (allocator.peak_allocated, allocator.peak_requested) == (1024, 1000)
        assert allocator.peak_reserved == allocator.reserved == 2 * MIB
        allocator.free(held)
        assert (allocator.allocated, allocator.requested, allocator.peak_allocated) == (0, 0, 1024)


@pytest.mark.parametrize("allocator", [PyTorchAllocator(), ExpandableAllocator()])
def test_nothing_and_less(allocator: PyTorchAllocator) -> None:
    handle = allocator.malloc(0)
    assert (allocator.size_of(handle), allocator.address_of(handle)) == (0, 0)
    allocator.free(handle)
    with pytest.raises(ValueError, match="malloc of -1 bytes"):
        allocator.malloc(-1)
    assert allocator.malloc(1) == handle + 1


@pytest.mark.parametrize(
    ("divisions", "nbytes", "size"),
    [
        (None, 1025, 1536),
        ("4", 1025, 1536),  # at most 512 bytes a part: plain
        ("4", 2048, 2048),
        ("4", 2049, 2560),
        ("4", 4097, 5120),
        ("4", 1200 * 1024, 1280 * 1024),
        ("1", 1200 * 1024 + 1, 1200 * 1024 + 512),
        ("[1:2,2:4,>:8]", MIB + 1, 3 * MIB // 2),
        ("[1:2,2:4,>:8]", 2 * MIB + 1, 5 * MIB // 2),
        ("[1:2,2:4,>:8]", 2 * MIB - 1, 2 * MIB),
        ("[1:2,2:4,>:8]", 4 * MIB + 1, 4 * MIB + MIB // 2),
        ("[1:2,2:4,>:8]", 600 * 1024, 768 * 1024),
        ("[1:2,2:4,>:8]", 100 * 1024 * MIB, 104 * 1024 * MIB),
        ("[16384:2,>:8]", 32 * 1024 * MIB - 1, 32 * 1024 * MIB),
        ("[16384:2,>:8]", 32 * 1024 * MIB + 1, 36 * 1024 * MIB),
        ("4", 511, 512),
        ("4", 512, 512),
    ],
)
def test_rounding_by_divisions(divisions: str | None, nbytes: int, size: int) -> None:
    assert made(roundup_power2_divisions=divisions).rounded(nbytes) == size


def test_how_divisions_may_be_written() -> None:
    assert as_divisions(None) is None
    assert as_divisions((1,)) == (1,)
    assert as_divisions(4) == as_divisions("4") == (4,) * 16
    assert as_divisions({4: 2, ">": 8}) == as_divisions("[4:2,>:8]") == (2, 2, 2, *(8,) * 13)
    assert as_divisions("[>:4]") == (0, *(4,) * 15)
    assert as_divisions("[1:2,8:4]") == (2, 0, 0, 4, *(0,) * 12)
    assert as_divisions("[65536:2]") == (2,) * 16
    assert as_divisions("[32768:2]") == (2,) * 16
    assert as_divisions("[16384:2]") == (*(2,) * 15, 0)
    with pytest.raises(ValueError):
        as_divisions("[3:2]")
    with pytest.raises(ValueError):
        as_divisions("0")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"large_segment_size_mb": 10}, "large_segment_size_mb is 10"),
        ({"max_split_size_mb": 19}, "max_split_size_mb is 19"),
        ({"max_non_split_rounding_mb": 19}, "max_non_split_rounding_mb is 19"),
        ({"large_segment_size_mb": 30, "max_non_split_rounding_mb": 21}, "max_non_split_rounding_mb is 21"),
        ({"garbage_collection_threshold": 1}, "garbage_collection_threshold is 1"),
        ({"garbage_collection_threshold": -0.1}, "garbage_collection_threshold is -0.1"),
        ({"roundup_power2_divisions": (3,) * 16}, "roundup_power2_divisions is"),
        ({"roundup_power2_divisions": (2,) * 15}, "roundup_power2_divisions is"),
        ({"roundup_power2_divisions": (-2,) * 16}, "roundup_power2_divisions is"),
        ({"per_process_memory_fraction": 1.1}, "per_process_memory_fraction is 1.1"),
        ({"per_process_memory_fraction": -0.1}, "per_process_memory_fraction is -0.1"),
    ],
)
def test_settings_out_of_range(settings: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=f"PyTorch allocator: {message}"):
        made(**settings)


def test_settings_at_the_edge_of_their_range() -> None:
    made(large_segment_size_mb=11, max_split_size_mb=11, max_non_split_rounding_mb=11)
    made(large_segment_size_mb=30)
    made(max_split_size_mb=20, garbage_collection_threshold=0.0, per_process_memory_fraction=0.0)
    assert PyTorchSettings().max_non_split_rounding_bytes == 20 * MIB
    assert PyTorchSettings(max_split_size_mb=20).max_split_bytes == 20 * MIB
    assert PyTorchSettings().max_split_bytes is None


def test_expandable_ranges_follow_the_fraction_and_their_own_size() -> None:
    """The fraction is checked against a whole segment, 20 MiB, though pages of 20 are mapped one by one."""
    allocator = made(expandable_segments=True, per_process_memory_fraction=0.5, device_total_bytes=100 * MIB)
    allocator.malloc(30 * MIB)
    assert allocator.reserved == 40 * MIB
    with pytest.raises(OutOfMemoryError):
        allocator.malloc(12 * MIB)
    # A range is nine eighths of the device in whole pages; beyond it lies another.
    allocator = made(expandable_segments=True, device_total_bytes=100 * MIB)
    first, second = allocator.malloc(100 * MIB), allocator.malloc(20 * MIB)
    assert allocator.address_of(second) == allocator.address_of(first) + 100 * MIB
