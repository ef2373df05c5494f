"""Where the driver puts allocations: the virtual addresses `cudaMalloc` returns, and the memory they occupy.

Addresses matter because best-fit allocators break ties between free blocks of equal size by address, and ties
decide which block stays whole, how much of it goes unused, and when the next segment is needed.

1. Memory is handed out in pages of 2 MiB. An allocation of 2 MiB or more takes whole pages of its own; what
   it leaves of its last page stays unused.
2. Pages go into the lowest-addressed hole that has room.
3. Without such a hole, the driver opens a chunk of whole 32 MiB directly *below* the lowest chunk so far; the
   pages lie at the chunk's start and what is left over is a hole.
4. Smaller allocations, in steps of 512 B, share pages: the smallest gap that fits, else a new page.
5. A process starts with what its context and libraries left behind: `Leftover`.
6. `cudaFree` makes pages a hole again; adjacent holes of one chunk join. A chunk without anything in it is
   given back: the next chunk opens at the upper end of the highest range given back that has room for it.

Source of 1 to 5: addresses recorded on an H200, driver 580: segments of 70 PyTorch runs (the replay is
`tests/allocators/pytorch/test_replay.py`), arena regions of 24 ONNX Runtime runs. 6: which of two freed
places a later segment takes, in the programs of `tests/data/h200/histories_whole_programs.xz` that call
`empty_cache`; and `tests/data/h200/driver_holes.json.gz`.
Not modelled: the driver's and the libraries' own allocations while the process runs (`process.py` has those
of its first kernels); when these fill a hole, later segments lie elsewhere (seen in 1 of the 70 runs to
change a tie; `runtimes/ranges.py` says what other orders of segments would make). Threads' stacks and the C
library's heaps, which lie between chunks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container
from dataclasses import dataclass

MIB = 2**20
CHUNK_BYTES = 32 * MIB
PAGE_BYTES = 2 * MIB
STEP_BYTES = 512
# Any origin will do: only the order of addresses counts.
ORIGIN = 1 << 46


@dataclass(frozen=True, slots=True)
class Leftover:
    """Free memory a new process finds: holes of whole pages and gaps in pages, as (address, bytes)."""

    holes: tuple[tuple[int, int], ...]
    gaps: tuple[tuple[int, int], ...] = ()


# PyTorch after its first kernel: the ends of two 32 MiB chunks of the context.
PYTORCH_LEFTOVER = Leftover(((ORIGIN + 26 * MIB, 6 * MIB), (ORIGIN + 1034 * MIB, 22 * MIB)))
# ONNX Runtime's CUDA provider when the arena asks first: the end of a chunk, and of a page of the handles'
# allocations.
ONNXRUNTIME_LEFTOVER = Leftover(((ORIGIN + 20 * MIB, 12 * MIB),), ((ORIGIN + 8 * MIB + 0x26A00, 0x1D9600),))


class AddressSpace:
    """Hands out addresses by the rules above. Sizes and addresses in bytes.

    page_bytes: memory taken from the device in pages, as NVML counts it, beyond what was there at the start.
    call_count: how often memory was asked of the driver or given back to it.
    """

    def __init__(self, leftover: Leftover = PYTORCH_LEFTOVER) -> None:
        self._holes = sorted(leftover.holes)
        self._largest_hole = max((room for _, room in self._holes), default=0)  # or more
        self._gaps = sorted((size, address) for address, size in leftover.gaps)
        self._lowest = ORIGIN
        # Chunks opened here, by address, and address ranges of such as were given back: (address, size),
        # sorted.
        self._chunks: dict[int, int] = {}
        self._ranges: list[tuple[int, int]] = []
        self.page_bytes = 0
        self.call_count = 0

    def copy(self) -> AddressSpace:
        """Return a copy, to continue in another way."""
        other = AddressSpace.__new__(AddressSpace)
        other._holes, other._gaps, other._ranges = self._holes.copy(), self._gaps.copy(), self._ranges.copy()
        other._largest_hole = self._largest_hole
        other._lowest, other._chunks = self._lowest, self._chunks.copy()
        other.page_bytes, other.call_count = self.page_bytes, self.call_count
        return other

    def take(self, size: int) -> int:
        """Return the address of a new allocation of `size` bytes."""
        self.call_count += 1
        if size >= PAGE_BYTES:
            return self._counted(-(-size // PAGE_BYTES) * PAGE_BYTES)
        size = -(-size // STEP_BYTES) * STEP_BYTES
        at = bisect_left(self._gaps, (size,))
        room, address = (
            self._gaps.pop(at) if at < len(self._gaps) else (PAGE_BYTES, self._counted(PAGE_BYTES))
        )
        if room > size:
            insort(self._gaps, (room - size, address + size))
        return address

    def _counted(self, size: int) -> int:
        self.page_bytes += size
        return self._pages(size)

    def give(self, address: int, size: int) -> None:
        """Free the allocation at `address`; the driver keeps shared pages."""
        self.call_count += 1
        if size < PAGE_BYTES:
            insort(self._gaps, (-(-size // STEP_BYTES) * STEP_BYTES, address))
            return
        size = -(-size // PAGE_BYTES) * PAGE_BYTES
        self.page_bytes -= size
        self._free(address, size)

    def _free(self, address: int, size: int) -> None:
        """Return the pages to the holes; a wholly free chunk goes back to the free address ranges."""
        address, size = _joined(self._holes, address, size, self._chunks)
        if self._chunks.get(address) != size:
            self._keep_hole(address, size)
            return
        del self._chunks[address]
        insort(self._ranges, _joined(self._ranges, address, size))

    def _pages(self, size: int) -> int:
        """Take whole pages from the lowest hole with room, else from a new chunk; return their address."""
        place = self._lowest_hole(size)
        if place >= 0:
            address, room = self._holes.pop(place)
        else:
            room = -(-size // CHUNK_BYTES) * CHUNK_BYTES
            address = self._chunk(room)
        if room > size:
            self._keep_hole(address + size, room - size)
        return address

    def _lowest_hole(self, size: int) -> int:
        """Return the place of the lowest hole with room, -1 without one."""
        if size > self._largest_hole:
            return -1
        for at, (_, room) in enumerate(self._holes):
            if room >= size:
                return at
        self._largest_hole = size - 1
        return -1

    def _keep_hole(self, address: int, size: int) -> None:
        self._largest_hole = max(self._largest_hole, size)
        insort(self._holes, (address, size))

    def _chunk(self, size: int) -> int:
        """Reserve a chunk at the end of the highest free range with room, else below the lowest chunk."""
        for at in range(len(self._ranges) - 1, -1, -1):
            start, room = self._ranges[at]
            if room >= size:
                address = start + room - size
                self._ranges[at : at + 1] = [(start, room - size)] if room > size else []
                break
        else:
            address = self._lowest = self._lowest - size
        self._chunks[address] = size
        return address


def _joined(
    free: list[tuple[int, int]], address: int, size: int, borders: Container[int] = ()
) -> tuple[int, int]:
    """Remove the range's neighbours from `free` and merge them with it, never across `borders`."""
    at = bisect_left(free, (address,))
    if address + size not in borders and at < len(free) and free[at][0] == address + size:
        size += free.pop(at)[1]
    if address not in borders and at and sum(free[at - 1]) == address:
        address, room = free.pop(at - 1)
        size += room
    return address, size
