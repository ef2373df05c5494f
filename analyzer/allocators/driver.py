"""Where the driver puts segments: the virtual addresses `cudaMalloc` returns.

Addresses matter because PyTorch's allocator breaks ties between free blocks of equal size by address, and ties decide
which block stays whole, how much of it goes unused, and when the next segment is needed.

1. A segment goes into the lowest-addressed hole that has room.
2. Without such a hole, the driver opens a chunk of whole 32 MiB directly *below* the lowest chunk so far; the segment
   lies at the chunk's start and what is left over is a hole.
3. A process starts with two holes the context left behind: 6 MiB, and 22 MiB at a higher address.
4. `cudaFree` makes the segment a hole again; adjacent holes join.

Source of 1 to 3: segment addresses recorded on an H200, driver 580 (70 training and inference runs; the replay is
`tests/allocators/test_replay.py`). Not modelled: other processes' or libraries' own `cudaMalloc` calls.
"""

from __future__ import annotations

from bisect import bisect_left, insort

MIB = 2**20
CHUNK_BYTES = 32 * MIB
# Any origin will do: only the order of addresses counts.
ORIGIN = 1 << 46
INITIAL_HOLES = ((ORIGIN + 26 * MIB, 6 * MIB), (ORIGIN + 1034 * MIB, 22 * MIB))


class AddressSpace:
    """Hands out addresses by the rules above. Sizes and addresses in bytes."""

    def __init__(self, holes: tuple[tuple[int, int], ...] = INITIAL_HOLES) -> None:
        self._holes = sorted(holes)
        self._lowest = ORIGIN

    def take(self, size: int) -> int:
        """The address of a new segment of `size` bytes."""
        for at, (address, room) in enumerate(self._holes):
            if room >= size:
                if room == size:
                    del self._holes[at]
                else:
                    self._holes[at] = (address + size, room - size)
                return address
        chunk = -(-size // CHUNK_BYTES) * CHUNK_BYTES
        self._lowest -= chunk
        if chunk > size:
            insort(self._holes, (self._lowest + size, chunk - size))
        return self._lowest

    def give(self, address: int, size: int) -> None:
        """The segment at `address` is freed: its range becomes a hole and joins its neighbours."""
        at = bisect_left(self._holes, (address,))
        if at < len(self._holes) and self._holes[at][0] == address + size:
            size += self._holes.pop(at)[1]
        if at and sum(self._holes[at - 1]) == address:
            address, room = self._holes.pop(at - 1)
            size += room
        insort(self._holes, (address, size))
