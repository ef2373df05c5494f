"""The arena as a session uses it: some requests bypass its regions, and chunks belong to the CUDA stream that
used them.

1. Requests during a run are made for the run's stream: the chunk handed out is tagged with it, and stays
   tagged when freed. Requests outside a stream (initializers) may only take untagged chunks; the stream may
   take both.
2. Free neighbours join only if both are tagged or both are not. When a run is over its tags go, and all free
   neighbours join. So memory released during the first run joins the rest of its region only afterwards.
3. With `enable_memory_arena_shrinkage` idle regions go back to the device after each run.

Source: `core/framework/bfc_arena.cc` (`FindChunkPtr`, `Coalesce`, `ResetChunksUsingStream`, `Shrink`).
"""

from __future__ import annotations

from bisect import bisect_left

from analyzer.allocators.chunks import Chunk, ChunkPool
from analyzer.allocators.onnxruntime_bfc import OnnxRuntimeArena
from analyzer.runtimes.onnxruntime.options import SessionOptions

# The event after which the session is made and runs begin.
SESSION = "session"


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
        taken = super().cut(chunk, size, high=high)
        if chunk in self.tagged and taken.next is not None:
            self.tagged.add(taken.next)
        return taken

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


class SessionArena(OnnxRuntimeArena):
    """The arena of one session. Raises OutOfMemoryError as OnnxRuntimeArena does.

    device_bytes: what the device has to give; None for no end.
    """

    def __init__(self, options: SessionOptions, device_bytes: int | None = None) -> None:
        super().__init__(
            arena_extend_strategy=options.arena_extend_strategy,
            gpu_mem_limit=options.gpu_mem_limit,
            device_bytes=device_bytes,
        )
        self._pool: StreamPool = StreamPool()
        self._shrinks = options.enable_memory_arena_shrinkage

    def malloc(self, nbytes: int, stream: int | None = 0) -> int:
        """Take a chunk: any one for the run's stream, which tags it; untagged for None."""
        self._pool.untagged_only = stream is None
        handle = super().malloc(nbytes)
        chunk = self._live[handle]
        if isinstance(chunk, Chunk) and stream is not None:
            self._pool.tagged.add(chunk)
        return handle

    def over(self, event: str, value: float | None = None) -> None:  # noqa: ARG002
        """End the session's creation or a run: tags go, free neighbours join, the arena may shrink."""
        self._pool.reset()
        if self._shrinks and event != SESSION:
            self.shrink()
