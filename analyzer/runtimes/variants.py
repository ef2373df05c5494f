"""What the allocator holds at its peak where the same requests have other sizes, or segments other addresses,
for those who ask it tens of times.

What a simulation says (`timeline.py`) is what counts. The compiled core (`allocators/pytorch/peaks.py`) says
the same of a program that it knows all events of, on an allocator without settings; it is asked first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from analyzer.allocators import Allocator
from analyzer.allocators.compiled import FREE, Integers
from analyzer.allocators.driver import AddressSpace
from analyzer.allocators.pytorch.caching import HEEDED, PyTorchAllocator
from analyzer.allocators.pytorch.peaks import APART_BYTES, UNIT_BYTES, Peaks, has_fast_path, peaks
from analyzer.allocators.pytorch.settings import PyTorchSettings
from analyzer.runtimes.base import Limit, Prediction
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc, Wait
from analyzer.runtimes.timeline import iteration_start, simulate

Sizes = tuple[int, ...]


class Variants:
    """One program's requests with other sizes, on its runtime's allocator, looked at as they are asked for.
    requests: its own, in their order; sizes: their bytes."""

    def __init__(self, prediction: Prediction) -> None:
        self.prediction = prediction

    @cached_property
    def requests(self) -> list[Malloc]:
        return [event for event in self.prediction.events if isinstance(event, Malloc)]

    @cached_property
    def sizes(self) -> Sizes:
        return tuple([request.nbytes for request in self.requests])

    @cached_property
    def _rows(self) -> Rows | None:
        """Made when other sizes are asked for: what really ran has none, and no allocator to ask."""
        places = itertools.count()
        allocator, limit = self.prediction.allocator(), None
        if isinstance(allocator, PyTorchAllocator) and (nbytes := allocator.settings.limit_bytes) is not None:
            allocator, limit = _unlimited(allocator), Limit(nbytes, True)
        found = rows(self.prediction.events, lambda _: next(places), allocator)
        return found and found._replace(limit=limit)

    @cached_property
    def _plans(self) -> NumberedPlans:
        named = {place: request.plan for place, request in enumerate(self.requests) if request.plan}
        smaller = {place: request.smaller for place, request in enumerate(self.requests) if request.smaller}
        return NumberedPlans(named, smaller)

    def held(self, sizes: Sizes, limit: Limit | None = None) -> tuple[int, bool]:
        """Return the peak bytes the allocator holds with these sizes, and whether every request found room;
        limit: as `Prediction.limited` takes it."""
        if self._rows is not None:
            found = self._rows.peaks(np.array(sizes, np.int64), limit, plans=self._plans)
            return found.reserved, found.served
        allocator = self.prediction.allocator()
        if limit is not None:
            assert self.prediction.limited is not None
            allocator = self.prediction.limited(*limit)
        simulation = simulate(self._resized(sizes), allocator)
        return simulation.peak_reserved, simulation.failure is None

    def placed(self, space: AddressSpace) -> Peaks | None:
        """Return the peaks with segments at these addresses; None where addresses decide nothing, the
        compiled core does not know the program, or a request is larger than any GPU."""
        if self._rows is None or self._rows.settings.ties != "address":
            return None
        if max(self.sizes, default=0) > APART_BYTES:
            return None
        return self._rows.peaks(np.array(self.sizes, np.int64), None, space)

    def _resized(self, sizes: Sizes) -> Iterator[AllocationEvent]:
        remaining = iter(sizes)
        for event in self.prediction.events:
            if isinstance(event, Malloc):
                nbytes = next(remaining)
                yield event if event.nbytes == nbytes else replace(event, nbytes=nbytes)
            else:
                yield event


class Rows(NamedTuple):
    """Requests as the compiled core takes them, each with the number of its size, of which the first
    `setup_count` come before the first iteration; settings, limit: the allocator's own."""

    events: Integers
    setup_count: int
    settings: PyTorchSettings
    limit: Limit | None = None

    def peaks(
        self,
        sizes: Integers,
        limit: Limit | None,
        space: AddressSpace | None = None,
        plans: NumberedPlans | None = None,
    ) -> Peaks:
        """Return the peaks with these sizes in bytes, by number. limit: in place of the allocator's own;
        space: where segments go; plans: those that are asked for less where there is no room."""
        units = -(-sizes // UNIT_BYTES)
        limit = limit or self.limit
        nbytes = None if limit is None else limit.nbytes
        refused = None if plans is None or not plans.smaller else Refusals(plans, sizes)
        found = peaks(self.events, units, self.setup_count, self.settings, nbytes, space, refused)
        return found if refused is None else found._replace(refused=tuple(refused.rows))


class NumberedPlans:
    """Plans by the number of the size they ask for, and what they ask for in its place (`plans.py`)."""

    def __init__(self, plans: Mapping[int, str], smaller: Mapping[int, Sequence[int]]) -> None:
        self.smaller = smaller
        self._plans = plans
        self._numbers: dict[str, list[int]] = {}
        for number, plan in plans.items():
            self._numbers.setdefault(plan, []).append(number)

    def alike(self, number: int) -> Sequence[int]:
        """Return the numbers of all sizes that the same plan asks for; none without a plan."""
        return self._numbers[self._plans[number]] if number in self._plans else ()


class Refusals:
    """Requests without room in one simulation, each of which goes on to less as in `Plans.served`. rows: of
    these requests; tries: how often one had no room."""

    def __init__(self, plans: NumberedPlans, sizes: Integers) -> None:
        self.rows: list[int] = []
        self.tries = 0
        self._plans, self._sizes, self._running = plans, sizes, dict[int, int]()
        self._others: Iterator[int] = iter(())

    def __call__(self, number: int, row: int) -> tuple[int, Sequence[int]] | None:
        """Return what is asked for next, as `Refused`."""
        if row not in self.rows[-1:]:
            running = self._running.get(number, int(self._sizes[number]))
            self._others = (size for size in self._plans.smaller.get(number, ()) if size < running)
        size = next(self._others, None)
        if size is None:
            return None
        self.tries += 1
        if row not in self.rows[-1:]:
            self.rows.append(row)
        alike = self._plans.alike(number)
        self._running |= dict.fromkeys(alike, size)
        return size, alike


def _unlimited(allocator: PyTorchAllocator) -> PyTorchAllocator:
    """Return an allocator with the same settings on a device without an end."""
    return PyTorchAllocator(replace(allocator.settings, limit_bytes=None, device_total_bytes=None))


def rows(
    events: Sequence[AllocationEvent], number: Callable[[Malloc], int], allocator: Allocator
) -> Rows | None:
    """Return the events as the compiled core takes them; None if it does not know this allocator, which is
    unused, or one of the events."""
    if not isinstance(allocator, PyTorchAllocator) or not has_fast_path(allocator):
        return None
    setup_count = iteration_start(tuple(events)) + 1
    places: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    setup_rows = 0
    for position, event in enumerate(events):
        if isinstance(event, Malloc):
            if event.stream or event.apart or event.fails:
                return None
            found.append((places.setdefault(event.key, len(places)), number(event)))
        elif isinstance(event, Free):
            found.append((places.setdefault(event.key, len(places)), FREE))
        elif not isinstance(event, (Event, Wait)) or (isinstance(event, Event) and event.name in HEEDED):
            return None  # waiting frees nothing: no block is used by another stream
        if position < setup_count:
            setup_rows = len(found)
    return Rows(np.array(found, np.int64).reshape(-1, 2), setup_rows, allocator.settings)
