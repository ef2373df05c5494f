"""Requests served on in plain numbers leave the simulator as if it had served them itself."""

from __future__ import annotations

import random

import numpy as np
import pytest

from analyzer.allocators.base import OutOfMemoryError
from analyzer.allocators.pytorch import onward
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.settings import PyTorchSettings, Ties
from tests.allocators.compiled import compiled

MIB = 2**20


def begun(settings: PyTorchSettings, seed: int) -> tuple[PyTorchAllocator, dict[int, int]]:
    """An allocator some of whose blocks nobody gives back, others may be: key -> handle."""
    drawn = random.Random(seed)
    allocator = PyTorchAllocator(settings)
    handles = [
        allocator.malloc(drawn.choice((700, 3 * MIB, 24 * MIB, 40_000, 0)), 7 * (number % 4 == 3))
        for number in range(30)
    ]
    for handle in handles[::3]:
        allocator.free(handle)
    for handle in handles[2::3]:  # what another stream uses, and nobody gives back meanwhile
        allocator.use(handle, 9)
    return allocator, dict(enumerate(handles[1::3]))


def requests(seed: int, held: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    drawn = random.Random(seed)
    alive, rows, sizes = set(held), [], []
    for _ in range(400):
        free = [key for key in range(60) if key not in alive]
        if free and drawn.random() < 0.55:
            key = drawn.choice(free)
            rows.append((key, len(sizes), drawn.choice((0, 0, 7, 5))))
            sizes.append(
                drawn.choice((1, 512, 513, MIB, MIB + 1, 5 * MIB, 11 * MIB, drawn.randrange(1, 30 * MIB)))
            )
            alive.add(key)
        elif alive:
            key = drawn.choice(sorted(alive))
            rows.append((key, -1, 0))
            alive.remove(key)
    return np.array(rows, np.int64), np.array(sizes, np.int64)


def simulated(
    allocator: PyTorchAllocator, held: dict[int, int], parts: list[tuple[np.ndarray, np.ndarray]]
) -> dict[int, int]:
    """The same requests on the simulator, one by one."""
    handles = dict(held)
    for events, sizes in parts:
        for key, number, stream in events.tolist():
            if number >= 0:
                handles[key] = allocator.malloc(int(sizes[number]), stream)
            else:
                allocator.free(handles.pop(key))
    return handles


@pytest.mark.parametrize("ties", ["address", "segment"])
@pytest.mark.parametrize("seed", range(6))
def test_both_leave_the_same(seed: int, ties: Ties, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = PyTorchSettings(ties=ties)
    outcomes = []
    for plain in (True, False):
        allocator, held = begun(settings, seed)
        events, sizes = requests(seed, held)
        parts = [(events[:200].copy(), sizes), (events[200:], sizes)]
        if plain:
            monkeypatch.setattr(onward, "_best_fit", compiled(), raising=False)
            monkeypatch.setattr(onward, "AVAILABLE", True)
            assert onward.has_fast_path(allocator, held.values())
            handles = onward.simulate_on(allocator, held, parts, 60)
        else:
            handles = simulated(allocator, held, parts)
        left = [block.users for block in allocator._live.values() if block is not None]
        blocks = {key: (allocator.address_of(h), allocator.size_of(h)) for key, h in handles.items()}
        for key in sorted(handles)[::2]:  # and it goes on
            allocator.free(handles[key])
        more = [allocator.address_of(allocator.malloc(size)) for size in (300, 2 * MIB, 18 * MIB, MIB)]
        more += [allocator.address_of(allocator.malloc(size, 7)) for size in (300, 3 * MIB)]
        outcomes.append(
            (blocks, more, sorted(left), allocator.snapshot(), allocator.allocated, allocator.reserved, allocator.requested,
             allocator.peak_allocated, allocator.peak_reserved, allocator.segment_events)
        )  # fmt: skip
    assert outcomes[0] == outcomes[1]


def test_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onward, "_best_fit", compiled(), raising=False)
    monkeypatch.setattr(onward, "AVAILABLE", True)
    allocator = PyTorchAllocator(PyTorchSettings(limit_bytes=64 * MIB))
    with pytest.raises(OutOfMemoryError):
        onward.simulate_on(allocator, {}, [(np.array([[0, 0, 0]]), np.array([65 * MIB]))], 1)


def test_what_another_stream_uses_is_not_given_back_in_plain_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onward, "AVAILABLE", True)
    allocator = PyTorchAllocator(PyTorchSettings())
    ours, others = allocator.malloc(MIB), allocator.malloc(MIB)
    allocator.use(others, 3)
    assert onward.has_fast_path(allocator, [ours]) and not onward.has_fast_path(allocator, [ours, others])
    assert not onward.has_fast_path(PyTorchAllocator(PyTorchSettings(ties="block")))
    monkeypatch.setattr(onward, "AVAILABLE", False)
    assert not onward.has_fast_path(allocator, [ours])
