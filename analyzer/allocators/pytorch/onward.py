"""Bulk replay: millions of plain requests on a live `PyTorchAllocator` in compiled code, after which the
simulator goes on.

The same as `caching.py`, block for block: its blocks are handed to the compiled allocator in plain numbers
(`_best_fit.c`, `Blocks`), whose blocks in the end become the simulator's again. The compiled code must be
there, and know the allocator's settings (`has_fast_path`).

Not modelled in plain numbers: settings; what several streams use at once (`record_stream`), and more than
`_MOST_STREAMS` of them; a request without room, which is `OutOfMemoryError` at once, although the simulator
would first give back what it caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from analyzer.allocators.base import OutOfMemoryError
from analyzer.allocators.compiled import AVAILABLE, Integers
from analyzer.allocators.pytorch.caching import SMALL_SEGMENT_BYTES, PyTorchAllocator
from analyzer.allocators.pytorch.peaks import UNIT_BYTES
from analyzer.allocators.pytorch.segments import Block, Pool, Segment

if AVAILABLE:
    from analyzer.allocators import _best_fit

_MOST_STREAMS = 32


def simulate_on(
    allocator: PyTorchAllocator,
    held: Mapping[int, int],
    parts: Iterable[tuple[Integers, Integers]],
    key_count: int,
) -> dict[int, int]:
    """Simulate the parts one after the other on an allocator that `has_fast_path`; return the handles of the
    keys that are alive in the end.

    held: key -> handle of what is alive now and the parts may give back. parts: (events, sizes in bytes),
    events being rows of (key, which size, stream) and (key, -1, stream), as `compiled.py` has the first two.
    key_count: every key is below it. Raises OutOfMemoryError: the allocator is then as it was.
    """
    return _Plain(allocator, held, key_count).simulate(parts)


def has_fast_path(allocator: PyTorchAllocator, held: Iterable[int] = ()) -> bool:
    """Return whether the compiled allocator may continue this one. held: handles that may be freed."""
    streams = {segment.pool.stream for segment in allocator._segments.values()}
    used = (block for handle in held if (block := allocator._live[handle]) is not None and block.users)
    settings = ("large_segment_size_mb", "ties", "limit_bytes", "device_total_bytes")
    return (
        AVAILABLE
        and allocator.in_plain_numbers
        and allocator.settings.default_but_for(*settings)
        and allocator.settings.ties != "block"
        and not allocator._waiting
        and len(streams) < _MOST_STREAMS
        and not any(used)
    )


class _Plain:
    """One allocator's state as plain numbers during a long simulation. A segment's base is its address, or a
    number that keeps the order in which segments serve."""

    def __init__(self, allocator: PyTorchAllocator, held: Mapping[int, int], key_count: int) -> None:
        self._allocator, self._oldest_first = allocator, allocator.settings.ties == "segment"
        segments = list(allocator._segments.values())
        segments.sort(key=lambda segment: segment.number if self._oldest_first else segment.address)
        # base -> segment, in units. Blocks of other holders than the caller have keys behind the caller's.
        self._segments: dict[int, Segment] = {}
        self._base = 0
        # stream -> its number in plain numbers.
        self._streams = {0: 0}
        self._handles = {handle: key for key, handle in held.items()}
        self._others = key_count
        for handle, block in allocator._live.items():
            if block is not None and handle not in self._handles:
                self._handles[handle] = self._others
                self._others += 1
        keys = {id(allocator._live[handle]): key for handle, key in self._handles.items()}
        self._key_count = key_count
        rows = [row for segment in segments for row in self._rows(segment, keys)]
        large = allocator.settings.large_segment_bytes // UNIT_BYTES
        self._blocks = _best_fit.Blocks(np.array(rows, np.int64).reshape(-1, 5), self._others, large)

    def _rows(self, segment: Segment, keys: Mapping[int, int]) -> list[tuple[int, int, int, int, int]]:
        """Return a segment's blocks: (address in units, units, pool, whether first, key or -1 if free)."""
        shift = self._placed(segment) - segment.address // UNIT_BYTES
        return [
            (
                block.address // UNIT_BYTES + shift,
                block.size // UNIT_BYTES,
                2 * self._stream(segment.pool.stream) + (not segment.pool.small),
                int(block is segment.first),
                keys[id(block)] if block.used else -1,
            )
            for block in segment.first.onwards()
        ]

    def _stream(self, stream: int) -> int:
        return self._streams.setdefault(stream, len(self._streams))

    def _placed(self, segment: Segment) -> int:
        """Return the base of a segment, and remember the segment by it."""
        base = self._base if self._oldest_first else segment.address // UNIT_BYTES
        self._base += segment.size // UNIT_BYTES
        self._segments[base] = segment
        return base

    def _take(self, units: int, number: int) -> int:
        """Take a new segment, as `caching.py` does."""
        allocator, size = self._allocator, units * UNIT_BYTES
        if not allocator._has_room(size):
            bounds = [bound for bound in (allocator._limit, allocator._allowed) if bound is not None]
            raise OutOfMemoryError(size, allocator.allocated, allocator.reserved, min(bounds), ())
        stream = next(stream for stream, stream_number in self._streams.items() if stream_number == number)
        # A large one has at least `large_segment_bytes`, which is more.
        pool = Pool(size == SMALL_SEGMENT_BYTES, stream)
        segment = Segment(allocator._space.take(size), size, pool, number=len(allocator.segment_events))
        allocator._segments[segment.address] = segment
        allocator._reserve("segment_alloc", segment.address, size)
        return self._placed(segment)

    def simulate(self, parts: Iterable[tuple[Integers, Integers]]) -> dict[int, int]:
        """Simulate the parts; see `simulate_on`."""
        allocator = self._allocator
        requested = np.zeros(self._key_count, np.int64)
        for handle, key in self._handles.items():
            if key < self._key_count and (block := allocator._live[handle]) is not None:
                requested[key] = block.requested
        self._requested = self._peak_requested = allocator.requested
        calls, peak = len(allocator.segment_events), allocator.peak_reserved
        try:
            for events, sizes in parts:
                numbered = events.copy()
                for stream in np.unique(events[:, 2]).tolist():
                    numbered[events[:, 2] == stream, 2] = self._stream(stream)
                self._blocks.simulate(numbered, -(-sizes // UNIT_BYTES), self._take)
                self._count_requested(events, sizes, requested)
        except Exception:
            self._undo(calls, peak)
            raise
        return self._returned(requested)

    def _count_requested(self, events: Integers, sizes: Integers, requested: Integers) -> None:
        """Update `requested` and its peak from each event. A key's requests and frees alternate, so a free
        returns the key's previous request."""
        order = np.argsort(events[:, 0], kind="stable")
        keys, which, _ = events[order].T
        nbytes = np.where(which >= 0, sizes[which], 0)
        before = np.where(np.r_[True, keys[1:] != keys[:-1]], requested[keys], np.r_[0, nbytes[:-1]])
        change = np.empty_like(nbytes)
        change[order] = np.where(which >= 0, nbytes, -before)
        last = np.r_[keys[1:] != keys[:-1], True]
        requested[keys[last]] = nbytes[last]
        after = self._requested + np.cumsum(change)
        self._requested = int(after[-1])
        self._peak_requested = max(self._peak_requested, int(after.max()))

    def _undo(self, calls: int, peak_reserved: int) -> None:
        """Free segments taken since driver call number `calls`, the last one first."""
        allocator = self._allocator
        for event in reversed(allocator.segment_events[calls:]):
            segment = allocator._segments.pop(event.address)
            allocator._space.give(segment.address, segment.size)
            allocator.reserved -= segment.size
        del allocator.segment_events[calls:]
        allocator.peak_reserved = peak_reserved

    def _returned(self, sizes_by_key: Integers) -> dict[int, int]:
        """Write the plain state back to the simulator; return the handles of the caller's keys."""
        allocator = self._allocator
        requested = {id(block): block.requested for block in allocator._live.values() if block is not None}
        users = {id(block): block.users for block in allocator._live.values() if block is not None}
        before = {key: allocator._live[handle] for handle, key in self._handles.items()}
        handles = {key: handle for handle, key in self._handles.items() if key >= self._key_count}
        ours: dict[int, int] = {}
        for handle, key in self._handles.items():
            if key < self._key_count:
                del allocator._live[handle]
        allocator._pools.clear()
        allocator.allocated = allocator.requested = 0
        for segment, rows in self._by_segment():
            last: Block | None = None
            for base, units, key in rows:
                address = segment.address + base * UNIT_BYTES
                block = Block(address, units * UNIT_BYTES, segment)
                block.previous = last
                if last is None:
                    segment.first = block
                else:
                    last.next = block
                last = block
                if key < 0:
                    allocator._insert(block)
                    continue
                block.used, block.users = True, ()
                if key in handles:
                    block.users = users[id(before[key])]
                    block.requested = requested[id(before[key])]
                    allocator._live[handles[key]] = block
                else:
                    block.requested = int(sizes_by_key[key])
                    ours[key] = allocator._malloc_count
                    allocator._live[allocator._malloc_count] = block
                    allocator._malloc_count += 1
                allocator.allocated += block.size
                allocator.requested += block.requested
        allocator.peak_allocated = max(allocator.peak_allocated, self._blocks.peak * UNIT_BYTES)
        allocator.peak_requested = max(allocator.peak_requested, self._peak_requested)
        return ours

    def _by_segment(self) -> Iterator[tuple[Segment, list[tuple[int, int, int]]]]:
        """Yield each segment with its blocks in address order: (offset in units, size in units, key)."""
        rows = np.frombuffer(self._blocks.rows(), np.int64).reshape(-1, 5)
        rows = rows[np.argsort(rows[:, 0])]
        bases = sorted(self._segments)
        places = np.searchsorted(bases, rows[:, 0], side="right") - 1
        for place, base in enumerate(bases):
            part = rows[places == place]
            yield (
                self._segments[base],
                list(
                    zip((part[:, 0] - base).tolist(), part[:, 1].tolist(), part[:, 4].tolist(), strict=True)
                ),
            )
