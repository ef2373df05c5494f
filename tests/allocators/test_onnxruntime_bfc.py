"""ONNX Runtime's arena: recorded extensions and hand-computed sequences."""

from __future__ import annotations

import json
from typing import Any

import pytest

from analyzer import allocators
from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.onnxruntime_bfc import OnnxRuntimeArena
from analyzer.errors import OptionError
from tests.paths import DATA

MIB = 2**20
RUNS: list[dict[str, Any]] = json.loads((DATA / "h200" / "ort_extensions.json").read_text())


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["case"].replace(" ", "-"))
def test_recorded_extensions(run: dict[str, Any]) -> None:
    """Every extension of every arena is as large as ONNX Runtime's log says."""
    for name, extensions in run["arenas"].items():
        strategy = run["strategy"] if name == "Cuda" else "kNextPowerOfTwo"
        arena = OnnxRuntimeArena(arena_extend_strategy=strategy)
        held = 0
        for requested, rounded, taken in extensions:
            arena._extend(requested, rounded)
            held += taken
            assert arena.extensions[-1].region_bytes == taken
            assert arena.held == held


def test_growth() -> None:
    """25.6 KB, 1.4 MB, 1.96 MB, 36 MB, 1.156 GB extend by 1, 2, 4, 64 MiB and 2 GiB."""
    arena = OnnxRuntimeArena()
    for nbytes in (25_600, 1_400_000, 1_960_000, 36_000_000, 1_156_000_000):
        arena.malloc(nbytes)
    assert [extension.region_bytes // MIB for extension in arena.extensions] == [1, 2, 4, 64, 2048]
    assert [extension.requested_bytes for extension in arena.extensions[:2]] == [25_600, 1_400_000]


def test_growth_ends_at_the_largest() -> None:
    """512 MiB, then 1 GiB again and again; 1.5 GiB raise it to 2 GiB for this and one more region, then it is 1 GiB."""
    arena = OnnxRuntimeArena(initial_chunk_size_bytes=512 * MIB)
    for size in (300, 700, 600, 1000, 1536, 600, 1000, 700):
        arena.malloc(size * MIB)
    # The 1,000 MiB before the last come out of the second region of 2 GiB.
    assert [extension.region_bytes // MIB for extension in arena.extensions] == [
        512,
        1024,
        1024,
        1024,
        2048,
        2048,
        1024,
    ]


def test_split_rule() -> None:
    """A chunk below twice the request is taken whole: 600 KiB of 1 MiB; 512 KiB leave 512 KiB."""
    arena = OnnxRuntimeArena()
    whole = arena.malloc(600 * 1024)
    assert (arena.allocated, arena.requested, arena.held) == (MIB, 600 * 1024, MIB)
    arena.free(whole)
    half = arena.malloc(512 * 1024)
    assert (arena.size_of(half), arena.allocated, arena.peak) == (512 * 1024, 512 * 1024, MIB)


def test_dead_bytes() -> None:
    """300 MiB in 512 waste 212 MiB, more than 128: split. 400 MiB waste 112: taken whole."""
    arena = OnnxRuntimeArena(initial_chunk_size_bytes=512 * MIB)
    handle = arena.malloc(300 * MIB)
    assert arena.allocated == 300 * MIB
    arena.free(handle)
    arena.malloc(400 * MIB)
    assert arena.allocated == 512 * MIB


def test_same_as_requested() -> None:
    arena = OnnxRuntimeArena(arena_extend_strategy="kSameAsRequested")
    first = arena.malloc(1000)
    arena.malloc(3 * MIB + 1)
    assert [extension.region_bytes for extension in arena.extensions] == [1024, 3 * MIB + 256]
    arena.free(first)
    assert arena.shrink() == 1024
    assert arena.held == 3 * MIB + 256


def test_shrink_keeps_the_first_region() -> None:
    arena = OnnxRuntimeArena()
    handles = [arena.malloc(nbytes) for nbytes in (MIB, 8 * MIB)]
    for handle in handles:
        arena.free(handle)
    assert arena.shrink() == 8 * MIB
    assert arena.held == MIB
    arena.malloc(MIB + 256)
    assert arena.extensions[-1].region_bytes == 2 * MIB


def test_reserve_is_neither_rounded_nor_limited() -> None:
    arena = OnnxRuntimeArena(gpu_mem_limit=MIB)
    handle = arena.reserve(3 * MIB + 7)
    assert (arena.allocated, arena.held, arena.extensions[-1].reserved) == (3 * MIB + 7, 3 * MIB + 7, True)
    with pytest.raises(OutOfMemoryError):
        arena.malloc(1)
    arena.free(handle)
    arena.malloc(1)
    assert (arena.allocated, arena.held) == (256, MIB)


def test_limit() -> None:
    """10 MiB in all: 1, then 8 for 5 MiB, then the last MiB; nothing more."""
    arena = OnnxRuntimeArena(gpu_mem_limit=10 * MIB)
    for size in (1, 5, 1):
        arena.malloc(size * MIB)
    assert [extension.region_bytes // MIB for extension in arena.extensions] == [1, 8, 1]
    with pytest.raises(OutOfMemoryError) as caught:
        arena.malloc(4 * MIB)
    assert caught.value.limit == 10 * MIB


def test_device_without_room_gets_smaller_requests() -> None:
    """64 MiB wanted on a device with 60: 0.9 * 64 MiB rounded up to 256 B fit."""
    arena = OnnxRuntimeArena(device_bytes=60 * MIB)
    arena.malloc(36 * MIB)
    assert arena.extensions[-1].region_bytes == 60_398_080
    with pytest.raises(OutOfMemoryError):
        arena.malloc(50 * MIB)


def test_no_float_holds_what_no_device_does() -> None:
    """A shape in a file may ask for more than a size_t counts; what is asked for after it finds room."""
    arena = OnnxRuntimeArena(device_bytes=64 * MIB)
    with pytest.raises(OutOfMemoryError):
        arena.malloc(2**1000)
    arena.malloc(MIB)
    assert MIB <= arena.held <= 64 * MIB


def test_small_regions_share_pages() -> None:
    """The driver's pages: 1 MiB lies in what the context left of a page, 4 MiB take two pages of their own."""
    arena = OnnxRuntimeArena()
    arena.malloc(MIB)
    assert (arena.held, arena.page_bytes) == (MIB, 0)
    arena.malloc(3 * MIB)
    assert (arena.held, arena.page_bytes) == (5 * MIB, 4 * MIB)


def test_bad_settings() -> None:
    with pytest.raises(OptionError, match="strategy"):
        allocators.create("onnxruntime_bfc", arena_extend_strategy="kTwice")
    with pytest.raises(OptionError, match="gpu_memory_limit") as caught:
        allocators.create("onnxruntime_bfc", gpu_memory_limit=1)
    assert "did you mean 'gpu_mem_limit'" in caught.value.hint
    with pytest.raises(OptionError, match="above 0"):
        allocators.create("onnxruntime_bfc", gpu_mem_limit=0)
