"""Best-fit allocators in plain numbers, for those who play the same requests hundreds of times.

`peaks` has the rules of PyTorch's caching allocator (`pytorch/caching.py`: default settings, one stream, no limit), `Chunks`
those of ONNX Runtime's arena (`bfc.py`, `onnxruntime_bfc.py`, no limit). Blocks are no objects but whole numbers:

1. Sizes and addresses count units: those of the rounding. Events are rows of an array of int64: (key, number of a size) for
   a request, (key, FREE) for what gives it back, (0, OVER) where a stage of an arena is over. A key is requested once before
   it is given back. A request of no units takes nothing, and what gives it back does nothing.
2. Memory of the device comes from a function the caller gives, which alone knows the driver's addresses.
3. A free block is its size and address in one number, so that a sorted list of them is in the order of the search. It is
   found by its beginning and by its end.

`_played.c` is the same, compiled where the package was installed with a C compiler; it takes an eighth of the time. Without
one this module does its work. Property tests hold both to the simulators named above.

Not modelled: settings, limits, several streams, an emptied cache, shrinking, requests apart from an arena's regions.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
FREE, OVER = -1, -2

# An address takes the lower bits of a free block's number. No device has as many units as these bits count.
ADDRESS_BITS = 40
_ADDRESS = (1 << ADDRESS_BITS) - 1
# What a free block's number loses for each unit cut off at its beginning.
_CUT = (1 << ADDRESS_BITS) - 1
_MIB = 2**20 // 512


def _whole(units: Integers) -> list[int]:
    """The sizes as Python's numbers. Raises OverflowError for one that no device can serve."""
    if units.size and int(units.max()) > _ADDRESS:
        raise OverflowError("a request that no device can serve")
    return units.tolist()  # type: ignore[no-any-return]


def peaks(
    events: Integers, units: Integers, setup_count: int, large_segment: int, take: Callable[[int], int]
) -> tuple[int, int]:
    """Peak allocated and peak reserved of PyTorch's allocator from event `setup_count` on, in units of 512 bytes.

    events: rows of (key, which size) and (key, FREE). units: the sizes. large_segment: of a segment for less than 10 MiB.
    take: the address of a new segment of so many units, in units; no two segments may touch.
    Raises OverflowError for a size that no device has.
    """
    large: list[int] = []
    small: list[int] = []
    beginning: dict[int, int] = {}
    ending: dict[int, int] = {}
    # Of each key the block it has: address and size.
    blocks: dict[int, tuple[int, int]] = {}
    allocated = reserved = peak_allocated = peak_reserved = 0
    sizes = _whole(units)
    for part in (events[:setup_count], events[setup_count:]):
        peak_allocated, peak_reserved = allocated, reserved
        for key, number in part.tolist():
            if number >= 0:
                size = sizes[number]
                if not size:
                    continue
                pool, not_split = (small, 0) if size <= _MIB else (large, _MIB)
                at = bisect_left(pool, size << ADDRESS_BITS)
                if at < len(pool):
                    block = pool[at]
                    address, found = block & _ADDRESS, block >> ADDRESS_BITS
                    del beginning[address]
                    if found - size > not_split:
                        block -= size * _CUT
                        if at and pool[at - 1] > block:
                            del pool[at]
                            insort(pool, block, 0, at)
                        else:
                            pool[at] = block
                        beginning[address + size] = ending[address + found] = block
                    else:
                        del pool[at]
                        del ending[address + found]
                        size = found
                else:
                    if size <= _MIB:
                        found = 2 * _MIB
                    elif size < 10 * _MIB:
                        found = large_segment
                    else:
                        found = -(-size // (2 * _MIB)) * 2 * _MIB
                    address = take(found)
                    reserved += found
                    peak_reserved = max(peak_reserved, reserved)
                    if found - size > not_split:
                        block = (found - size) << ADDRESS_BITS | address + size
                        insort(pool, block)
                        beginning[address + size] = ending[address + found] = block
                    else:
                        size = found
                blocks[key] = (address, size)
                allocated += size
                if allocated > peak_allocated:  # noqa: PLR1730 (a call more for every request)
                    peak_allocated = allocated
            elif key in blocks:
                address, size = blocks.pop(key)
                allocated -= size
                pool = small if size <= _MIB else large
                end = address + size
                block = beginning.pop(end, 0)
                if block:
                    del pool[bisect_left(pool, block)]
                    end += block >> ADDRESS_BITS
                block = ending.pop(address, 0)
                if block:
                    del pool[bisect_left(pool, block)]
                    address = block & _ADDRESS
                block = (end - address) << ADDRESS_BITS | address
                insort(pool, block)
                beginning[address] = ending[end] = block
    return peak_allocated, peak_reserved


class Chunks:
    """The chunks of one arena of ONNX Runtime. Units of 256 bytes.

    A chunk at the border of its region is not found by that border: so what is found next to a chunk lies in its region.
    """

    def __init__(self, most_dead: int) -> None:
        """most_dead: units a chunk may have beyond a request without being split."""
        self._most_dead = most_dead
        self.allocated = self.peak = 0
        self._free: list[int] = []
        self._beginning: dict[int, int] = {}
        self._ending: dict[int, int] = {}
        self._starts: set[int] = set()
        self._ends: set[int] = set()
        self._tagged: set[int] = set()
        # Of each key the chunk it has: address, size, and whether a run's stream uses it.
        self._live: dict[int, tuple[int, int, bool]] = {}

    def copy(self) -> Chunks:
        """The same chunks once more."""
        other = Chunks(self._most_dead)
        other.allocated, other.peak = self.allocated, self.peak
        other._free = self._free.copy()
        other._beginning, other._ending = self._beginning.copy(), self._ending.copy()
        other._starts, other._ends = self._starts.copy(), self._ends.copy()
        other._tagged, other._live = self._tagged.copy(), self._live.copy()
        return other

    def play(
        self, events: Integers, units: Integers, extend: Callable[[int], tuple[int, int] | None]
    ) -> bool:
        """Plays the events on; False where there is no room, and what has been reached then says nothing.

        events: rows of (key, which size, whether a run's stream asks), (key, FREE, 0), (0, OVER, 0). units: the sizes.
        extend: address and size of a new region for so many units; None where there is no room.
        Raises OverflowError for a size that no device has.
        """
        free, live, tagged = self._free, self._live, self._tagged
        beginning, ending, ends = self._beginning, self._ending, self._ends
        allocated, peak = self.allocated, self.peak
        sizes = _whole(units)
        for key, number, streamed in events.tolist():
            if number >= 0:
                size = sizes[number]
                if not size:
                    continue
                at = bisect_left(free, size << ADDRESS_BITS)
                if not streamed and tagged:
                    at = self._untagged(at)
                if at == len(free):
                    region = extend(size)
                    if region is None:
                        return False
                    self._region(*region)
                    at = bisect_left(free, size << ADDRESS_BITS)
                    if not streamed and tagged:
                        at = self._untagged(at)
                chunk = free.pop(at)
                address, found = chunk & _ADDRESS, chunk >> ADDRESS_BITS
                end = address + found
                beginning.pop(address, None)
                tag = address in tagged
                if tag:
                    tagged.remove(address)
                if found >= 2 * size or found - size >= self._most_dead:
                    rest = address + size
                    chunk = (found - size) << ADDRESS_BITS | rest
                    insort(free, chunk, 0, at)
                    beginning[rest] = chunk
                    if end not in ends:
                        ending[end] = chunk
                    if tag:
                        tagged.add(rest)
                else:
                    size = found
                    ending.pop(end, None)
                live[key] = (address, size, bool(streamed))
                allocated += size
                if allocated > peak:  # noqa: PLR1730 (a call more for every request)
                    peak = allocated
            elif number == FREE:
                if key not in live:
                    continue
                address, size, tag = live.pop(key)
                allocated -= size
                end = address + size
                chunk = beginning.get(end, 0)
                if chunk and (end in tagged) == tag:
                    del free[bisect_left(free, chunk)], beginning[end]
                    tagged.discard(end)
                    end += chunk >> ADDRESS_BITS
                chunk = ending.get(address, 0)
                if chunk and ((chunk & _ADDRESS) in tagged) == tag:
                    del free[bisect_left(free, chunk)], ending[address]
                    address = chunk & _ADDRESS
                self._insert(address, end)
                if tag:
                    tagged.add(address)
            else:
                self._over()
        self.allocated, self.peak = allocated, peak
        return True

    def _untagged(self, at: int) -> int:
        """The place of the first free chunk from `at` on that has no tag."""
        while at < len(self._free) and self._free[at] & _ADDRESS in self._tagged:
            at += 1
        return at

    def _region(self, address: int, size: int) -> None:
        self._starts.add(address)
        self._ends.add(address + size)
        self._insert(address, address + size)

    def _insert(self, address: int, end: int) -> None:
        """A free chunk without a tag."""
        chunk = (end - address) << ADDRESS_BITS | address
        insort(self._free, chunk)
        if address not in self._starts:
            self._beginning[address] = chunk
        if end not in self._ends:
            self._ending[end] = chunk

    def _over(self) -> None:
        """A stage is over: no tags, all free neighbours joined."""
        joined: list[tuple[int, int]] = []
        for address, size in sorted((chunk & _ADDRESS, chunk >> ADDRESS_BITS) for chunk in self._free):
            if joined and joined[-1][1] == address and address not in self._starts:
                joined[-1] = (joined[-1][0], address + size)
            else:
                joined.append((address, address + size))
        for part in (self._free, self._beginning, self._ending, self._tagged):
            part.clear()
        for address, end in joined:
            self._insert(address, end)
        for key, (address, size, _) in self._live.items():
            self._live[key] = (address, size, False)
