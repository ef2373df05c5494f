"""A history served again by our simulators: as it was, byte by byte, and under other settings.

1. **As it was**: segments lie where they lay, and go back when they went back; which block serves a request,
   what is split off it, when a new segment is taken and how large it is, the simulator decides. Every address
   it answers with, every segment it takes and what it holds at the end is compared with the record.
2. Segments of a graph's or a user's pool are not given back with the others, until the record shows that the
   pool itself is gone.
3. How ties between free blocks of one size are broken depends on PyTorch's release, which a snapshot does not
   say: the way that agrees with the record is taken.

`outcome.py` serves it under other settings.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import get_args

from analyzer.allocators.driver import AddressSpace
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.expandable import ExpandableAllocator
from analyzer.allocators.pytorch.segments import Block, SegmentState
from analyzer.allocators.pytorch.settings import PyTorchSettings, Ties
from analyzer.recordings.history import Entry, History
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.timeline import Failure, Simulation, States, simulation_of_states


class _Pools(PyTorchAllocator):
    """A simulator that keeps the segments of private pools. private: their lanes."""

    private: set[int]

    def _cached(self, small: bool) -> list[Block]:
        return [block for block in super()._cached(small) if block.region.pool.stream not in self.private]


class _Caching(_Pools):
    def give_back(self, address: int) -> bool:
        """Give the segment at an address back; False if it is not there, or in use."""
        segment = self._segments.get(address)
        if segment is None or segment.first.used or not segment.first.fills_segment:
            return False
        self._release(segment.first)
        return True


class _Expandable(_Pools, ExpandableAllocator):
    pass


class RecordedSpace(AddressSpace):
    """Segments at the recorded addresses, as long as the same are allocated and freed; then where the
    driver's rules put them. recorded: their (address, bytes), in order."""

    def __init__(self, recorded: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self._recorded, self._next = recorded, 0
        self._lying: dict[int, tuple[int, int]] = {}  # by address: bytes, and where the rules put it
        self._starts: list[int] = []  # of those, sorted; none overlaps another while recorded ones are taken

    def copy(self) -> RecordedSpace:
        """Return a copy, to continue in another way."""
        other = RecordedSpace.__new__(RecordedSpace)
        other.__dict__ |= super().copy().__dict__
        other._recorded, other._next, other._lying = self._recorded, self._next, self._lying.copy()
        other._starts = self._starts.copy()
        return other

    def take(self, size: int) -> int:
        """Return the address of a new segment."""
        own = super().take(size)
        address, recorded = self._recorded[self._next] if self._next < len(self._recorded) else (0, 0)
        self._next += 1
        if recorded != size or self._overlaps(address, size):
            self._next = len(self._recorded)
            address = own
        if address not in self._lying:
            insort(self._starts, address)
        self._lying[address] = size, own
        return address

    def _overlaps(self, address: int, size: int) -> bool:
        """Return whether a segment lies there."""
        at = bisect_left(self._starts, address + size)
        start = self._starts[at - 1] if at else address
        return at > 0 and address < start + self._lying[start][0]

    def give(self, address: int, size: int) -> None:
        """Take a segment back; one from before the recording is nothing to the rules."""
        _, own = self._lying.pop(address, (0, 0))
        at = bisect_left(self._starts, address)
        if self._starts[at : at + 1] == [address]:
            del self._starts[at]
        if own:
            super().give(own, size)


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that found no room. position: of the event it would have been. free_bytes: what the device
    had free. holes: free blocks by size, largest first, as (bytes, lane, of the small pool)."""

    entry: Entry
    position: int
    allocated: int
    reserved: int
    free_bytes: int
    holes: tuple[tuple[int, int, bool], ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """A history as it was. parted: at how many places the simulator and the record part; first: the first."""

    events: tuple[AllocationEvent, ...]
    simulation: Simulation
    failed: tuple[Failed, ...]
    parted: int
    first: str
    ties: Ties


def create(
    settings: PyTorchSettings, space: AddressSpace | None, private: Iterable[int]
) -> _Caching | _Expandable:
    """Return a simulator that keeps private pools' segments."""
    made = _Expandable(settings, space) if settings.expandable_segments else _Caching(settings, space)
    made.private = set(private)
    return made


def replay(
    history: History,
    settings: PyTorchSettings,
    last: tuple[SegmentState, ...],
    describe: Callable[[int], Malloc],
) -> Replay:
    """Return the history as it was. last: the segments at the end. describe: the request of a key."""
    plain = replace(settings, garbage_collection_threshold=0.0, per_process_memory_fraction=None)
    runs = []
    for ties in get_args(Ties):
        run = _Run(history, replace(plain, ties=ties), describe)
        run.go()
        run.compare(last)
        runs.append(run)
        if not run.parted or settings.expandable_segments:
            break
    best = min(runs, key=lambda run: run.parted)
    failure = best.failure()
    simulation = simulation_of_states(tuple(best.events), best.states, failure)
    return Replay(
        tuple(best.events),
        simulation,
        tuple(best.failed),
        best.parted,
        best.first,
        best.allocator.settings.ties,
    )


class _Run:
    """One replay of a history as it was."""

    def __init__(
        self, history: History, settings: PyTorchSettings, describe: Callable[[int], Malloc]
    ) -> None:
        self.history, self._describe = history, describe
        space = RecordedSpace(history.segments)
        self.allocator = create(settings, space, history.private)
        self._handles: dict[int, int] = {}
        self.events: list[AllocationEvent] = []
        self.failed: list[Failed] = []
        self.parted, self.first = 0, ""
        self._bases: dict[int, tuple[object, int]] = {}  # expandable: a range, and how far it lay elsewhere
        self._seed(history)
        self.states = States(self.allocator, places=True)
        self._begin(history)
        self._steps = 0

    def _seed(self, history: History) -> None:
        for state in history.seeds:
            for address, handle in self.allocator.adopt(state).items():
                self._handles[history.seeded[address]] = handle

    def _begin(self, history: History) -> None:
        """Put what was there before as the first events."""
        allocated = 0
        for key in history.seeded.values():
            handle = self._handles[key]
            allocated += self.allocator.size_of(handle)
            self.events.append(self._describe(key))
            self.states.put(allocated, history.sizes[key], handle)
        if self.events:
            self.states.delta[0] = self.states.allocated[0]

    def go(self) -> None:
        """Serve every entry."""
        for entry in self.history.entries:
            self._serve(entry)

    def _serve(self, entry: Entry) -> None:
        allocator = self.allocator
        match entry.kind:
            case "take":
                handle = self._handles[entry.key] = allocator.malloc(entry.nbytes, entry.lane)
                self._check(entry, handle)
                self._put(self._describe(entry.key), entry.nbytes, handle)
            case "give" | "hold":
                handle = self._handles[entry.key]
                if entry.kind == "hold":
                    allocator.use(handle, ~entry.key)
                allocator.free(handle)
                self._put(Free(entry.key), -self.history.sizes[entry.key])
            case "loosen":
                allocator.wait(~entry.key)
            case "release":
                self._release(entry)
            case "fail":
                self._fail(entry)
            case "step":
                self._put(Event(f"{self._steps}.step"), 0)
                self._steps += 1

    def _put(self, event: AllocationEvent, requested: int, handle: int | None = None) -> None:
        self.events.append(event)
        self.states.put(self.allocator.allocated, requested, handle)

    def _check(self, entry: Entry, handle: int) -> None:
        """Compare where a block lies with where it lay."""
        address = self.allocator.address_of(handle)
        if isinstance(self.allocator, _Expandable):
            block = self.allocator.block_of(handle)
            place, off = self._bases.get(entry.lane << 1 | block.region.pool.small, (None, 0))
            if place is not block.region:  # a new range, which lies anywhere
                off = entry.address - address
                self._bases[entry.lane << 1 | block.region.pool.small] = block.region, off
            address += off
        if address != entry.address:
            self._part(entry, f"a block of {entry.nbytes:,} bytes lay elsewhere")

    def _release(self, entry: Entry) -> None:
        allocator = self.allocator
        if isinstance(allocator, _Expandable):
            if entry.lane in allocator.private:
                allocator.private.discard(entry.lane)
            allocator.empty_cache()
        elif not allocator.give_back(entry.address):
            self._part(entry, f"a segment of {entry.nbytes:,} bytes was given back")
        if self.states.reserved:
            self.states.reserved[-1] = allocator.reserved

    def _fail(self, entry: Entry) -> None:
        holes = [
            (block.size, state.stream, state.small)
            for state in self.allocator.snapshot()
            for block in state.blocks
            if not block.allocated and not block.pending
        ]
        used, held = self.allocator.allocated, self.allocator.reserved
        ordered = tuple(sorted(holes, reverse=True))
        self.failed.append(Failed(entry, len(self.events), used, held, entry.address, ordered))

    def _part(self, entry: Entry, what: str) -> None:
        self.parted += 1
        self.first = self.first or f"at entry {entry.at:,} of the history {what}"

    def compare(self, last: tuple[SegmentState, ...]) -> None:
        """Compare what is held at the end with the record."""
        ours = [shape(state, self._offset(state)) for state in self.allocator.snapshot()]
        theirs = [shape(state, 0) for state in last]
        if sorted(ours) != sorted(theirs):
            self.parted += 1
            self.first = self.first or "what is held at the end differs"

    def _offset(self, state: SegmentState) -> int:
        return next(
            (
                off
                for region, off in self._bases.values()
                if getattr(region, "address", -1)
                <= state.address
                < getattr(region, "address", 0) + getattr(region, "size", 0)
            ),
            0,
        )

    def failure(self) -> Failure | None:
        """Return the failure that ended the program, if after the last one nothing was taken any more."""
        if not self.failed or any(
            isinstance(event, Malloc) for event in self.events[self.failed[-1].position :]
        ):
            return None
        failed = self.failed[-1]
        malloc, limit = self._describe(failed.entry.key), failed.reserved + failed.free_bytes
        free = tuple(size for size, _, _ in failed.holes)
        return Failure(failed.position, malloc, failed.allocated, failed.reserved, limit, free)


def shape(state: SegmentState, offset: int) -> tuple[object, ...]:
    """Return what counts of a segment: where it lies, and its blocks with whether each is used."""
    blocks = tuple(
        (block.address + offset, block.size, block.allocated, block.pending) for block in state.blocks
    )
    return state.address + offset, state.size, blocks
