"""A session's peaks on its arena, in plain numbers, for callers that simulate it many times.

`StreamArena` is the arena itself; a property test holds this one to it. The chunks are compiled
(`allocators/compiled.py`); here are the regions: how large they are, where they lie, and whether the device
has them.

Not modelled: limits, shrinking, requests apart from the regions: `steps` says None for a session that has any
of these, and `simulate` says False where the device has no room, or no machine has the addresses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from analyzer.allocators.bfc import ROUND_BYTES, next_region, with_room
from analyzer.allocators.compiled import ADDRESS_BITS, AVAILABLE, FREE, OVER, Integers
from analyzer.allocators.driver import ONNXRUNTIME_LEFTOVER, ORIGIN, AddressSpace
from analyzer.allocators.onnxruntime_bfc import INITIAL_CHUNK_BYTES, LARGEST_EXTENSION_BYTES, MAX_DEAD_BYTES
from analyzer.parametric.lanes import Lanes
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.onnxruntime.options import SessionOptions

if AVAILABLE:
    from analyzer.allocators._best_fit import Chunks

_LAST_ADDRESS = (1 << ADDRESS_BITS) - 1
# An address is counted from far below any the driver gives.
_BASE = ORIGIN // ROUND_BYTES - (1 << (ADDRESS_BITS - 1))


@dataclass(frozen=True, slots=True)
class Steps:
    """events, units: as `Chunks.simulate` takes them; or units[lane] for each of several lanes."""

    events: Integers
    units: Integers

    def at(self, lane: int) -> Steps:
        """Return the steps of one lane."""
        return Steps(self.events, self.units[lane])


def steps(events: Iterable[AllocationEvent], options: SessionOptions, lane_count: int = 0) -> Steps | None:
    """Return the events as `PlainArena.simulate` takes them; None where the arena has rules that are not
    modelled here, sizes are beyond all numbers, or nothing is compiled. lane_count: how many lanes there are
    where sizes may be `Lanes` (`parametric/lanes.py`)."""
    if not AVAILABLE or options.gpu_mem_limit is not None or options.enable_memory_arena_shrinkage:
        return None
    rows: list[tuple[int, int, int]] = []
    units: list[Any] = []
    for event in events:
        if isinstance(event, Malloc):
            if event.outside_pools:
                return None
            rows.append((event.key, len(units), event.stream is not None))
            units.append(-(-event.nbytes // ROUND_BYTES))
        elif isinstance(event, Free):
            rows.append((event.key, FREE, 0))
        elif isinstance(event, Event):
            rows.append((0, OVER, 0))
        else:
            return None
    numbered = np.array(rows, np.int64).reshape(-1, 3)
    try:
        if not lane_count:
            return Steps(numbered, np.array(units, np.int64))
        every = np.empty((lane_count, len(units)), np.int64)
        for place, size in enumerate(units):
            every[:, place] = size.values if isinstance(size, Lanes) else size
        return Steps(numbered, every)
    except OverflowError:
        return None


@dataclass(frozen=True, slots=True)
class Reached:
    """Bytes: highest in use, held, and the driver's pages under the regions. served: every request was; else
    `held` is what the first that was not would have made it."""

    peak_in_use: int
    held: int
    page_bytes: int
    served: bool = True


class PlainArena:
    """One arena. device_bytes: memory of the device; None: unlimited."""

    def __init__(self, options: SessionOptions, device_bytes: int | None) -> None:
        self._doubles = options.arena_extend_strategy == "kNextPowerOfTwo"
        self._device = device_bytes
        self._growth = INITIAL_CHUNK_BYTES
        self._space = AddressSpace(ONNXRUNTIME_LEFTOVER)
        self._held = 0
        self._chunks = Chunks(MAX_DEAD_BYTES // ROUND_BYTES)

    def copy(self) -> PlainArena:
        """Return a copy of the arena."""
        other = PlainArena.__new__(PlainArena)
        other._doubles, other._device, other._growth = self._doubles, self._device, self._growth
        other._space, other._held, other._chunks = self._space.copy(), self._held, self._chunks.copy()
        return other

    @property
    def reached(self) -> Reached:
        """Peaks so far, in bytes."""
        return Reached(self._chunks.peak * ROUND_BYTES, self._held, self._space.page_bytes)

    def simulate(self, simulation: Steps) -> bool:
        """Simulate the steps; False if the device has not enough, which spoils the state."""
        try:
            return self._chunks.simulate(simulation.events, simulation.units, self._extend)
        except OverflowError:
            return False

    def _extend(self, units: int) -> tuple[int, int] | None:
        """Return (address, size) of a new region for a request of units; None without room."""
        size = region_bytes = units * ROUND_BYTES
        if self._doubles:
            region_bytes, self._growth = next_region(size, self._growth, LARGEST_EXTENSION_BYTES)
        if self._device is not None:
            region_bytes = with_room(region_bytes, size, self._device - self._held)
            if not region_bytes:
                return None
        address, count = self._space.take(region_bytes) // ROUND_BYTES - _BASE, region_bytes // ROUND_BYTES
        if address < 0 or address + count > _LAST_ADDRESS:
            return None  # an address too long for its bits: sizes no device has, such as a damaged file's
        self._held += region_bytes
        return address, count
