"""A recorded history under other settings of the allocator: its peaks.

1. The same requests come in the same order; segments lie at the recorded addresses as long as the same are
   allocated, then where the driver's rules put them (`allocators/driver.py`), `empty_cache` is called where
   it was, and the allocator gives its cache back by itself where a limit makes it.
2. Long rows of plain requests go through the compiled allocator (`allocators/pytorch/onward.py`), where it is
   there and knows the settings; a row in which one finds no room goes through the simulator instead.
3. Settings without effect are left out first: `roundup_power2_divisions` once sizes are rounded by it, and
   `max_split_size_mb` where every segment is smaller.

Not modelled: a program that continues differently where it finds room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from analyzer.allocators.base import OutOfMemoryError
from analyzer.allocators.compiled import Integers
from analyzer.allocators.pytorch.caching import (
    MIN_LARGE_BYTES,
    ROUND_LARGE_BYTES,
    SMALL_BYTES,
    SMALL_SEGMENT_BYTES,
    PyTorchAllocator,
)
from analyzer.allocators.pytorch.onward import has_fast_path, simulate_on
from analyzer.allocators.pytorch.settings import PyTorchSettings
from analyzer.recordings.history import Entry, History
from analyzer.recordings.replay import RecordedSpace, create

_PLAIN = ("take", "give")
_LEAST_PLAIN = 500  # shorter rows are not worth handing over


@dataclass(frozen=True, slots=True)
class Outcome:
    """A history's peaks under settings. stopped: the request that failed (-1: all were served). saved:
    whether the first request that failed in the record is served, None if none did."""

    peak_allocated: int
    peak_reserved: int
    stopped: int = -1
    saved: bool | None = None
    retries: int = 0


class Outcomes:
    """The outcomes of one history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._rows = tuple(_plain_rows(history.entries))
        self._sizes = np.array(history.sizes, np.int64)

    def under(self, settings: PyTorchSettings) -> Outcome:
        """Return what the history takes under settings, with the limit these have."""
        return _Serving(self._history, settings, self._rows, self._sizes).outcome()


def segment_bytes(nbytes: int, settings: PyTorchSettings) -> int:
    """Return what the driver is asked for, for a request that no free block serves."""
    if nbytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if nbytes < MIN_LARGE_BYTES:
        return settings.large_segment_bytes
    return -(-nbytes // ROUND_LARGE_BYTES) * ROUND_LARGE_BYTES


def outcome(history: History, settings: PyTorchSettings) -> Outcome:
    """Return what the history takes under settings, with the limit these have."""
    return Outcomes(history).under(settings)


@dataclass(frozen=True, slots=True)
class _Row:
    """Entries `start` to `stop`, all of them requests and what gives them back, in plain numbers: (key, key
    or -1, lane)."""

    start: int
    stop: int
    events: Integers


def _plain_rows(entries: tuple[Entry, ...]) -> Iterator[_Row]:
    start = 0
    others = [at for at, entry in enumerate(entries) if entry.kind not in _PLAIN and entry.kind != "step"]
    for stop in (*others, len(entries)):
        if stop - start >= _LEAST_PLAIN:
            rows = [
                (entry.key, entry.key if entry.kind == "take" else -1, entry.lane)
                for entry in entries[start:stop]
                if entry.kind != "step"
            ]
            if rows:
                yield _Row(start, stop, np.array(rows, np.int64))
        start = stop + 1


class _Serving:
    """One history on one allocator."""

    def __init__(
        self, history: History, settings: PyTorchSettings, rows: tuple[_Row, ...], sizes: Integers
    ) -> None:
        self._history, self._rows = history, rows
        self._sizes = sizes if settings.roundup_power2_divisions is None else _rounded(settings, sizes)
        settings = replace(settings, roundup_power2_divisions=None)
        if settings.max_split_bytes is not None and self._largest(settings) < settings.max_split_bytes:
            settings = replace(settings, max_split_size_mb=None)
        self._space = RecordedSpace(history.segments)
        self._allocator = create(settings, self._space, history.private)
        self._handles: dict[int, int] = {}
        self._stopped = -1
        self._saved: bool | None = None

    def _largest(self, settings: PyTorchSettings) -> int:
        """Return the bytes of the largest segment there can be."""
        largest = segment_bytes(int(self._sizes.max(initial=0)), settings)
        return max(largest, settings.large_segment_bytes, *(state.size for state in self._history.seeds), 0)

    def outcome(self) -> Outcome:
        allocator, entries, at = self._allocator, self._history.entries, 0
        try:
            for state in self._history.seeds:
                for address, handle in allocator.adopt(state).items():
                    self._handles[self._history.seeded[address]] = handle
            for row in self._rows:
                self._each(entries[at : row.start])
                if not self._together(row):
                    self._each(entries[row.start : row.stop])
                at = row.stop
            self._each(entries[at:])
        except OutOfMemoryError:
            stopped, saved = self._stopped, self._saved or False
            return Outcome(
                allocator.peak_allocated, allocator.peak_reserved, stopped, saved, allocator.retries
            )
        return Outcome(allocator.peak_allocated, allocator.peak_reserved, -1, self._saved, allocator.retries)

    def _together(self, row: _Row) -> bool:
        """Serve a row in plain numbers; False if that cannot be, and nothing was served."""
        if not has_fast_path(self._allocator, self._handles.values()):
            return False
        before = self._space.copy()
        try:
            self._handles = simulate_on(
                self._allocator, self._handles, [(row.events, self._sizes)], len(self._sizes)
            )
        except (OutOfMemoryError, OverflowError, ValueError):  # without room, or sizes that no device has
            self._space = self._allocator._space = before
            return False
        return True

    def _each(self, entries: tuple[Entry, ...]) -> None:
        """Serve entries one by one. Raises OutOfMemoryError, with `_stopped` the request without room."""
        allocator, handles, sizes = self._allocator, self._handles, self._sizes
        for entry in entries:
            self._stopped = entry.key
            match entry.kind:
                case "take":
                    handles[entry.key] = allocator.malloc(int(sizes[entry.key]), entry.lane)
                case "give" | "hold":
                    handle = handles.pop(entry.key, None)  # none is left of a request of no bytes
                    if handle is None:
                        continue
                    if entry.kind == "hold":
                        allocator.use(handle, ~entry.key)
                    allocator.free(handle)
                case "loosen":
                    allocator.wait(~entry.key)
                case "release":
                    allocator.private.discard(entry.lane)
                case "empty":
                    allocator.empty_cache()
                case "fail":
                    served = _served(allocator, int(sizes[entry.key]), entry.lane)
                    self._saved = served if self._saved is None else self._saved


def _rounded(settings: PyTorchSettings, sizes: Integers) -> Integers:
    """Return the sizes as the settings round them; what is rounded so stays as it is."""
    rounded = PyTorchAllocator(settings).rounded
    return np.array([rounded(nbytes) for nbytes in sizes.tolist()], np.int64)


def _served(allocator: PyTorchAllocator, nbytes: int, lane: int) -> bool:
    """Return whether a request that failed finds room; it is given back at once."""
    try:
        allocator.free(allocator.malloc(nbytes, lane))
    except OutOfMemoryError:
        return False
    return True
