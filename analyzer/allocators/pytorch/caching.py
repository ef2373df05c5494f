"""PyTorch's CUDA caching allocator: which block serves each request, and when memory is reserved.

1. **Rounding**: up to a multiple of 512 B (or as `roundup_power2_divisions` says); zero bytes take no block.
2. **Pools**: a rounded size of at most 1 MiB is served by the small pool, anything else by the large pool,
   each stream by its own: memory freed on one stream never serves another, unless its segment is given back
   first. A new segment has 2 MiB for the small pool; for the large pool `large_segment_size_mb` below 10 MiB,
   else the size rounded up to 2 MiB.
3. **Search**: the smallest free block that fits; among equals the lowest address, in torch 2.12 the one that
   was made first, and from torch 2.13 on the lowest address of the segment that is held longest (`ties`).
   Requests below `max_split_size_mb` never take a block at or above it; requests at or above it only one less
   than `max_non_split_rounding_mb` larger.
4. **Splitting**: the rest of a block becomes a free block if it has at least 512 B (small pool) or more than
   1 MiB (large pool, only below `max_split_size_mb`). A rest that is not split off counts as allocated, as in
   `torch.cuda.memory_allocated`; `requested` counts the requests alone, until their blocks serve again.
5. **Freeing** joins a block with its free neighbours in the same segment. A block another stream uses
   (`record_stream`) counts as freed at once, but serves nobody until the device has done with it: that is
   known after the host waited for it, and PyTorch waits itself before it gives cached blocks back.
6. **No block**: garbage collection, if `garbage_collection_threshold` and a fraction are set; then a new
   segment; failing that, cached blocks of at least `max_split_size_mb` are returned to the driver, if that is
   set, and the segment is tried again; failing that, all wholly free segments are returned and it is tried a
   last time; then `OutOfMemoryError`.

Sources: `c10/cuda/CUDACachingAllocator.cpp`, `c10/core/AllocatorConfig.h` (PyTorch 2.11 to 2.13), pull
requests 178362 and 183591 of PyTorch for the order of 2.12 and since 2.13; a million random requests to the
allocator of each release from 2.6 to 2.15, after which every segment and block is the same (`python -m
benchmarks releases differential`); segment addresses by `driver.py`. `expandable_segments:True` is
`expandable.py`. Not modelled: that the device may be done with a block before anyone waits for it (what is
held is then too high, never too low), CUDA graph pools, user-made memory pools. `backend:cudaMallocAsync` is
`asynchronous.py`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from dataclasses import replace

from analyzer.allocators.base import Allocator, OutOfMemoryError
from analyzer.allocators.driver import MIB, AddressSpace
from analyzer.allocators.pytorch.segments import (
    Block,
    BlockState,
    Pool,
    Segment,
    SegmentAction,
    SegmentEvent,
    SegmentState,
)
from analyzer.allocators.pytorch.settings import PyTorchSettings

MIN_BLOCK_BYTES = 512
SMALL_BYTES = MIB
SMALL_SEGMENT_BYTES = 2 * MIB
MIN_LARGE_BYTES = 10 * MIB
ROUND_LARGE_BYTES = 2 * MIB


# The calls of a program that the allocator heeds (`end_event`).
ALLOCATOR_CALLS = ("empty_cache", "set_per_process_memory_fraction")


# A pool's free blocks as the search wants them: smallest first, then by rank. Ranks differ, so a comparison
# never reaches the block.
FreeList = list[tuple[int, int, Block]]
_ADDRESS_BITS = 48  # which an offset in a segment stays below


class PyTorchAllocator(Allocator):
    """The simulator, in bytes; `malloc` raises OutOfMemoryError, `free` ValueError for a dead handle.

    segment_events: every exchange with the driver, in order. space: where segments go, `driver.py`'s rules by
    default.
    small_bytes: the largest rounded size that the small pool serves.
    """

    small_bytes = SMALL_BYTES
    in_plain_numbers = True  # whether `onward.py` may serve plain requests in its place

    def __init__(self, settings: PyTorchSettings | None = None, space: AddressSpace | None = None) -> None:
        self.settings = settings or PyTorchSettings()
        self.allocated = self.peak_allocated = 0
        self.requested = self.peak_requested = 0
        self.reserved = self.peak_reserved = 0
        self.segment_events: list[SegmentEvent] = []
        self.retries = 0  # how often all cached blocks were given back for a request (`num_alloc_retries`)
        self._pools: dict[Pool, FreeList] = {}
        self._segments: dict[int, Segment] = {}
        self._space = space or AddressSpace()
        self._live: dict[int, Block | None] = {}
        # Freed blocks other streams use, each with what it waits for: an event on each of these, which is
        # over once the host has waited for any stream of the set.
        self._waiting: list[tuple[Block, list[set[int]]]] = []
        self._malloc_count = 0
        self._search_count = {True: 0, False: 0}
        self._block_count = 0
        self._max_split = self.settings.max_split_bytes
        self._limit = self.settings.limit_bytes
        self._allowed = self.settings.allowed_bytes
        self._divisions = self.settings.roundup_power2_divisions

    def malloc(self, nbytes: int, stream: int | None = 0) -> int:
        """Take a block of the stream's pools and return its handle; None is the default stream."""
        handle = self._malloc_count
        if nbytes <= 0:
            if nbytes:
                raise ValueError(f"malloc of {nbytes} bytes")
            self._live[handle] = None
            self._malloc_count += 1
            return handle
        size = self.rounded(nbytes)
        pool = Pool(size <= self.small_bytes, stream or 0)
        block = self._find(size, pool) or self._obtain(size, pool)
        if self._splits(block.size - size, size, pool.small):
            rest = block.cut(size)
            rest.made = block.made
            self._number(block)
            self._insert(rest)
        block.used = True
        block.users = ()
        block.requested = nbytes
        self.allocated += self._counted(block)
        self.requested += nbytes
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.peak_requested = max(self.peak_requested, self.requested)
        self._live[handle] = block
        self._malloc_count += 1
        return handle

    def free(self, handle: int) -> None:
        """Give the block of `handle` back; it stays cached in its segment."""
        try:
            block = self._live.pop(handle)
        except KeyError:
            raise ValueError(f"handle {handle} is not alive") from None
        if block is None:
            return
        self.allocated -= self._counted(block)
        if block.users:
            self._waiting.append((block, [{stream} for stream in block.users]))
        else:
            self._cache(block)

    def _counted(self, block: Block) -> int:
        """Return the bytes that a block in use adds to `allocated`."""
        return block.size

    def _cache(self, block: Block) -> None:
        """Put a freed block into its pool."""
        self.requested -= block.requested
        block.requested = 0
        block.used = False
        self._join(block)
        self._insert(block)

    def use(self, handle: int, stream: int) -> None:
        """Record that another stream uses the block of `handle`, as `Tensor.record_stream` does."""
        block = self._live[handle]
        if block is not None and stream not in (block.region.pool.stream, *block.users):
            block.users = (*block.users, stream)

    def wait(self, stream: int | None = None, by: int | None = None) -> None:
        """Release blocks freed while a stream used them: the host waited for it (None: for all).

        by: this stream waits for it instead, so that whoever waits for that one later has waited for both.
        """
        waiting, self._waiting = self._waiting, []
        for block, events in waiting:
            reached = [streams for streams in events if stream is None or stream in streams]
            if by is not None:
                for streams in reached:
                    streams.add(by)
            pending = events if by is not None else [streams for streams in events if streams not in reached]
            if pending:
                self._waiting.append((block, pending))
            else:
                self._cache(block)

    def empty_cache(self) -> None:
        """Return every wholly free segment to the driver, as `torch.cuda.empty_cache` does."""
        self.wait()
        for small in (False, True):
            for block in self._cached(small):
                if block.fills_segment:
                    self._release(block)

    def end_event(self, event: str, value: float | None = None) -> None:
        """Apply an allocator call the program made while it ran, one of `ALLOCATOR_CALLS`."""
        if event == "empty_cache":
            self.empty_cache()
        elif event == "set_per_process_memory_fraction":
            settings = replace(self.settings, per_process_memory_fraction=value)
            self.settings, self._allowed = settings, settings.allowed_bytes

    def leave(self, limit_bytes: int) -> None:
        """Set the bytes the driver has for this process: a library took some of the others."""
        self._limit = limit_bytes

    def reset_peaks(self) -> None:
        """Start new peaks from the current state, as `torch.cuda.reset_peak_memory_stats` does."""
        self.peak_allocated, self.peak_requested = self.allocated, self.requested
        self.peak_reserved = self.reserved

    @property
    def device_calls(self) -> int:
        """Number of driver calls that allocate or free; pages mapped, for expandable segments."""
        return len(self.segment_events)

    def size_of(self, handle: int) -> int:
        """Return the bytes of the block behind a live handle (0 for a request of 0 bytes)."""
        block = self._live[handle]
        return block.size if block else 0

    def address_of(self, handle: int) -> int:
        """Address of the block behind a live handle (0 for a request of 0 bytes)."""
        block = self._live[handle]
        return block.address if block else 0

    def adopt(self, state: SegmentState) -> dict[int, int]:
        """Hold a segment as it was at an earlier moment; return the handles of its used blocks by address.

        Segments count as held, and blocks as made, in the order of the calls and of addresses.
        """
        pool = Pool(state.small, state.stream)
        segment = Segment(state.address, state.size, pool, number=len(self.segment_events))
        self._segments[state.address] = segment
        self._reserve("segment_alloc", state.address, state.size)
        handles: dict[int, int] = {}
        block = segment.first
        for part in state.blocks:
            rest = block.cut(part.size) if part.size < block.size else None
            self._number(block)
            if part.allocated:
                block.used, block.users, block.requested = True, (), part.requested
                self.allocated += self._counted(block)
                self.requested += part.requested
                handles[block.address] = self._malloc_count
                self._live[self._malloc_count] = block
                self._malloc_count += 1
            else:
                self._insert(block)
            block = rest or block
        self.reset_peaks()
        return handles

    def block_of(self, handle: int) -> Block:
        """Return the block behind a live handle of a request for more than 0 bytes."""
        block = self._live[handle]
        assert block is not None
        return block

    def segments(self) -> tuple[tuple[int, int], ...]:
        """(address, bytes) of every segment, by address."""
        return tuple(sorted((segment.address, segment.size) for segment in self._segments.values()))

    def layout(self) -> Hashable:
        """All state but the addresses of used blocks that decides where later requests go."""
        pools = tuple(
            (pool, tuple((size, block.address) for size, _, block in free))
            for pool, free in sorted(self._pools.items())
        )
        ages = None
        if self.settings.garbage_collection_threshold:
            now = self._search_count
            ages = tuple(
                now[small] - block.freed_at for small in (False, True) for block in self._cached(small)
            )
        return pools, tuple(sorted(self._segments)), ages

    def snapshot(self) -> tuple[SegmentState, ...]:
        """State of segments and blocks by address; of expandable ranges, runs of mapped pages."""
        states = []
        waiting = {block.address for block, _ in self._waiting}
        for segment in self._segments.values():
            run: list[BlockState] = []
            for block in (*segment.first.onwards(), None):
                if block is not None and block.mapped:
                    pending = block.address in waiting
                    run.append(
                        BlockState(
                            block.address, block.size, block.requested, block.used and not pending, pending
                        )
                    )
                elif run:
                    total = sum(part.size for part in run)
                    states.append(
                        SegmentState(
                            run[0].address,
                            total,
                            segment.pool.small,
                            segment.expandable,
                            tuple(run),
                            segment.pool.stream,
                        )
                    )
                    run = []
        return tuple(sorted(states, key=lambda state: state.address))

    def rounded(self, nbytes: int) -> int:
        """Return the block size for a request: a multiple of 512 B, or as `roundup_power2_divisions` says."""
        if self._divisions is None or nbytes < MIN_BLOCK_BYTES:
            return -(-nbytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES
        # One entry a power of two from 1 MiB; smaller and larger sizes use the first and the last.
        at = min(max(0, nbytes.bit_length() - 21), len(self._divisions) - 1)
        divisions = self._divisions[at]
        if divisions <= 1 or nbytes <= MIN_BLOCK_BYTES * divisions:
            return -(-nbytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES
        part = (1 << (nbytes.bit_length() - 1)) // divisions
        return -(-nbytes // part) * part

    def _segment_bytes(self, size: int, small: bool) -> int:
        if small:
            return SMALL_SEGMENT_BYTES
        if size < MIN_LARGE_BYTES:
            return self.settings.large_segment_bytes
        return -(-size // ROUND_LARGE_BYTES) * ROUND_LARGE_BYTES

    def _cached(self, small: bool) -> list[Block]:
        """Return the free blocks of every stream's small or large pool, by stream, size and rank."""
        pools = sorted(pool for pool in self._pools if pool.small == small)
        return [block for pool in pools for _, _, block in self._pools[pool]]

    def _find(self, size: int, pool: Pool) -> Block | None:
        """Return the smallest free block of the pool that may serve the request; it leaves the pool."""
        self._search_count[pool.small] += 1
        free = self._pools.get(pool, [])
        at = bisect_left(free, (size,))
        return free.pop(at)[2] if at < len(free) and self._serves(free[at][0], size) else None

    def _serves(self, block_bytes: int, size: int) -> bool:
        """Return whether a block may serve `size` bytes: those of `max_split_size` are kept apart."""
        if self._max_split is None:
            return True
        if size < self._max_split:
            return block_bytes < self._max_split
        return block_bytes < size + self.settings.max_non_split_rounding_bytes

    def _splits(self, rest: int, size: int, small: bool) -> bool:
        """Return whether the rest of a block is split off it."""
        if small:
            return rest >= MIN_BLOCK_BYTES
        return rest > SMALL_BYTES and (self._max_split is None or size < self._max_split)

    def _join(self, block: Block) -> None:
        """`block` takes up its free neighbours of the same kind (mapped or not)."""
        for other in (block.previous, block.next):
            if other is not None and not other.used and other.mapped == block.mapped:
                self._remove(other)
                block.absorb(other)

    def _insert(self, block: Block) -> None:
        pool = block.region.pool
        block.freed_at = self._search_count[pool.small]
        insort(self._pools.setdefault(pool, []), (block.size, self._rank(block), block))

    def _number(self, block: Block) -> None:
        """Number a new block in the order blocks are made."""
        self._block_count += 1
        block.made = self._block_count

    def _rank(self, block: Block) -> int:
        """Return which of two blocks of one size serves first: the one with the smaller number."""
        if self.settings.ties == "address":
            return block.address
        if self.settings.ties == "block":
            return block.made
        return (block.region.number << _ADDRESS_BITS) + block.address - block.region.address

    def _remove(self, block: Block) -> None:
        free = self._pools[block.region.pool]
        del free[bisect_left(free, (block.size, self._rank(block)))]

    def _obtain(self, size: int, pool: Pool) -> Block:
        """Return a block for a request that no free one serves: see "No block" above."""
        if self.settings.garbage_collection_threshold and self._allowed is not None:
            self._collect_garbage()
        block = self._grow(size, pool)
        if block is None and self._release_oversize(size, pool):
            block = self._grow(size, pool)
        if block is None:
            self.retries += 1
            self.empty_cache()
            block = self._grow(size, pool)
        if block is None:
            bounds = [bound for bound in (self._limit, self._allowed) if bound is not None]
            free = sorted((size for pool in self._pools.values() for size, _, _ in pool), reverse=True)
            raise OutOfMemoryError(size, self.allocated, self.reserved, min(bounds), tuple(free))
        return block

    def _grow(self, size: int, pool: Pool) -> Block | None:
        """Return a new segment's block; None if the fraction or the driver does not allow it."""
        nbytes = self._segment_bytes(size, pool.small)
        if not self._has_room(nbytes):
            return None
        segment = Segment(self._space.take(nbytes), nbytes, pool, number=len(self.segment_events))
        self._number(segment.first)
        self._segments[segment.address] = segment
        self._reserve("segment_alloc", segment.address, nbytes)
        return segment.first

    def _has_room(self, size: int) -> bool:
        after = self.reserved + size
        return (self._limit is None or after <= self._limit) and (
            self._allowed is None or after <= self._allowed
        )

    def _reserve(self, action: SegmentAction, address: int, size: int) -> None:
        self.reserved += size if action in ("segment_alloc", "segment_map") else -size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self.segment_events.append(SegmentEvent(action, address, size))

    def _release(self, block: Block) -> None:
        """Return a wholly free block's segment to the driver."""
        self._remove(block)
        del self._segments[block.region.address]
        self._space.give(block.address, block.size)
        self._reserve("segment_free", block.address, block.size)

    def _release_oversize(self, size: int, pool: Pool) -> bool:
        """Return cached blocks of at least `max_split_size` to the driver, until one is as large as the
        request, or, largest first, several are together. Whether that is enough."""
        if self._max_split is None:
            return False
        free = self._pools.get(pool, [])
        wanted = max(size, self._max_split)
        at = bisect_left(free, (wanted,))
        if at < len(free):
            self._release(free[at][2])
            return True
        released = 0
        while free and released < wanted and free[-1][0] >= self._max_split:
            released += free[-1][0]
            self._release(free[-1][2])
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Free cached large segments of average age and more until the threshold is met."""
        assert self._allowed is not None
        excess = self.reserved - int(self.settings.garbage_collection_threshold * self._allowed)
        now = self._search_count[False]
        blocks = [block for block in self._cached(False) if block.fills_segment]
        ages = sum(now - block.freed_at for block in blocks)
        while excess > 0 and blocks:
            threshold = ages / len(blocks)
            old = [block for block in blocks if now - block.freed_at >= threshold]
            for block in old:
                ages -= now - block.freed_at
                excess -= block.size
                self._release(block)
            blocks = [block for block in blocks if block not in old]
