"""TensorFlow's allocator on hand-computed sequences and document 000's figures."""

from __future__ import annotations

import pytest

from analyzer import allocators
from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.tensorflow_bfc import TensorFlowArena
from analyzer.errors import OptionError

MIB, GIB = 2**20, 2**30


def test_document_000_variable() -> None:
    """A variable of 1 GiB: current and peak 1,024.0 MiB; deleted, 0.0 and 1,024.0, and NVML shows no less than before.

    By NVML the process grew by 2,047 MiB (1,588 to 3,635). The region is 1,024 of them, and a peak of 1,024.0 leaves
    no room for a second buffer: the rest is not the allocator's.
    """
    arena = TensorFlowArena()
    value = arena.malloc(GIB)
    assert (arena.allocated, arena.peak_allocated, arena.reserved) == (1024 * MIB, 1024 * MIB, 1024 * MIB)
    arena.free(value)
    assert (arena.allocated, arena.peak_allocated, arena.reserved) == (0, 1024 * MIB, 1024 * MIB)


def test_two_buffers_of_one_gib_are_two_regions() -> None:
    arena = TensorFlowArena()
    value = arena.malloc(GIB)
    arena.malloc(GIB)
    arena.free(value)
    assert (arena.allocated, arena.reserved) == (1024 * MIB, 2048 * MIB)


def test_doubling_has_no_end() -> None:
    arena = TensorFlowArena()
    for nbytes in (1, 3 * MIB, 7 * MIB, 7 * MIB, 2 * GIB, 2 * GIB, 4 * GIB):
        arena.malloc(nbytes)
    sizes = [extension.region_bytes // MIB for extension in arena.extensions]
    assert sizes == [2, 4, 8, 16, 2048, 2048, 4096]


def test_everything_at_once() -> None:
    arena = TensorFlowArena(allow_growth=False, memory_limit_bytes=10 * GIB)
    arena.malloc(1)
    assert (arena.allocated, arena.reserved) == (256, 10 * GIB)
    with pytest.raises(OutOfMemoryError):
        arena.malloc(10 * GIB)


def test_fragmentation_fraction() -> None:
    """60 MiB of a 64 MiB region waste 4 MiB: kept by default, split off when 1 percent of 200 MiB may be wasted."""
    for fraction, in_use in ((0.0, 64), (0.01, 60)):
        arena = TensorFlowArena(memory_limit_bytes=200 * MIB, fragmentation_fraction=fraction)
        arena.malloc(60 * MIB)
        assert arena.allocated == in_use * MIB


@pytest.mark.parametrize(
    "settings",
    [{"allow_growth": False}, {"memory_limit_bytes": -1}, {"fragmentation_fraction": 2.0}, {"growth": True}],
)
def test_bad_settings(settings: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        allocators.create("tensorflow_bfc", **settings)
