"""`backend:cudaMallocAsync`: what PyTorch says of it, and the model beside what the driver's pool reserved on an H200."""

from __future__ import annotations

import pytest

from analyzer.allocators import OutOfMemoryError, create
from analyzer.allocators.pytorch.asynchronous import NOTE, AsyncAllocator
from analyzer.runtimes.pytorch.settings import notes_on, pool_bytes
from tests.allocators.pytorch.histories import histories

MIB = 1 << 20
CONF = "backend:cudaMallocAsync"
# The requests of these programs alone, made of the pool after one of 512 B (driver 580): MiB reserved at the end.
RESERVED = {"settings_gpt_default": 1536, "settings_resnet50_default": 3872, "gpt_char": 1248}


@pytest.mark.parametrize(("name", "reserved"), RESERVED.items())
def test_reserved_is_at_most_a_little_above_what_was_measured(name: str, reserved: int) -> None:
    allocator = create("pytorch", conf=CONF)
    handles: list[int] = []
    allocator.malloc(512)
    for action, value, _ in histories()[name].events:
        if action == 0:
            handles.append(allocator.malloc(value))
        elif action == 1:
            allocator.free(handles[len(handles) - value])
    assert reserved <= allocator.peak_reserved / MIB <= 1.05 * reserved


def test_the_bytes_asked_for_are_what_is_allocated() -> None:
    allocator = create("pytorch", conf=CONF)
    first, second = allocator.malloc(1000), allocator.malloc(3 * MIB + 1)
    assert allocator.allocated == 1000 + 3 * MIB + 1 and allocator.reserved == 64 * MIB
    allocator.free(first)
    allocator.free(second)
    assert (allocator.allocated, allocator.peak_allocated, allocator.reserved) == (
        0,
        1000 + 3 * MIB + 1,
        64 * MIB,
    )
    assert isinstance(allocator, AsyncAllocator)
    allocator.empty_cache()
    assert allocator.reserved == 0


def test_the_fraction_limits_what_is_in_use() -> None:
    allocator = create("pytorch", conf=CONF, device_total_bytes=1000 * MIB, per_process_memory_fraction=0.01)
    allocator.malloc(9 * MIB)
    assert allocator.reserved == 32 * MIB  # more than the fraction
    with pytest.raises(OutOfMemoryError):
        allocator.malloc(2 * MIB)


def test_the_estimate_says_that_it_is_a_model() -> None:
    assert notes_on(CONF) == (NOTE,) and notes_on("max_split_size_mb:64") == ()
    assert pool_bytes(CONF) == 70 * MIB and pool_bytes("") == 0
