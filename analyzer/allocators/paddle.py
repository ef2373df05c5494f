"""PaddlePaddle's two strategies for device memory.

**auto_growth** (`FLAGS_allocator_strategy=auto_growth`, the default since 1.7):
1. Requests are rounded up to 256 B. The smallest cached block that fits serves them, the lowest address among
   equals; the request takes the block's *high* end and any rest, however small, stays free.
2. Without one, a chunk of the rounded size, but at least `auto_growth_chunk_size_in_mb`, comes from the
   device. It is asked for with 256 B on top for alignment, which stay in it as a free block.
3. Freed blocks join free neighbours of their chunk and are cached. Idle chunks go back to the device only
   when it has no room, before the request is tried a second time (or at every free with `free_idle_chunk`, at
   every miss with `free_when_no_cache_hit`).

**naive_best_fit** (pre-allocation, the default before 1.7):
4. The chunk size is `fraction_of_gpu_memory_to_use` of the memory available on the card at that moment, or
   `initial_gpu_memory_in_mb`.
5. A request of at most the chunk size is cut (in steps of 256 B) from a chunk; the first such request takes
   the chunk, another is taken when none has room (its size again by rule 4, from what is then available, or
   `reallocate_gpu_memory_in_mb`, at least the request). Freed, it joins its chunk, which stays.
6. A larger request goes to the device directly, and back to it when freed. With a fraction of 0 all do.

Both: 7. `gpu_memory_limit_mb` above 0 bounds what is taken from the device, whatever it has left; "mb" are
2^20 bytes.

Sources: PaddlePaddle's guide "Memory Allocation and Optimization" (document 003);
`paddle/fluid/memory/allocation/auto_growth_best_fit_allocator.cc` and `aligned_allocator.cc` (rules 1 to 3),
`paddle/fluid/memory/detail/buddy_allocator.cc` (what rule 5 adds to the guide).
Not modelled: several streams, virtual memory allocators, naive_best_fit's 64-byte block descriptors,
addresses on the device beyond their order.
"""

from __future__ import annotations

from typing import Any

from analyzer.allocators.base import OutOfMemoryError, check_settings
from analyzer.allocators.chunks import Chunk, Direct, PoolAllocator
from analyzer.allocators.driver import PYTORCH_LEFTOVER
from analyzer.errors import OptionError

MIB = 2**20
ROUND_BYTES = 256
# Without other word, a card of 16 GiB, all of it free.
AVAILABLE_BYTES = 16 * 2**30


class _PaddleAllocator(PoolAllocator):
    """Base of both strategies, in bytes. `malloc` raises OutOfMemoryError, `free` ValueError for a dead
    handle. allocated: blocks in use. reserved: memory taken from the device."""

    def __init__(self, gpu_memory_limit_mb: int, available_bytes: int | None) -> None:
        super().__init__(PYTORCH_LEFTOVER)
        if gpu_memory_limit_mb < 0:
            raise OptionError(
                f"gpu_memory_limit_mb is {gpu_memory_limit_mb}", "it must be 0 (no limit) or above"
            )
        if available_bytes is not None and available_bytes <= 0:
            raise OptionError(f"available_bytes is {available_bytes}", "it must be above 0")
        bounds = [available_bytes, gpu_memory_limit_mb * MIB or None]
        self._limit = min((bound for bound in bounds if bound is not None), default=None)

    def free(self, handle: int) -> None:
        """Give back what `malloc` took."""
        try:
            held = self._live.pop(handle)
        except KeyError:
            raise ValueError(f"handle {handle} is not alive") from None
        if isinstance(held, Chunk):
            self.allocated -= held.size
            self._pool.release(held)
        elif held is not None:
            self.allocated -= held.size
            self._give(held.address, held.size)

    def _hand_out(self, held: Chunk | Direct | None, nbytes: int) -> int:
        if isinstance(held, Chunk):
            held.used, held.requested = True, nbytes
        handle = self._malloc_count
        self._malloc_count += 1
        self._live[handle] = held
        self.allocated += self.size_of(handle)
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return handle

    def _fits(self, nbytes: int) -> bool:
        return self._limit is None or self.reserved + nbytes <= self._limit

    def _take(self, nbytes: int) -> int:
        if not self._fits(nbytes):
            assert self._limit is not None
            raise OutOfMemoryError(nbytes, self.allocated, self.reserved, self._limit)
        self.reserved += nbytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return self._space.take(nbytes)

    def _give(self, address: int, nbytes: int) -> None:
        self.reserved -= nbytes
        self._space.give(address, nbytes)

    def _drop_idle(self) -> None:
        for region in self._pool.idle():
            self._pool.drop(region)
            self._give(region.address, region.size)


class AutoGrowthAllocator(_PaddleAllocator):
    """Best fit on 256 B, chunks that grow with demand, freed blocks cached.

    `available_bytes`: what the device has to give; None: no end.
    """

    def __init__(
        self,
        *,
        gpu_memory_limit_mb: int = 0,
        auto_growth_chunk_size_in_mb: int = 0,
        free_idle_chunk: bool = False,
        free_when_no_cache_hit: bool = False,
        available_bytes: int | None = None,
    ) -> None:
        super().__init__(gpu_memory_limit_mb, available_bytes)
        if auto_growth_chunk_size_in_mb < 0:
            raise OptionError(
                f"auto_growth_chunk_size_in_mb is {auto_growth_chunk_size_in_mb}", "it must not be negative"
            )
        self._chunk_bytes = max(auto_growth_chunk_size_in_mb * MIB, ROUND_BYTES)
        self._free_idle, self._free_on_miss = free_idle_chunk, free_when_no_cache_hit

    def malloc(self, nbytes: int, stream: int | None = 0) -> int:  # noqa: ARG002
        """Take a block for `nbytes` bytes and return its handle; one stream, so it is not asked which."""
        size = _rounded(nbytes)
        if size == 0:
            return self._hand_out(None, 0)
        block = self._pool.find(size)
        if block is None:
            if self._free_on_miss:
                self._drop_idle()
            chunk_bytes = max(size, self._chunk_bytes) + ROUND_BYTES
            if not self._fits(chunk_bytes):
                self._drop_idle()
            self._pool.add(self._take(chunk_bytes), chunk_bytes)
            block = self._pool.find(size)
            assert block is not None
        if block.size > size:
            block = self._pool.cut(block, size, high=True)
        return self._hand_out(block, nbytes)

    def free(self, handle: int) -> None:
        """Give the block back; it stays cached."""
        super().free(handle)
        if self._free_idle:
            self._drop_idle()


class NaiveBestFitAllocator(_PaddleAllocator):
    """Takes one chunk in advance and cuts requests from it; larger requests go straight to the device.

    `available_bytes`: memory free on the card at the first request; `overcommit` goes on past it, to find out
    how much would be needed. Figures count rounded blocks.
    """

    def __init__(
        self,
        *,
        fraction_of_gpu_memory_to_use: float = 0.92,
        gpu_memory_limit_mb: int = 0,
        initial_gpu_memory_in_mb: int = 0,
        reallocate_gpu_memory_in_mb: int = 0,
        available_bytes: int = AVAILABLE_BYTES,
        overcommit: bool = False,
    ) -> None:
        super().__init__(gpu_memory_limit_mb, available_bytes)
        if overcommit:
            self._limit = None
        if not 0 <= fraction_of_gpu_memory_to_use <= 1:
            raise OptionError(
                f"fraction_of_gpu_memory_to_use is {fraction_of_gpu_memory_to_use}",
                "it must lie between 0 and 1",
            )
        for name, value in (
            ("initial_gpu_memory_in_mb", initial_gpu_memory_in_mb),
            ("reallocate_gpu_memory_in_mb", reallocate_gpu_memory_in_mb),
        ):
            if value < 0:
                raise OptionError(f"{name} is {value}", "it must not be negative")
        self._fraction, self._available = fraction_of_gpu_memory_to_use, available_bytes
        self._again_bytes = reallocate_gpu_memory_in_mb * MIB
        self.chunk_bytes = initial_gpu_memory_in_mb * MIB or self._share()

    def malloc(self, nbytes: int, stream: int | None = 0) -> int:  # noqa: ARG002
        """Take a block for `nbytes` bytes and return its handle; one stream, so it is not asked which."""
        size = _rounded(nbytes)
        if size == 0:
            return self._hand_out(None, 0)
        if nbytes > self.chunk_bytes:
            return self._hand_out(Direct(self._take(size), size), nbytes)
        block = self._pool.find(size)
        if block is None:
            chunk_bytes = self.chunk_bytes if not self._pool.regions else self._again_bytes or self._share()
            chunk_bytes = max(chunk_bytes, size)
            self._pool.add(self._take(chunk_bytes), chunk_bytes)
            block = self._pool.find(size)
            assert block is not None
        if block.size > size:
            block = self._pool.cut(block, size)
        return self._hand_out(block, nbytes)

    def _share(self) -> int:
        """Return the chunk size in whole 256 B: a fraction of the free memory, or the size set."""
        return int(self._fraction * max(0, self._available - self.reserved)) // ROUND_BYTES * ROUND_BYTES


def _rounded(nbytes: int) -> int:
    if nbytes < 0:
        raise ValueError(f"malloc of {nbytes} bytes")
    return -(-nbytes // ROUND_BYTES) * ROUND_BYTES


def _unprefixed(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without PaddlePaddle's prefix (`FLAGS_gpu_memory_limit_mb`)."""
    return {name.removeprefix("FLAGS_"): value for name, value in settings.items()}


def create_auto_growth(**settings: Any) -> AutoGrowthAllocator:
    """Return an auto_growth allocator by PaddlePaddle's flags, with or without "FLAGS_"."""
    plain = _unprefixed(settings)
    check_settings("paddle_auto_growth", plain, AutoGrowthAllocator)
    return AutoGrowthAllocator(**plain)


def create_naive_best_fit(**settings: Any) -> NaiveBestFitAllocator:
    """Return a naive_best_fit allocator by PaddlePaddle's flags, with or without "FLAGS_"."""
    plain = _unprefixed(settings)
    check_settings("paddle_naive_best_fit", plain, NaiveBestFitAllocator)
    return NaiveBestFitAllocator(**plain)
