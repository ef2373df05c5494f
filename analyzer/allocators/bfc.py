"""The best-fit arena with coalescing (BFC) that TensorFlow wrote and ONNX Runtime adopted.

1. **Rounding**: up to 256 B, at least 256; zero bytes take nothing.
2. **Search**: the smallest free chunk that fits, the lowest address among equals (`chunks.py` on bins).
3. **Splitting**: if the chunk has at least twice the rounded request, or `max_dead_bytes` more than it;
   otherwise the whole chunk counts as in use.
4. **Freeing** joins free neighbours of the same region; regions stay.
5. **Extension**: with no chunk that fits, a new region is taken. A request larger than the next region
   doubles this until it fits, and it stays there; otherwise the region is taken as it is and the next
   doubles. No region has more than the limit has left; if the device has not that much, nine tenths of it,
   and so on down to the request.
6. `reserve` takes memory from the device past all this: one allocation, given back when freed, counted like a
   region.

Sources: `tensorflow/core/common_runtime/bfc_allocator.cc` and `onnxruntime/core/framework/bfc_arena.cc`
(1.30). Not modelled: several streams, timestamped frees, joining regions that lie next to each other
(TensorFlow does so only with its virtual memory allocator).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from analyzer.allocators.base import OutOfMemoryError
from analyzer.allocators.chunks import Chunk, Direct, PoolAllocator
from analyzer.allocators.driver import Leftover

ROUND_BYTES = 256
# Float arithmetic on purpose: the arenas multiply by a C `float`.
BACKPEDAL = np.float32(0.9)
_MOST_BYTES = (1 << 64) - 1  # of a size_t, which a model's shapes may exceed


@dataclass(frozen=True, slots=True)
class Extension:
    """One extension: request number `malloc_count` (from 0) of `requested_bytes` found no chunk.

    region_bytes: what was taken; held_bytes: all regions and reserved memory afterwards. reserved: by
    `reserve`, not by extension.
    """

    malloc_count: int
    requested_bytes: int
    region_bytes: int
    held_bytes: int
    reserved: bool = False


def with_room(region_bytes: int, size: int, room: int) -> int:
    """Return the bytes an arena takes when it wants `region_bytes` for a request of `size` bytes and `room`
    bytes are free; 0 where it gives up."""
    if size > room:
        return 0
    region_bytes = min(region_bytes, _MOST_BYTES)
    while region_bytes > room:
        less = int(np.float32(region_bytes) * BACKPEDAL)
        region_bytes = -(-less // ROUND_BYTES) * ROUND_BYTES
        # Below 8 KiB the arenas give up, lest rounding undo each step.
        if region_bytes < size or region_bytes < 8192:
            return 0
    return region_bytes


def next_region(size: int, growth: int, largest: int | None) -> tuple[int, int]:
    """Return the bytes of a new region for `size` bytes at growth `growth`, and the next growth."""
    if size <= growth:
        return growth, 2 * growth if largest is None else min(2 * growth, largest)
    while size > growth:
        growth *= 2
    return growth, growth


class BfcArena(PoolAllocator):
    """The simulator, in bytes; `malloc` raises OutOfMemoryError, `free` ValueError for a dead handle.

    allocated: chunks in use, unsplit rests included. requested: what was asked for. reserved (also `held`):
    regions and reserved memory. extensions: why each was taken. peak_page_bytes: most of `page_bytes`.
    """

    leftover: ClassVar[Leftover]

    def __init__(self, limit_bytes: int | None, max_dead_bytes: int, device_bytes: int | None) -> None:
        super().__init__(self.leftover)
        self.requested = self.peak_requested = 0
        self.extensions: list[Extension] = []
        self.peak_page_bytes = 0
        self._limit, self._max_dead, self._device = limit_bytes, max_dead_bytes, device_bytes
        self._growth = 0
        self._largest: int | None = None

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

    def malloc(self, nbytes: int, stream: int | None = 0) -> int:  # noqa: ARG002
        """Take a chunk for `nbytes` bytes and return its handle; one stream, so it is not asked which."""
        if nbytes < 0:
            raise ValueError(f"malloc of {nbytes} bytes")
        if nbytes == 0:
            return self._hand_out(None, 0)
        size = -(-nbytes // ROUND_BYTES) * ROUND_BYTES
        chunk = self._pool.find(size)
        if chunk is None:
            self._extend(nbytes, size)
            chunk = self._pool.find(size)
            assert chunk is not None
        if chunk.size >= 2 * size or chunk.size - size >= self._max_dead:
            chunk = self._pool.cut(chunk, size)
        chunk.used, chunk.requested = True, nbytes
        return self._hand_out(chunk, nbytes)

    def reserve(self, nbytes: int) -> int:
        """Take `nbytes` from the device directly, as for initializers with
        `session.use_device_allocator_for_initializers`; neither rounded nor limited. Returns a handle for
        `free`."""
        if nbytes <= 0:
            return self.malloc(nbytes)
        if self._device is not None and self.reserved + nbytes > self._device:
            raise OutOfMemoryError(nbytes, self.allocated, self.reserved, self._device)
        direct = Direct(self._space.take(nbytes), nbytes)
        self._hold(nbytes, nbytes, reserved=True)
        return self._hand_out(direct, nbytes)

    def free(self, handle: int) -> None:
        """Give back what `malloc` or `reserve` took."""
        try:
            held = self._live.pop(handle)
        except KeyError:
            raise ValueError(f"handle {handle} is not alive") from None
        if held is None:
            return
        self.allocated -= held.size
        if isinstance(held, Chunk):
            self.requested -= held.requested
            self._pool.release(held)
            return
        self._space.give(held.address, held.size)
        self.requested -= held.size
        self.reserved -= held.size

    def reset_peaks(self) -> None:
        """Start new peaks from the current state."""
        self.peak_allocated, self.peak_requested = self.allocated, self.requested
        self.peak_reserved = self.reserved

    def _region_bytes_for(self, size: int) -> int:
        """Return the bytes of a new region for a rounded request, and set `_growth` for the next."""
        region_bytes, self._growth = next_region(size, self._growth, self._largest)
        return region_bytes

    def _hand_out(self, held: Chunk | Direct | None, nbytes: int) -> int:
        self.allocated += held.size if held else 0
        self.requested += nbytes
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.peak_requested = max(self.peak_requested, self.requested)
        handle = self._malloc_count
        self._malloc_count += 1
        self._live[handle] = held
        return handle

    def _extend(self, nbytes: int, size: int) -> None:
        """Add a region: of the next size, doubled until the request fits; less where the device has less."""
        available = None
        if self._limit is not None:
            available = (self._limit - self.reserved) // ROUND_BYTES * ROUND_BYTES
            if size > available:
                raise OutOfMemoryError(nbytes, self.allocated, self.reserved, self._limit)
        # A request that the device then has no room for has made the next region larger all the same.
        region_bytes = self._region_bytes_for(size)
        if available is not None:
            region_bytes = min(region_bytes, available)
        if self._device is not None:
            region_bytes = with_room(region_bytes, size, self._device - self.reserved)
            if not region_bytes:
                raise OutOfMemoryError(nbytes, self.allocated, self.reserved, self._device)
        self._pool.add(self._space.take(region_bytes), region_bytes)
        self._hold(region_bytes, nbytes)

    def _hold(self, region_bytes: int, nbytes: int, *, reserved: bool = False) -> None:
        self.reserved += region_bytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self.peak_page_bytes = max(self.peak_page_bytes, self._space.page_bytes)
        self.extensions.append(Extension(self._malloc_count, nbytes, region_bytes, self.reserved, reserved))
