"""Regions cut into chunks, with a best-fit search: what the BFC arena and PaddlePaddle's allocators have in
common.

1. A region is one piece of device memory; its chunks tile it and know their neighbours. PyTorch's segments
   and blocks are regions and chunks too, with a search of their own.
2. The search takes the smallest free chunk that fits, the lowest address among equals, and removes it from
   the pool.
3. A chunk may be cut in two; the part handed out is its low or its high end.
4. A freed chunk joins its free neighbours of the same region.

Bins of sizes, as BFC keeps them, only speed the search up: a bin holds larger chunks than all bins before it,
and each is ordered by size and address, so the first that fits is the smallest of all.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from analyzer.allocators.base import Allocator
from analyzer.allocators.driver import AddressSpace, Leftover


class Chunk:
    """A part of a region. `requested` is what its user asked for, while `used`. `mapped`: whether memory
    lies behind its addresses, as it does everywhere but in `expandable.py`."""

    __slots__ = ("address", "mapped", "next", "previous", "region", "requested", "size", "used")

    def __init__(self, address: int, size: int, region: Region) -> None:
        self.address, self.size, self.region = address, size, region
        self.requested = 0
        self.used = False
        self.mapped = True
        self.previous: Self | None = None
        self.next: Self | None = None

    def cut(self, size: int) -> Self:
        """Keep the first `size` bytes; the others are a new chunk, which is returned."""
        rest = type(self)(self.address + size, self.size - size, self.region)
        self.size = size
        rest.previous, rest.next = self, self.next
        if self.next:
            self.next.previous = rest
        self.next = rest
        return rest

    def absorb(self, other: Self) -> None:
        """Merge an adjacent chunk into this one."""
        self.size += other.size
        if other is self.next:
            self.next = other.next
            if self.next:
                self.next.previous = self
            return
        self.address, self.previous = other.address, other.previous
        if self.previous:
            self.previous.next = self
        else:
            self.region.first = self

    def onwards(self) -> Iterator[Self]:
        """Yield this chunk and every later chunk of its region."""
        chunk: Self | None = self
        while chunk:
            yield chunk
            chunk = chunk.next


class Region:
    """One piece of device memory. `first` is its chunk with the lowest address."""

    __slots__ = ("address", "first", "size")

    def __init__(self, address: int, size: int, kind: type[Chunk] = Chunk) -> None:
        self.address, self.size = address, size
        self.first = kind(address, size, self)


@dataclass(frozen=True, slots=True)
class Direct:
    """Memory taken from the device past all regions."""

    address: int
    size: int


@dataclass(frozen=True, slots=True)
class ChunkState:
    """A chunk in a snapshot: bytes, and whether it is in use."""

    address: int
    size: int
    requested: int
    used: bool


@dataclass(frozen=True, slots=True)
class RegionState:
    """A region in a snapshot; `chunks` tile it in address order."""

    address: int
    size: int
    chunks: tuple[ChunkState, ...]


class ChunkPool:
    """Regions, their chunks, and the free ones in search order."""

    def __init__(self) -> None:
        self.regions: dict[int, Region] = {}
        self._free: list[tuple[int, int, Chunk]] = []

    def add(self, address: int, size: int) -> Region:
        """Return a new region, one free chunk."""
        region = self.regions[address] = Region(address, size)
        self._insert(region.first)
        return region

    def find(self, size: int) -> Chunk | None:
        """Return the smallest free chunk that fits, the lowest address among equals; it leaves the pool."""
        at = bisect_left(self._free, (size,))
        return self._free.pop(at)[2] if at < len(self._free) else None

    def cut(self, chunk: Chunk, size: int, *, high: bool = False) -> Chunk:
        """Return the part of `size` bytes, at the low or the high end; the rest becomes a free chunk."""
        upper = chunk.cut(chunk.size - size if high else size)
        part, rest = (upper, chunk) if high else (chunk, upper)
        self._insert(rest)
        return part

    def release(self, chunk: Chunk) -> None:
        """`chunk` is free and joins its free neighbours of the same region."""
        chunk.used = False
        chunk.requested = 0
        for other in (chunk.previous, chunk.next):
            if other is not None and not other.used:
                self._remove(other)
                chunk.absorb(other)
        self._insert(chunk)

    def idle(self) -> list[Region]:
        """Regions with no chunk in use, in the order they were made."""
        return [
            region for region in self.regions.values() if not region.first.used and region.first.next is None
        ]

    def drop(self, region: Region) -> None:
        """Remove a region whose memory is wholly free."""
        self._remove(region.first)
        del self.regions[region.address]

    def snapshot(self) -> tuple[RegionState, ...]:
        """State of every region, ordered by address."""
        return tuple(
            RegionState(
                region.address,
                region.size,
                tuple(
                    ChunkState(chunk.address, chunk.size, chunk.requested, chunk.used)
                    for chunk in region.first.onwards()
                ),
            )
            for _, region in sorted(self.regions.items())
        )

    def _insert(self, chunk: Chunk) -> None:
        insort(self._free, (chunk.size, chunk.address, chunk))

    def _remove(self, chunk: Chunk) -> None:
        del self._free[bisect_left(self._free, (chunk.size, chunk.address))]


class PoolAllocator(Allocator):
    """Base of allocators that cut chunks from a pool. Handles count from 0; zero bytes take no chunk."""

    def __init__(self, leftover: Leftover) -> None:
        self.allocated = self.peak_allocated = 0
        self.reserved = self.peak_reserved = 0
        self._pool = ChunkPool()
        self._space = AddressSpace(leftover)
        self._live: dict[int, Chunk | Direct | None] = {}
        self._malloc_count = 0

    @property
    def device_calls(self) -> int:
        """Number of allocations and frees at the driver."""
        return self._space.call_count

    def size_of(self, handle: int) -> int:
        """Return the bytes in use behind a live handle (0 for a request of 0 bytes)."""
        held = self._live[handle]
        return held.size if held else 0

    def address_of(self, handle: int) -> int:
        """Address of a live handle's memory (0 for a request of 0 bytes)."""
        held = self._live[handle]
        return held.address if held else 0

    def segments(self) -> tuple[tuple[int, int], ...]:
        """(address, bytes) of every region and direct allocation, by address."""
        direct = ((held.address, held.size) for held in self._live.values() if isinstance(held, Direct))
        regions = ((region.address, region.size) for region in self._pool.regions.values())
        return tuple(sorted((*regions, *direct)))

    def snapshot(self) -> tuple[RegionState, ...]:
        """State of every region and its chunks, ordered by address, without direct allocations."""
        return self._pool.snapshot()
