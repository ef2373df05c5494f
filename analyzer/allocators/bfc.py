"""The best-fit arena with coalescing (BFC) that TensorFlow wrote and ONNX Runtime adopted.

1. **Rounding**: up to 256 B, at least 256; zero bytes take nothing.
2. **Search**: the smallest free chunk that fits, the lowest address among equals (`chunks.py` on bins).
3. **Splitting**: if the chunk has at least twice the rounded request, or `max_dead_bytes` more than it; otherwise the
   whole chunk counts as in use.
4. **Freeing** joins free neighbours of the same region; regions stay.
5. **Extension**: with no chunk that fits, a new region is taken, as large as the subclass's strategy says but at most
   what the limit has left. If the device has not that much, nine tenths of it, and so on down to the request.
6. `reserve` takes memory from the device past all this: one allocation, given back when freed, counted like a region.

Sources: `tensorflow/core/common_runtime/bfc_allocator.cc` and `onnxruntime/core/framework/bfc_arena.cc` (1.30).
Not modelled: several streams, timestamped frees, joining regions that lie next to each other (TensorFlow does so only
with its virtual memory allocator).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from analyzer.allocators.base import OutOfMemoryError
from analyzer.allocators.chunks import Chunk, ChunkPool, RegionState
from analyzer.allocators.driver import AddressSpace, Leftover

ROUND_BYTES = 256
# Float arithmetic on purpose: the arenas multiply by a C `float`.
BACKPEDAL = np.float32(0.9)


@dataclass(frozen=True, slots=True)
class Extension:
    """Why memory was taken from the device: request number `malloc_count` (from 0) of `requested_bytes` found no chunk.

    region_bytes: what was taken; growth_bytes: what the strategy would take next; held_bytes: all regions and reserved
    memory afterwards. reserved: by `reserve`, not by extension.
    """

    malloc_count: int
    requested_bytes: int
    rounded_bytes: int
    region_bytes: int
    growth_bytes: int
    held_bytes: int
    reserved: bool = False


class BfcArena(ABC):
    """The simulator. All figures in bytes; `malloc` raises OutOfMemoryError, `free` ValueError for a dead handle.

    allocated (also `in_use`): chunks in use, unsplit rests included. requested: what was asked for.
    reserved (also `held`): regions and reserved memory. extensions: why each was taken.
    """

    leftover: ClassVar[Leftover]

    def __init__(self, limit_bytes: int | None, max_dead_bytes: int, device_bytes: int | None) -> None:
        self.allocated = self.peak_allocated = 0
        self.requested = self.peak_requested = 0
        self.reserved = self.peak_reserved = 0
        self.extensions: list[Extension] = []
        self._limit, self._max_dead, self._device = limit_bytes, max_dead_bytes, device_bytes
        self._growth = 0
        self._pool = ChunkPool()
        self._space = AddressSpace(self.leftover)
        self._live: dict[int, Chunk | tuple[int, int] | None] = {}
        self._malloc_count = 0

    @property
    def in_use(self) -> int:
        """`allocated` by its name in the arena's own statistics."""
        return self.allocated

    @property
    def held(self) -> int:
        """`reserved` by its name in ONNX Runtime's profile (`mem_arena_held`)."""
        return self.reserved

    @property
    def peak(self) -> int:
        """`peak_allocated` by its name in ONNX Runtime's profile (`mem_in_use_peak`)."""
        return self.peak_allocated

    @property
    def page_bytes(self) -> int:
        """Device memory the regions occupy in whole driver pages, as NVML counts it."""
        return self._space.page_bytes

    def malloc(self, nbytes: int) -> int:
        """Take a chunk for `nbytes` bytes and return its handle."""
        if nbytes < 0:
            raise ValueError(f"malloc of {nbytes} bytes")
        if nbytes == 0:
            return self._hand_out(None, 0, 0)
        size = -(-nbytes // ROUND_BYTES) * ROUND_BYTES
        chunk = self._pool.find(size)
        if chunk is None:
            self._extend(nbytes, size)
            chunk = self._pool.find(size)
            assert chunk is not None
        if chunk.size >= 2 * size or chunk.size - size >= self._max_dead:
            chunk = self._pool.cut(chunk, size)
        chunk.used, chunk.requested = True, nbytes
        return self._hand_out(chunk, chunk.size, nbytes)

    def reserve(self, nbytes: int) -> int:
        """Take `nbytes` from the device directly, as for initializers with
        `session.use_device_allocator_for_initializers`; neither rounded nor limited. Returns a handle for `free`."""
        if nbytes <= 0:
            return self.malloc(nbytes)
        if self._device is not None and self.reserved + nbytes > self._device:
            raise OutOfMemoryError(nbytes, self.allocated, self.reserved, self._device)
        address = self._space.take(nbytes)
        self._hold(nbytes, nbytes, nbytes, reserved=True)
        return self._hand_out((address, nbytes), nbytes, nbytes)

    def free(self, handle: int) -> None:
        """Give back what `malloc` or `reserve` took."""
        try:
            held = self._live.pop(handle)
        except KeyError:
            raise ValueError(f"handle {handle} is not alive") from None
        if held is None:
            return
        if isinstance(held, Chunk):
            self.allocated -= held.size
            self.requested -= held.requested
            self._pool.release(held)
            return
        address, nbytes = held
        self._space.give(address, nbytes)
        self.allocated -= nbytes
        self.requested -= nbytes
        self.reserved -= nbytes

    def size_of(self, handle: int) -> int:
        """Bytes in use behind a live handle."""
        held = self._live[handle]
        return 0 if held is None else held.size if isinstance(held, Chunk) else held[1]

    def address_of(self, handle: int) -> int:
        """Address of what a live handle stands for (0 for a request of 0 bytes)."""
        held = self._live[handle]
        return 0 if held is None else held.address if isinstance(held, Chunk) else held[0]

    def snapshot(self) -> tuple[RegionState, ...]:
        """Every region and its chunks, by address; reserved memory is not among them."""
        return self._pool.snapshot()

    def reset_peaks(self) -> None:
        """Start new peaks from the current state."""
        self.peak_allocated, self.peak_requested = self.allocated, self.requested
        self.peak_reserved = self.reserved

    @abstractmethod
    def _strategy(self, size: int) -> int:
        """Bytes of the region that a rounded request of `size` bytes makes the arena take; updates `_growth`."""

    def _hand_out(self, held: Chunk | tuple[int, int] | None, size: int, nbytes: int) -> int:
        self.allocated += size
        self.requested += nbytes
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.peak_requested = max(self.peak_requested, self.requested)
        handle = self._malloc_count
        self._malloc_count += 1
        self._live[handle] = held
        return handle

    def _extend(self, nbytes: int, size: int) -> None:
        """Rule 5."""
        available = None
        if self._limit is not None:
            available = (self._limit - self.reserved) // ROUND_BYTES * ROUND_BYTES
            if size > available:
                raise OutOfMemoryError(nbytes, self.allocated, self.reserved, self._limit)
        region_bytes = self._strategy(size)
        if available is not None:
            region_bytes = min(region_bytes, available)
        while self._device is not None and self.reserved + region_bytes > self._device:
            less = int(np.float32(region_bytes) * BACKPEDAL)
            region_bytes = -(-less // ROUND_BYTES) * ROUND_BYTES
            # Below 8 KiB the arenas give up, lest rounding undo each step.
            if region_bytes < size or region_bytes < 8192:
                raise OutOfMemoryError(nbytes, self.allocated, self.reserved, self._device)
        self._pool.add(self._space.take(region_bytes), region_bytes)
        self._hold(region_bytes, nbytes, size)

    def _hold(self, region_bytes: int, nbytes: int, size: int, *, reserved: bool = False) -> None:
        self.reserved += region_bytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self.extensions.append(
            Extension(self._malloc_count, nbytes, size, region_bytes, self._growth, self.reserved, reserved)
        )
