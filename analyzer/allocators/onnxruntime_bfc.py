"""ONNX Runtime's device arena: BFC with two ways to grow, shrinking, and chunks that belong to a stream.

1. `kNextPowerOfTwo` (default): regions double from `initial_chunk_size_bytes`. After one that was taken as it
   is, the next has at most `max_power_of_two_extend_bytes`.
2. `kSameAsRequested`: the rounded request.
3. `gpu_mem_limit` bounds regions and reserved memory together, `device_bytes` is what the device has to give.
4. `shrink` (run option `memory.enable_memory_arena_shrinkage`) gives idle regions back, but never the first
   with `kNextPowerOfTwo`, and the next region starts from `initial_growth_chunk_size_bytes` again.

As a session uses it (`StreamArena`):

5. Requests during a run are made for the run's stream: the chunk handed out is tagged with it, and stays
   tagged when freed. Requests outside a stream (initializers) may only take untagged chunks; the stream may
   take both.
6. Free neighbours join only if both are tagged or both are not. When a run is over its tags go, and all free
   neighbours join. So memory released during the first run joins the rest of its region only afterwards.
7. With `enable_memory_arena_shrinkage` idle regions go back to the device after each run.

Names and defaults of the settings: `OrtArenaCfg` and the CUDA provider's options of 1.30. Everything else as
in `bfc.py`.

Source: `onnxruntime/core/framework/bfc_arena.cc` (`FindChunkPtr`, `Coalesce`, `ResetChunksUsingStream`,
`Shrink`); the arenas' log lines of 24 runs on an H200 are replayed in
`tests/allocators/test_onnxruntime_bfc.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from analyzer.allocators.base import check_settings
from analyzer.allocators.bfc import ROUND_BYTES, BfcArena
from analyzer.allocators.chunks import Chunk, ChunkPool
from analyzer.allocators.driver import ONNXRUNTIME_LEFTOVER
from analyzer.errors import OptionError

MIB = 2**20
STRATEGIES = ("kNextPowerOfTwo", "kSameAsRequested")
INITIAL_CHUNK_BYTES = MIB
MAX_DEAD_BYTES = 128 * MIB
LARGEST_EXTENSION_BYTES = 1024 * MIB
SESSION = "session"  # the event after which the session is made and runs begin


class OnnxRuntimeArena(BfcArena):
    """The simulator; figures and methods as in BfcArena, sizes in bytes. Raises OptionError for a bad
    setting."""

    leftover = ONNXRUNTIME_LEFTOVER

    def __init__(
        self,
        *,
        arena_extend_strategy: str = "kNextPowerOfTwo",
        gpu_mem_limit: int | None = None,
        initial_chunk_size_bytes: int = INITIAL_CHUNK_BYTES,
        initial_growth_chunk_size_bytes: int = 2 * MIB,
        max_dead_bytes_per_chunk: int = MAX_DEAD_BYTES,
        max_power_of_two_extend_bytes: int = LARGEST_EXTENSION_BYTES,
        device_bytes: int | None = None,
    ) -> None:
        super().__init__(gpu_mem_limit, max_dead_bytes_per_chunk, device_bytes)
        if arena_extend_strategy not in STRATEGIES:
            raise OptionError(
                f"unknown arena_extend_strategy {arena_extend_strategy!r}",
                f"strategies: {', '.join(STRATEGIES)}",
            )
        for name, value in (
            ("gpu_mem_limit", gpu_mem_limit),
            ("initial_chunk_size_bytes", initial_chunk_size_bytes),
            ("initial_growth_chunk_size_bytes", initial_growth_chunk_size_bytes),
            ("max_dead_bytes_per_chunk", max_dead_bytes_per_chunk),
            ("max_power_of_two_extend_bytes", max_power_of_two_extend_bytes),
        ):
            if value is not None and value <= 0:
                raise OptionError(f"{name} is {value}", "it must be above 0")
        self.strategy = arena_extend_strategy
        first = (
            initial_chunk_size_bytes
            if gpu_mem_limit is None
            else min(gpu_mem_limit, initial_chunk_size_bytes)
        )
        self._growth = -(-first // ROUND_BYTES) * ROUND_BYTES
        self._regrowth = initial_growth_chunk_size_bytes
        self._largest = max_power_of_two_extend_bytes

    def shrink(self) -> int:
        """Idle regions go back, never the first with `kNextPowerOfTwo`. Returns the bytes given back."""
        before = self.reserved
        first = next(iter(self._pool.regions.values()), None)
        for region in self._pool.idle():
            if region is first and self.strategy == "kNextPowerOfTwo":
                continue
            self._pool.drop(region)
            self._space.give(region.address, region.size)
            self.reserved -= region.size
        self._growth = self._regrowth
        return before - self.reserved

    def _region_bytes_for(self, size: int) -> int:
        return size if self.strategy == "kSameAsRequested" else super()._region_bytes_for(size)


class StreamPool(ChunkPool):
    """Chunks with stream tags: freed ones keep theirs and join only neighbours tagged alike.

    untagged_only: whether the next search is made without a stream.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tagged: set[Chunk] = set()
        self.untagged_only = False

    def find(self, size: int) -> Chunk | None:
        """Return the smallest free chunk that fits and may be used."""
        if not self.untagged_only or not self.tagged:
            return super().find(size)
        for at in range(bisect_left(self._free, (size,)), len(self._free)):
            if self._free[at][2] not in self.tagged:
                return self._free.pop(at)[2]
        return None

    def cut(self, chunk: Chunk, size: int, *, high: bool = False) -> Chunk:
        """Split a chunk; the rest keeps its tag."""
        part = super().cut(chunk, size, high=high)
        if chunk in self.tagged and part.next is not None:
            self.tagged.add(part.next)
        return part

    def release(self, chunk: Chunk) -> None:
        """Free neighbours join only within their kind."""
        tag = chunk in self.tagged
        apart = [
            other
            for other in (chunk.previous, chunk.next)
            if other is not None and not other.used and (other in self.tagged) != tag
        ]
        gone = [other for other in (chunk.previous, chunk.next) if other is not None and not other.used]
        for other in apart:
            other.used = True
        super().release(chunk)
        for other in apart:
            other.used = False
        self.tagged.difference_update(other for other in gone if other not in apart)

    def reset(self) -> None:
        """End a run: clear all tags and merge free neighbours."""
        if not self.tagged:
            return
        self.tagged.clear()
        for region in self.regions.values():
            chunk: Chunk | None = region.first
            while chunk is not None:
                if not chunk.used and chunk.next is not None and not chunk.next.used:
                    self._remove(chunk)
                    self.release(chunk)
                    continue
                chunk = chunk.next


class StreamArena(OnnxRuntimeArena):
    """The arena of one session. Raises OutOfMemoryError as OnnxRuntimeArena does.

    enable_memory_arena_shrinkage: it shrinks after each run. settings: as of `OnnxRuntimeArena`.
    kept: bytes held after the session's creation and after each run, and the driver's pages under them.
    """

    def __init__(self, *, enable_memory_arena_shrinkage: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self._pool: StreamPool = StreamPool()
        self._shrinks = enable_memory_arena_shrinkage
        self.kept: list[tuple[int, int]] = []

    def malloc(self, nbytes: int, stream: int | None = 0) -> int:
        """Take a chunk: any one for the run's stream, which tags it; untagged for None."""
        self._pool.untagged_only = stream is None
        handle = super().malloc(nbytes)
        chunk = self._live[handle]
        if isinstance(chunk, Chunk) and stream is not None:
            self._pool.tagged.add(chunk)
        return handle

    def end_event(self, event: str, value: float | None = None) -> None:  # noqa: ARG002
        """End the session's creation or a run: tags go, free neighbours join, the arena may shrink."""
        self._pool.reset()
        if self._shrinks and event != SESSION:
            self.shrink()
        self.kept.append((self.reserved, self.page_bytes))


def create(**settings: Any) -> OnnxRuntimeArena:
    """Return an arena by ONNX Runtime's names for its settings."""
    check_settings("onnxruntime_bfc", settings, OnnxRuntimeArena)
    return OnnxRuntimeArena(**settings)
