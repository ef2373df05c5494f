"""What a session reaches on its arena, in plain numbers, for those who play it many times.

The same rules as `arena.py` without a limit and without shrinking: rounding, best fit, splitting, chunks tagged while runs use
them, joining, regions that double. Chunks are no objects here but whole numbers:

1. Sizes and addresses count units of 256 bytes. A free chunk is its size and address in one number, so that a sorted list of
   them is in the order of the search.
2. A free chunk is found by its beginning if its region does not begin there, and by its end if its region does not end
   there: so what is found next to a chunk lies in the same region.

`arena.py` is what the arena does; a property test holds this one to it.

Not modelled: limits, shrinking, requests apart from the regions: `steps` says None for a session that has any of these, and
`play` says False where the device has not as much as the arena wants, or no machine has the addresses.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from analyzer.allocators.bfc import ROUND_BYTES, next_region
from analyzer.allocators.driver import ONNXRUNTIME_LEFTOVER, ORIGIN, AddressSpace
from analyzer.allocators.onnxruntime_bfc import INITIAL_CHUNK_BYTES, LARGEST_EXTENSION_BYTES, MAX_DEAD_BYTES
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.onnxruntime.options import SessionOptions

# (key, units, whether a run's stream asks) for a request, (key, _FREE, False) for what gives it back, (0, _OVER, False) at
# the end of a stage. A request of no bytes is left out with what gives it back.
Step: TypeAlias = tuple[int, int, bool]
_FREE, _OVER = -1, -2
_MAX_DEAD = MAX_DEAD_BYTES // ROUND_BYTES
# An address is counted from far below any the driver gives, and takes the lower bits of a free chunk's number.
_BITS = 40
_ADDRESS = (1 << _BITS) - 1
_BASE = ORIGIN // ROUND_BYTES - (1 << (_BITS - 1))


def steps(events: Iterable[AllocationEvent], options: SessionOptions) -> list[Step] | None:
    """The events as `PlainArena.play` takes them; None where the arena has rules that are not modelled here."""
    if options.gpu_mem_limit is not None or options.enable_memory_arena_shrinkage:
        return None
    found: list[Step] = []
    empty: set[int] = set()
    for event in events:
        if isinstance(event, Malloc):
            if event.apart:
                return None
            if event.nbytes:
                found.append((event.key, -(-event.nbytes // ROUND_BYTES), event.stream is not None))
            else:
                empty.add(event.key)
        elif isinstance(event, Free):
            if event.key not in empty:
                found.append((event.key, _FREE, False))
        elif isinstance(event, Event):
            found.append((0, _OVER, False))
        else:
            return None
    return found


@dataclass(frozen=True, slots=True)
class Reached:
    """Bytes: highest in use, held, and the driver's pages under the regions."""

    peak_in_use: int
    held: int
    page_bytes: int


class PlainArena:
    """One arena. device_bytes: what the device has to give; None for no end."""

    def __init__(self, options: SessionOptions, device_bytes: int | None) -> None:
        self._doubles = options.arena_extend_strategy == "kNextPowerOfTwo"
        self._device = device_bytes
        self._growth = INITIAL_CHUNK_BYTES
        self._regions: list[int] = []
        self._space = AddressSpace(ONNXRUNTIME_LEFTOVER)
        self._held = self._allocated = self._peak = 0
        self._free: list[int] = []
        self._beginning: dict[int, int] = {}
        self._ending: dict[int, int] = {}
        self._starts: set[int] = set()
        self._ends: set[int] = set()
        self._tagged: set[int] = set()
        # Of each key the chunk it has: address, size, and whether a run's stream uses it.
        self._live: dict[int, tuple[int, int, bool]] = {}

    def copy(self) -> PlainArena:
        """The same arena once more."""
        other = PlainArena.__new__(PlainArena)
        other._doubles, other._device, other._growth = self._doubles, self._device, self._growth
        other._regions = self._regions.copy()
        other._space = AddressSpace(ONNXRUNTIME_LEFTOVER)
        for nbytes in self._regions:
            other._space.take(nbytes)
        other._held, other._allocated, other._peak = self._held, self._allocated, self._peak
        other._free = self._free.copy()
        other._beginning, other._ending = self._beginning.copy(), self._ending.copy()
        other._starts, other._ends = self._starts.copy(), self._ends.copy()
        other._tagged, other._live = self._tagged.copy(), self._live.copy()
        return other

    @property
    def reached(self) -> Reached:
        """What has been reached so far."""
        return Reached(self._peak * ROUND_BYTES, self._held, self._space.page_bytes)

    def play(self, played: Sequence[Step]) -> bool:
        """Plays the steps on; False where the device has not enough, and what has been reached then says nothing."""
        free, live, tagged = self._free, self._live, self._tagged
        beginning, ending, starts, ends = self._beginning, self._ending, self._starts, self._ends
        allocated, peak = self._allocated, self._peak
        for key, units, streamed in played:
            if units >= 0:
                size = units
                at = bisect_left(free, size << _BITS)
                if not streamed and tagged:
                    at = self._untagged(at)
                if at == len(free):
                    if not self._extend(size * ROUND_BYTES):
                        return False
                    at = bisect_left(free, size << _BITS)
                    if not streamed and tagged:
                        at = self._untagged(at)
                chunk = free.pop(at)
                address, found = chunk & _ADDRESS, chunk >> _BITS
                end = address + found
                beginning.pop(address, None)
                tag = address in tagged
                if tag:
                    tagged.remove(address)
                if found >= 2 * size or found - size >= _MAX_DEAD:
                    rest = address + size
                    chunk = (found - size) << _BITS | rest
                    insort(free, chunk, 0, at)
                    beginning[rest] = chunk
                    if end not in ends:
                        ending[end] = chunk
                    if tag:
                        tagged.add(rest)
                else:
                    size = found
                    ending.pop(end, None)
                live[key] = (address, size, streamed)
                allocated += size
                if allocated > peak:  # noqa: PLR1730 (a call more for every request)
                    peak = allocated
            elif units == _FREE:
                address, size, tag = live.pop(key)
                allocated -= size
                end = address + size
                chunk = beginning.get(end, 0)
                if chunk and (end in tagged) == tag:
                    del free[bisect_left(free, chunk)], beginning[end]
                    tagged.discard(end)
                    end += chunk >> _BITS
                chunk = ending.get(address, 0)
                if chunk and ((chunk & _ADDRESS) in tagged) == tag:
                    del free[bisect_left(free, chunk)], ending[address]
                    address = chunk & _ADDRESS
                chunk = (end - address) << _BITS | address
                insort(free, chunk)
                if address not in starts:
                    beginning[address] = chunk
                if end not in ends:
                    ending[end] = chunk
                if tag:
                    tagged.add(address)
            else:
                self._over()
        self._allocated, self._peak = allocated, peak
        return True

    def _untagged(self, at: int) -> int:
        """The place of the first free chunk from `at` on that has no tag."""
        while at < len(self._free) and self._free[at] & _ADDRESS in self._tagged:
            at += 1
        return at

    def _insert(self, address: int, end: int) -> None:
        """A free chunk without a tag."""
        chunk = (end - address) << _BITS | address
        insort(self._free, chunk)
        if address not in self._starts:
            self._beginning[address] = chunk
        if end not in self._ends:
            self._ending[end] = chunk

    def _extend(self, size: int) -> bool:
        """A new region for a rounded request of `size` bytes."""
        taken = size
        if self._doubles:
            taken, self._growth = next_region(size, self._growth, LARGEST_EXTENSION_BYTES)
        if self._device is not None and self._held + taken > self._device:
            return False
        address = self._space.take(taken) // ROUND_BYTES - _BASE
        end = address + taken // ROUND_BYTES
        if address < 0 or end > _ADDRESS:
            return False  # an address too long for its bits: sizes no device has, such as a damaged file's
        self._regions.append(taken)
        self._starts.add(address)
        self._ends.add(end)
        self._held += taken
        self._insert(address, end)
        return True

    def _over(self) -> None:
        """A stage is over: no tags, all free neighbours joined."""
        joined: list[tuple[int, int]] = []
        for address, size in sorted((chunk & _ADDRESS, chunk >> _BITS) for chunk in self._free):
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
