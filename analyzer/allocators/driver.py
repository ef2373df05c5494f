"""Where the driver puts allocations: the virtual addresses `cudaMalloc` returns, and the memory they occupy.

Addresses matter because best-fit allocators break ties between free blocks of equal size by address, and ties decide
which block stays whole, how much of it goes unused, and when the next segment is needed.

1. Memory is handed out in pages of 2 MiB. An allocation of 2 MiB or more takes whole pages of its own; what it leaves
   of its last page stays unused.
2. Pages go into the lowest-addressed hole that has room.
3. Without such a hole, the driver opens a chunk of whole 32 MiB directly *below* the lowest chunk so far; the pages
   lie at the chunk's start and what is left over is a hole.
4. Smaller allocations, in steps of 512 B, share pages: the smallest gap that fits, else a new page.
5. A process starts with what its context and libraries left behind: `Leftover`.
6. `cudaFree` makes pages a hole again; adjacent holes join.

Source of 1 to 5: addresses recorded on an H200, driver 580: segments of 70 PyTorch runs (the replay is
`tests/allocators/pytorch/test_replay.py`), arena regions of 24 ONNX Runtime runs. Rule 6 is by symmetry, not recorded.
Not modelled: the driver's and the libraries' own allocations while the process runs; when these fill a hole, later
segments lie elsewhere (seen in 1 of the 70 runs to change a tie).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

MIB = 2**20
CHUNK_BYTES = 32 * MIB
PAGE_BYTES = 2 * MIB
STEP_BYTES = 512
# Any origin will do: only the order of addresses counts.
ORIGIN = 1 << 46


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a new process finds: holes of whole pages, and gaps in shared pages, as (address, size) in bytes."""

    holes: tuple[tuple[int, int], ...]
    gaps: tuple[tuple[int, int], ...] = ()


# PyTorch after its first kernel: the ends of two 32 MiB chunks of the context.
PYTORCH_LEFTOVER = Leftover(((ORIGIN + 26 * MIB, 6 * MIB), (ORIGIN + 1034 * MIB, 22 * MIB)))
# ONNX Runtime's CUDA provider when the arena asks first: the end of a chunk, and of a page of the handles' allocations.
ONNXRUNTIME_LEFTOVER = Leftover(((ORIGIN + 20 * MIB, 12 * MIB),), ((ORIGIN + 8 * MIB + 0x26A00, 0x1D9600),))


class AddressSpace:
    """Hands out addresses by the rules above. Sizes and addresses in bytes.

    page_bytes: memory taken from the device in pages, as NVML counts it, beyond what was there at the start.
    call_count: how often memory was asked of the driver or given back to it.
    """

    def __init__(self, leftover: Leftover = PYTORCH_LEFTOVER) -> None:
        self._holes = sorted(leftover.holes)
        self._gaps = sorted((size, address) for address, size in leftover.gaps)
        self._lowest = ORIGIN
        self.page_bytes = 0
        self.call_count = 0

    def take(self, size: int) -> int:
        """The address of a new allocation of `size` bytes."""
        self.call_count += 1
        if size >= PAGE_BYTES:
            return self._pages(-(-size // PAGE_BYTES) * PAGE_BYTES)
        size = -(-size // STEP_BYTES) * STEP_BYTES
        at = bisect_left(self._gaps, (size,))
        room, address = self._gaps.pop(at) if at < len(self._gaps) else (PAGE_BYTES, self._pages(PAGE_BYTES))
        if room > size:
            insort(self._gaps, (room - size, address + size))
        return address

    def give(self, address: int, size: int) -> None:
        """The allocation at `address` is freed. Shared pages are kept by the driver."""
        self.call_count += 1
        if size < PAGE_BYTES:
            insort(self._gaps, (-(-size // STEP_BYTES) * STEP_BYTES, address))
            return
        size = -(-size // PAGE_BYTES) * PAGE_BYTES
        self.page_bytes -= size
        at = bisect_left(self._holes, (address,))
        if at < len(self._holes) and self._holes[at][0] == address + size:
            size += self._holes.pop(at)[1]
        if at and sum(self._holes[at - 1]) == address:
            address, room = self._holes.pop(at - 1)
            size += room
        insort(self._holes, (address, size))

    def _pages(self, size: int) -> int:
        """Whole pages go into the lowest hole that has room, else into a new chunk below the lowest."""
        self.page_bytes += size
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
