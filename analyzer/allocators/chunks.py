"""Regions cut into chunks, with a best-fit search: what the BFC arena and PaddlePaddle's allocators have in common.

1. A region is one piece of device memory; its chunks tile it and know their neighbours.
2. The search takes the smallest free chunk that fits, the lowest address among equals, and removes it from the pool.
3. A chunk may be cut in two; the part handed out is its low or its high end.
4. A freed chunk joins its free neighbours of the same region.

Bins of sizes, as BFC keeps them, only speed the search up: a bin holds larger chunks than all bins before it, and each
is ordered by size and address, so the first that fits is the smallest of all.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass


class Chunk:
    """A part of a region. `requested` is what its user asked for, while `used`."""

    __slots__ = ("address", "next", "previous", "region", "requested", "size", "used")

    def __init__(self, address: int, size: int, region: Region) -> None:
        self.address, self.size, self.region = address, size, region
        self.requested = 0
        self.used = False
        self.previous: Chunk | None = None
        self.next: Chunk | None = None


class Region:
    """One piece of device memory; `first` is its chunk with the lowest address, `number` counts regions from 0."""

    __slots__ = ("address", "first", "number", "size")

    def __init__(self, address: int, size: int, number: int) -> None:
        self.address, self.size, self.number = address, size, number
        self.first = Chunk(address, size, self)

    def __iter__(self) -> Iterator[Chunk]:
        chunk: Chunk | None = self.first
        while chunk:
            yield chunk
            chunk = chunk.next


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
        self._count = 0

    def add(self, address: int, size: int) -> Region:
        """A new region, one free chunk."""
        region = self.regions[address] = Region(address, size, self._count)
        self._count += 1
        self._insert(region.first)
        return region

    def find(self, size: int) -> Chunk | None:
        """Rule 2."""
        at = bisect_left(self._free, (size,))
        return self._free.pop(at)[2] if at < len(self._free) else None

    def cut(self, chunk: Chunk, size: int, *, high: bool = False) -> Chunk:
        """Rule 3: the part of `size` bytes; the rest becomes a free chunk."""
        low_size = chunk.size - size if high else size
        upper = Chunk(chunk.address + low_size, chunk.size - low_size, chunk.region)
        chunk.size = low_size
        upper.previous, upper.next = chunk, chunk.next
        if chunk.next:
            chunk.next.previous = upper
        chunk.next = upper
        taken, rest = (upper, chunk) if high else (chunk, upper)
        self._insert(rest)
        return taken

    def release(self, chunk: Chunk) -> None:
        """Rule 4: `chunk` is free."""
        chunk.used = False
        chunk.requested = 0
        for other in (chunk.previous, chunk.next):
            if other is None or other.used:
                continue
            self._remove(other)
            chunk.size += other.size
            if other is chunk.previous:
                chunk.address, chunk.previous = other.address, other.previous
                if chunk.previous:
                    chunk.previous.next = chunk
                else:
                    chunk.region.first = chunk
            else:
                chunk.next = other.next
                if chunk.next:
                    chunk.next.previous = chunk
        self._insert(chunk)

    def idle(self) -> list[Region]:
        """Regions with no chunk in use, in the order they were made."""
        return [
            region for region in self.regions.values() if not region.first.used and region.first.next is None
        ]

    def drop(self, region: Region) -> None:
        """An idle region goes."""
        self._remove(region.first)
        del self.regions[region.address]

    def snapshot(self) -> tuple[RegionState, ...]:
        """Every region, by address."""
        return tuple(
            RegionState(
                region.address,
                region.size,
                tuple(ChunkState(chunk.address, chunk.size, chunk.requested, chunk.used) for chunk in region),
            )
            for _, region in sorted(self.regions.items())
        )

    def _insert(self, chunk: Chunk) -> None:
        insort(self._free, (chunk.size, chunk.address, chunk))

    def _remove(self, chunk: Chunk) -> None:
        del self._free[bisect_left(self._free, (chunk.size, chunk.address))]
