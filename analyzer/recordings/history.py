"""From a device's record to what its program asked of the allocator: events of one order, for any settings.

1. **Pools.** A block's pool is that of the segment it lies in: its stream and, for a graph or a pool of the
   user's, the pool's name, as the segments at the end have it. To an allocator each is a stream of its own.
2. **Freeing.** `free_requested` gives a block back; where `free_completed` does not follow at once, another
   stream (or a graph that is captured) kept it, until then.
3. **The cache.** Segments given back before a request takes a new one, with the stack of that request, went
   because it found no room, or as garbage; all others by `empty_cache`. Without stacks, those that a request
   for a new segment follows at once count as the first, unless there was room for it: the program held as
   much and the new segment at another time.
4. **Lost beginnings.** A ring buffer keeps its last entries. A block that is given back without having been
   taken, or is there at the end without, was there at the beginning; so was a segment. Its size is known
   where it is there at the end; else it is what was asked for, rounded up, with the rest of its hole where
   that would not have been split off.

Source: `c10/cuda/CUDACachingAllocator.cpp` (`record_trace` and its callers), PyTorch 2.1 to 2.13.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from analyzer.allocators.pytorch.caching import MIN_BLOCK_BYTES, SMALL_BYTES
from analyzer.allocators.pytorch.segments import BlockState, SegmentState
from analyzer.recordings.snapshot import DEFAULT_POOL, MIB, DeviceRecord, Snapshot
from analyzer.recordings.trace import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    MAP,
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    UNMAP,
    Trace,
)

_TAKES, _GIVES = (SEGMENT_ALLOC, MAP), (SEGMENT_FREE, UNMAP)

# take: a request. give: it is given back. hold: it is given back, and kept until "loosen". release: a segment
# goes back to the driver. empty: the releases before it were a call of `empty_cache`. fail: a request found
# no room. step: an optimizer step is over.
Kind = Literal["take", "give", "hold", "loosen", "release", "empty", "fail", "step"]


class Entry(NamedTuple):
    """One thing that happened. at: its place in the trace. key: of the request, counted from 0 as they come
    (those that were there before the trace first). address, nbytes: of the request, or what was given back;
    of "fail" the bytes the device had free. lane: the pool, as a number; 0 is the default stream's."""

    kind: Kind
    at: int
    key: int = -1
    address: int = 0
    nbytes: int = 0
    lane: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """The program's requests. seeds: segments that were there before the trace, with their blocks; seeded:
    the key of each block in use then, by its address. private: lanes of graphs' and users' pools. segments:
    (address, bytes) in the order of allocation. peak_held: their largest sum, by the record alone.
    unsure_bytes: of blocks there before, whose sizes are not recorded. gaps: requests at an address still in
    use: the recording had paused. stacks: of each key."""

    entries: tuple[Entry, ...]
    seeds: tuple[SegmentState, ...]
    seeded: dict[int, int]
    private: frozenset[int]
    segments: tuple[tuple[int, int], ...]
    peak_held: int
    unsure_bytes: int = 0
    gaps: int = 0
    stacks: tuple[int, ...] = field(default=())
    categories: tuple[str, ...] = field(default=())
    sizes: tuple[int, ...] = field(default=())  # bytes asked for by each key

    @property
    def has_beginning(self) -> bool:
        """Whether the trace begins with the allocator empty."""
        return not self.seeds


def history_of(record: DeviceRecord, snapshot: Snapshot) -> History:
    """Return what the program did on a device."""
    trace = record.trace or Trace(snapshot.stacks)
    return _Reader(record, trace, snapshot).history()


class _Segments:
    """Segments by address, to find the one around an address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._of: dict[int, tuple[int, int]] = {}  # start -> (bytes, lane)

    def add(self, address: int, nbytes: int, lane: int) -> None:
        if address not in self._of:
            insort(self._starts, address)
        self._of[address] = nbytes, lane

    def remove(self, address: int) -> None:
        if self._of.pop(address, None) is not None:
            del self._starts[bisect_right(self._starts, address) - 1]

    def lane(self, address: int) -> int | None:
        """Return the lane of the segment around an address, None without one."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        nbytes, lane = self._of[self._starts[at]]
        return lane if address < self._starts[at] + nbytes else None


class _Reader:
    """Goes through a trace twice: once for what was there before it, once for what happened."""

    def __init__(self, record: DeviceRecord, trace: Trace, snapshot: Snapshot) -> None:
        self._record, self._trace = record, trace
        self._lanes: dict[tuple[int, tuple[int, int]], int] = {(0, DEFAULT_POOL): 0}
        self._stream_of = [0]
        self._step_times = [mark.time for mark in snapshot.step_ends]
        self._now = _Segments()
        self._last = _Segments()  # at the end, whose pools are known
        for segment in record.segments:
            state = segment.state
            self._last.add(state.address, state.size, self._lane(state.stream, segment.pool))
        self._stacks: list[int] = []
        self._categories: list[str] = []
        self._sizes: list[int] = []
        self._gaps = self._unsure = self._peak = 0

    def _lane(self, stream: int, pool: tuple[int, int] = DEFAULT_POOL) -> int:
        if (stream, pool) not in self._lanes:
            self._lanes[stream, pool] = len(self._lanes)
            self._stream_of.append(stream)
        return self._lanes[stream, pool]

    def history(self) -> History:
        before = self._before()
        seeds = self._seeds(before)
        self._peak = self._peak_held(seeds)
        held = sum(state.size for state in seeds)
        seeded: dict[int, int] = {}
        for segment in seeds:
            for block in segment.blocks:
                if block.allocated or block.pending:
                    seeded[block.address] = self._new(*before[block.address][1:])
        entries = tuple(self._entries(dict(seeded), held))
        private = frozenset(lane for (_, pool), lane in self._lanes.items() if pool != DEFAULT_POOL)
        trace = self._trace
        segments = tuple(
            (trace.address[at], trace.size[at]) for at, action in enumerate(trace.action) if action in _TAKES
        )
        return History(
            entries,
            seeds,
            seeded,
            private,
            segments,
            self._peak,
            self._unsure,
            self._gaps,
            tuple(self._stacks),
            tuple(self._categories),
            tuple(self._sizes),
        )

    def _peak_held(self, seeds: tuple[SegmentState, ...]) -> int:
        trace = self._trace
        held = peak = sum(state.size for state in seeds)
        for action, size in zip(trace.action, trace.size, strict=True):
            held += size if action in _TAKES else -size if action in _GIVES else 0
            peak = max(peak, held)
        return peak

    def _new(self, nbytes: int, stack: int, category: str) -> int:
        self._stacks.append(stack)
        self._categories.append(category)
        self._sizes.append(nbytes)
        return len(self._stacks) - 1

    def _before(self) -> dict[int, tuple[int, int, int, str]]:
        """Return the blocks in use before the trace by address: size of the block (0: not known), bytes asked
        for, stack, category."""
        trace = self._trace
        blocks: dict[int, tuple[int, int, int, str]] = {}
        allocated: set[int] = set()
        freed: set[int] = set()
        for at, action in enumerate(trace.action):
            address = trace.address[at]
            if action == ALLOC:
                allocated.add(address)
                freed.discard(address)
            elif action in (FREE_REQUESTED, FREE_COMPLETED):
                if address not in allocated and address not in freed and address not in blocks:
                    category = trace.categories[trace.category[at]]
                    blocks[address] = 0, trace.size[at], trace.stack[at], category
                if action == FREE_COMPLETED:
                    freed.add(address)
                    allocated.discard(address)
        for segment in self._record.segments:
            for block, stack in zip(segment.state.blocks, segment.stacks, strict=True):
                in_use = block.allocated or block.pending
                if (
                    in_use
                    and block.address not in allocated
                    and block.address not in freed
                    and block.address not in blocks
                ):
                    blocks[block.address] = block.size, block.requested, stack, ""
        return blocks

    def _seeds(self, before: dict[int, tuple[int, int, int, str]]) -> tuple[SegmentState, ...]:
        """Return the segments there before the trace, with blocks that tile them."""
        trace = self._trace
        states: dict[int, SegmentState] = {}
        new = _Segments()  # since the trace began; of expandable ranges any part counts, also once unmapped
        for at, action in enumerate(trace.action):
            address, size = trace.address[at], trace.size[at]
            if action in _TAKES:
                new.add(address, size, 0)
            elif action in _GIVES and new.lane(address) is None and address not in states:
                lane = self._lane(trace.stream[at])
                states[address] = SegmentState(address, size, size == 2 * MIB, action == UNMAP, (), lane)
            elif action == SEGMENT_FREE:
                new.remove(address)
        for segment in self._record.segments:
            state = segment.state
            if new.lane(state.address) is None and state.address not in states:
                states[state.address] = replace(
                    state, stream=self._lane(state.stream, segment.pool), blocks=()
                )
        starts = sorted(before)
        return tuple(
            replace(state, blocks=tuple(self._tiled(state, before, starts)))
            for _, state in sorted(states.items())
        )

    def _tiled(
        self, state: SegmentState, before: dict[int, tuple[int, int, int, str]], starts: list[int]
    ) -> Iterator[BlockState]:
        """Yield the blocks of a segment before the trace, free ones between those in use."""
        at, end = state.address, state.address + state.size
        place = bisect_right(starts, state.address - 1)
        while place < len(starts) and starts[place] < end:
            start = starts[place]
            place += 1
            if start < at:  # overlaps what was rounded up
                continue
            if start > at:
                yield BlockState(at, start - at, 0, False)
            known, requested, _, _ = before[start]
            upto = starts[place] if place < len(starts) and starts[place] < end else end
            size = known or self._size(requested, upto - start, state)
            yield BlockState(start, size, requested, True)
            at = start + size
        if at < end:
            yield BlockState(at, end - at, 0, False)

    def _size(self, requested: int, room: int, state: SegmentState) -> int:
        """Return the bytes of a block whose size nothing says, with `room` up to the next one."""
        size = min(max(-(-requested // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES, MIN_BLOCK_BYTES), room)
        rest = room - size
        splits = rest >= MIN_BLOCK_BYTES if state.small or state.expandable else rest > SMALL_BYTES
        if rest and not splits:
            self._unsure += rest
            return room
        return size

    def _entries(self, live: dict[int, int], held: int) -> Iterator[Entry]:
        """Yield what happened. live: the keys of blocks in use, by address. held: bytes held at first."""
        trace = self._trace
        kept: dict[int, int] = {}  # by address: keys of blocks given back, which somebody still uses
        steps = [*self._step_times, float("inf")]
        passed = 0
        before = held  # the first of a row of segments that go
        for at, action in enumerate(trace.action):
            while trace.time[at] > steps[passed]:
                yield Entry("step", at)
                passed += 1
            if action == ALLOC:
                yield from self._requested(at, live, kept)
            elif action in (FREE_REQUESTED, FREE_COMPLETED):
                yield from self._given(at, live, kept)
            elif action in _TAKES:
                address, size = trace.address[at], trace.size[at]
                self._now.add(address, size, self._known_lane(address, trace.stream[at]))
                held += size
            elif action in _GIVES:
                if not at or trace.action[at - 1] not in _GIVES:
                    before = held
                held -= trace.size[at]
                yield self._released(at)
                if self._is_last_of_call(at, before):
                    yield Entry("empty", at)
            elif action == OOM:
                key = self._new(trace.size[at], trace.stack[at], "")
                lane = self._lane(trace.stream[at])
                yield Entry("fail", at, key, trace.address[at], trace.size[at], lane)
        if len(trace):
            yield from (Entry("step", len(trace)) for _ in steps[passed:-1])

    def _requested(self, at: int, live: dict[int, int], kept: dict[int, int]) -> Iterator[Entry]:
        trace, address = self._trace, self._trace.address[at]
        if address in live or address in kept:
            self._gaps += 1
            kind: Kind = "loosen" if address in kept else "give"
            yield Entry(kind, at, (kept if address in kept else live).pop(address), address)
        lane = self._lane_at(address, trace.stream[at])
        key = self._new(trace.size[at], trace.stack[at], trace.categories[trace.category[at]])
        live[address] = key
        yield Entry("take", at, key, address, trace.size[at], lane)

    def _given(self, at: int, live: dict[int, int], kept: dict[int, int]) -> Iterator[Entry]:
        trace, address = self._trace, self._trace.address[at]
        if trace.action[at] == FREE_COMPLETED:
            if address in kept:
                yield Entry("loosen", at, kept.pop(address), address)
            elif address in live:
                yield Entry("give", at, live.pop(address), address)
        elif address in live:
            key = live.pop(address)
            follows = at + 1 < len(trace) and trace.action[at + 1] == FREE_COMPLETED
            if follows and trace.address[at + 1] == address:
                yield Entry("give", at, key, address)
            else:
                kept[address] = key
                yield Entry("hold", at, key, address)

    def _released(self, at: int) -> Entry:
        trace, address = self._trace, self._trace.address[at]
        lane = self._lane_at(address, trace.stream[at])
        self._now.remove(address)
        return Entry("release", at, address=address, nbytes=trace.size[at], lane=lane)

    def _is_last_of_call(self, at: int, held: int) -> bool:
        """Return whether a segment is the last that a call of `empty_cache` gave back. held: bytes before the
        first of them."""
        trace = self._trace
        if at + 1 == len(trace):
            return True
        if trace.action[at + 1] in _GIVES and trace.stack[at + 1] == trace.stack[at]:
            return False
        if trace.action[at + 1] not in (*_TAKES, OOM):
            return True
        if trace.stack[at] != trace.stack[at + 1]:
            return True
        # Without stacks: a request that found no room, unless the program held as much at another time.
        no_stack = not trace.stack[at] and trace.action[at + 1] != OOM
        return no_stack and held + trace.size[at + 1] <= self._peak

    def _known_lane(self, address: int, stream: int) -> int:
        """Return the lane of a segment: that of the one which lies there at the end, if it is of the
        stream."""
        lane = self._last.lane(address)
        return self._lane(stream) if lane is None or self._stream_of[lane] != stream else lane

    def _lane_at(self, address: int, stream: int) -> int:
        lane = self._now.lane(address)
        return self._known_lane(address, stream) if lane is None else lane
