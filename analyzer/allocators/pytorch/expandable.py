"""PyTorch's caching allocator with `expandable_segments:True`: one growing address range a pool, mapped in
pages.

1. A pool's range reserves addresses for 9/8 of the device (where no place in it is long enough, the pool
   takes another range) and maps pages of 2 MiB (small pool) or
   `large_segment_size_mb` (large pool) as needed; `reserved` counts mapped pages.
2. **Search**: best fit, but a free block counts with the unmapped space behind it, so the block at the
   growing end is taken only if no other block of the pool fits.
3. **Growing**: from the lowest unmapped space, with a free block in front of it if there is one, where free
   and unmapped space together have room; only the missing part is mapped, in whole pages.
4. **Splitting**: whenever the rest has at least 512 B, in both pools.
5. `empty_cache`, and the last attempt before running out of memory, unmap every page that lies wholly inside
   a free block; the parts before and behind stay as free blocks. Garbage collection and `max_split_size_mb`'s
   early release pass expandable ranges over.

Source: `c10/cuda/CUDACachingAllocator.cpp` (note [Expandable Segments]). Everything else as in `pytorch.py`.
Not modelled: switching the setting on or off in a running process.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable

from analyzer.allocators.driver import AddressSpace
from analyzer.allocators.pytorch.caching import MIN_BLOCK_BYTES, SMALL_SEGMENT_BYTES, PyTorchAllocator
from analyzer.allocators.pytorch.segments import Block, Pool, Segment, SegmentState
from analyzer.allocators.pytorch.settings import PyTorchSettings

# Where ranges begin, and their size while the device's is unknown: any, far apart from each other and from
# segments.
RANGE_ORIGIN = {True: 1 << 47, False: 1 << 51}
RANGE_BYTES = 1 << 44


class ExpandableAllocator(PyTorchAllocator):
    """The simulator; the same interface as PyTorchAllocator."""

    in_plain_numbers = False

    def __init__(self, settings: PyTorchSettings | None = None, space: AddressSpace | None = None) -> None:
        super().__init__(settings, space)
        # Unmapped blocks of each pool by address.
        self._unmapped: dict[Pool, list[tuple[int, Block]]] = {}

    def empty_cache(self) -> None:
        """Unmap every page that lies wholly inside a free block."""
        self.wait()
        for small in (False, True):
            for block in self._cached(small):
                self._unmap(block)

    def adopt(self, state: SegmentState) -> dict[int, int]:
        """Ask for the used blocks of a segment anew: where its range begins, a snapshot does not show."""
        used = [block for block in state.blocks if block.allocated]
        return {block.address: self.malloc(block.requested, state.stream) for block in used}

    def segments(self) -> tuple[tuple[int, int], ...]:
        """(address, bytes) of every run of mapped pages, by address."""
        return tuple((state.address, state.size) for state in self.snapshot())

    def layout(self) -> Hashable:
        unmapped = tuple(
            (pool, tuple((address, block.size) for address, block in blocks))
            for pool, blocks in sorted(self._unmapped.items())
        )
        return super().layout(), unmapped

    def _page(self, small: bool) -> int:
        return SMALL_SEGMENT_BYTES if small else self.settings.large_segment_bytes

    def _find(self, size: int, pool: Pool) -> Block | None:
        """Best fit, a free block counting with the unmapped space behind it; the block leaves the pool."""
        free = self._pools.get(pool, [])
        at = bisect_left(free, (size,))
        while at + 1 < len(free) and _reach(free[at + 1][2]) < _reach(free[at][2]):
            at += 1
        return free.pop(at)[2] if at < len(free) and self._serves(free[at][0], size) else None

    def _splits(self, rest: int, size: int, small: bool) -> bool:  # noqa: ARG002
        """Whenever the rest has at least 512 B, in both pools."""
        return rest >= MIN_BLOCK_BYTES

    def _grow(self, size: int, pool: Pool) -> Block | None:
        """Return the lowest unmapped space, with a free block in front of it. The fraction is checked against
        a whole segment's size, as PyTorch does; the driver's room against the pages."""
        if (
            self._allowed is not None
            and self.reserved + self._segment_bytes(size, pool.small) > self._allowed
        ):
            return None
        block = self._place(size, pool)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            behind = block.next
            assert behind is not None and not behind.mapped
            if not self._map(behind, min(behind.size, size - block.size)):
                return None
            # Mapping joined the free block in front of it.
            block = behind
        self._remove(block)
        return block

    def _place(self, size: int, pool: Pool) -> Block:
        """Return the first adjacent free and unmapped blocks with room, else a new range."""
        for _, block in self._unmapped.get(pool, []):
            front = block.previous
            start = front if front is not None and not front.used else block
            if _room_from(start, size) >= size:
                return start
        page = self._page(pool.small)
        total = self.settings.device_total_bytes
        wanted = RANGE_BYTES if total is None else total + total // 8
        # Only a simulation without a limit can be asked for more than the range has addresses for.
        address_bytes = -(-max(wanted, size) // page) * page
        address = RANGE_ORIGIN[pool.small] + pool.stream * RANGE_BYTES
        # A range without room for the request stays, and the pool begins another one behind it.
        while address in self._segments:
            address += address_bytes
        segment = Segment(address, address_bytes, pool, expandable=True)
        self._number(segment.first)
        self._segments[segment.address] = segment
        self._insert(segment.first)
        return segment.first

    def _map(self, block: Block, size: int) -> bool:
        """Map the first `size` bytes of an unmapped block; False if the driver has no memory."""
        page = self._page(block.region.pool.small)
        mapped_bytes = -(-size // page) * page
        if self._limit is not None and self.reserved + mapped_bytes > self._limit:
            return False
        self._remove(block)
        block.mapped = True
        if mapped_bytes < block.size:
            rest = block.cut(mapped_bytes)
            self._number(rest)
            rest.mapped = False
            self._insert(rest)
        address = block.address
        self._join(block)
        self._insert(block)
        self._reserve("segment_map", address, mapped_bytes)
        return True

    def _unmap(self, block: Block) -> None:
        """Unmap the whole pages inside a free block; drop its range when nothing of it is mapped any more."""
        segment = block.region
        page = self._page(segment.pool.small)
        begin = segment.address + -(-(block.address - segment.address) // page) * page
        end = segment.address + (block.address + block.size - segment.address) // page * page
        if begin >= end:
            return
        self._remove(block)
        if begin > block.address:
            front, block = block, block.cut(begin - block.address)
            block.made = front.made
            self._number(front)
            self._insert(front)
        if block.address + block.size > end:
            behind = block.cut(end - begin)
            self._number(behind)
            self._insert(behind)
        block.mapped = False
        self._join(block)
        self._reserve("segment_unmap", begin, end - begin)
        if block.fills_segment:
            del self._segments[segment.address]
        else:
            self._insert(block)

    def _insert(self, block: Block) -> None:
        if block.mapped:
            super()._insert(block)
        else:
            insort(self._unmapped.setdefault(block.region.pool, []), (block.address, block))

    def _remove(self, block: Block) -> None:
        if block.mapped:
            super()._remove(block)
        else:
            unmapped = self._unmapped[block.region.pool]
            del unmapped[bisect_left(unmapped, (block.address,))]

    def _release_oversize(self, size: int, pool: Pool) -> bool:  # noqa: ARG002
        return False

    def _collect_garbage(self) -> None:
        pass


def _reach(block: Block) -> int:
    """Return a free block's size with the unmapped space behind it."""
    return block.size + (block.next.size if block.next and not block.next.mapped else 0)


def _room_from(block: Block, wanted: int) -> int:
    """Return the bytes of free and unmapped blocks in a row from `block`, counted until they suffice."""
    room = 0
    for part in block.onwards():
        if part.used or room >= wanted:
            break
        room += part.size
    return room
