"""Peaks of the allocator where the same requests have other sizes, or segments other addresses; cached, since
callers evaluate tens of variants.

A simulation (`timeline.py`) decides. The compiled core (`allocators/pytorch/peaks.py`) gives the same for a
program of which it knows all events, on an allocator without settings; it is asked first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from analyzer.allocators import Allocator
from analyzer.allocators.compiled import FREE, Integers
from analyzer.allocators.driver import AddressSpace
from analyzer.allocators.pytorch.caching import ALLOCATOR_CALLS, PyTorchAllocator
from analyzer.allocators.pytorch.peaks import APART_BYTES, UNIT_BYTES, Peaks, has_fast_path, peaks
from analyzer.allocators.pytorch.settings import PyTorchSettings
from analyzer.graph import Category
from analyzer.runtimes.base import Limit, Prediction
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc, Wait
from analyzer.runtimes.timeline import Alive, Failure, Simulation, iteration_start, simulate

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plain:
    """A program in plain numbers, where only figures are asked for: its requests as the compiled core takes
    them, and every size by number. numbers: of the sizes of the prediction's events, which are what operators
    take for themselves, one request for all that are alike. event_count: how many events the program has."""

    rows: Rows
    sizes: Integers
    numbers: Integers
    event_count: int


class Variants:
    """One program's requests with other sizes, on its runtime's allocator, looked at as they are asked for.
    requests: its own, in their order; sizes: their bytes. event_count: how many events the program has."""

    def __init__(self, prediction: Prediction) -> None:
        self.prediction, self._plain = prediction, prediction.plain
        plain, events = self._plain, self.prediction.events
        self.event_count = len(events) if plain is None else plain.event_count

    @cached_property
    def requests(self) -> list[Malloc]:
        return [event for event in self.prediction.events if isinstance(event, Malloc)]

    @cached_property
    def sizes(self) -> Sizes:
        return tuple([request.nbytes for request in self.requests])

    @cached_property
    def _rows(self) -> Rows | None:
        """Made when other sizes are asked for: what really ran has none, and no allocator to ask."""
        if self._plain is not None:
            return self._plain.rows
        places = itertools.count()
        allocator, limit = self.prediction.allocator(), None
        if isinstance(allocator, PyTorchAllocator) and (nbytes := allocator.settings.limit_bytes) is not None:
            allocator, limit = _unlimited(allocator), Limit(nbytes, True)
        compiled = rows(self.prediction.events, lambda _: next(places), allocator)
        return compiled and compiled._replace(limit=limit)

    @cached_property
    def _plans(self) -> NumberedPlans:
        numbers = range(len(self.requests)) if self._plain is None else self._plain.numbers.tolist()
        numbered = list(zip(numbers, self.requests, strict=True))
        return NumberedPlans(
            {number: request.plan for number, request in numbered if request.plan},
            {number: request.smaller for number, request in numbered if request.smaller},
        )

    def _numbered(self, sizes: Sizes) -> Integers:
        """Return every size by its number in the rows, with these of the requests."""
        own = np.array(sizes, np.int64)
        if self._plain is None:
            return own
        every = self._plain.sizes.copy()
        every[self._plain.numbers] = own
        return every

    def held(self, sizes: Sizes, limit: Limit | None = None) -> tuple[int, bool]:
        """Return the peak bytes the allocator holds with these sizes, and whether every request found room;
        limit: as `Prediction.limited` takes it."""
        _, reserved, served = self._reached(sizes, limit)
        return reserved, served

    def peaks(self, sizes: Sizes) -> tuple[int, int]:
        """Return the peak bytes allocated, and held by the allocator, with these sizes and all the room."""
        allocated, reserved, _ = self._reached(sizes, None)
        return allocated, reserved

    def _reached(self, sizes: Sizes, limit: Limit | None) -> tuple[int, int, bool]:
        """Return the peak bytes allocated and held, and whether every request found room."""
        if self._rows is not None:
            # Sizes that no device has are left to the simulator, whose numbers have no end.
            with suppress(OverflowError):
                peaks = self._rows.peaks(self._numbered(sizes), limit, plans=self._plans)
                return peaks.allocated, peaks.reserved, peaks.served
        simulation = self.simulated(limit, sizes)
        return simulation.peak_allocated, simulation.peak_reserved, simulation.failure is None

    def simulated(self, limit: Limit | None = None, sizes: Sizes | None = None) -> Simulation:
        """Return the simulation under a limit, with these sizes or its own; of plain numbers no more than the
        peaks, what is alive then of the prediction's events, and whether all found room."""
        if self._plain is not None:
            return self._in_numbers(self._plain, limit, self._numbered(sizes or self.sizes))
        if limit is None:
            allocator = self.prediction.allocator()
        else:
            assert self.prediction.limited is not None
            allocator = self.prediction.limited(*limit)
        events = self.prediction.events if sizes is None else self._resized(sizes)
        return simulate(events, allocator, places=sizes is None)

    def _in_numbers(self, plain: Plain, limit: Limit | None, sizes: Integers) -> Simulation:
        peaks = plain.rows.peaks(sizes, limit, plans=self._plans)
        places = {number: place for place, number in enumerate(plain.numbers.tolist())}
        refused = tuple([places[int(plain.rows.events[row, 1])] for row in peaks.refused])
        alive = tuple(
            [
                Alive(self.requests[places[number]], nbytes)
                for number, nbytes in plain.rows.alive(sizes, limit, self._plans, peaks.row)
                if number in places
            ]
        )
        failure = None
        if not peaks.served:
            failure = Failure(-1, Malloc(-1, 0, Category.SCRATCH), peaks.allocated, peaks.reserved, -1)
        return Simulation.of_peaks(peaks.allocated, peaks.reserved, alive, refused, failure)

    def placed(self, space: AddressSpace) -> Peaks | None:
        """Return the peaks with segments at these addresses; None where addresses decide nothing, the
        compiled core does not know the program, or a request is larger than any GPU."""
        if self._rows is None or self._rows.settings.ties != "address":
            return None
        sizes = self._numbered(self.sizes)
        if sizes.max(initial=0) > APART_BYTES:
            return None
        return self._rows.peaks(sizes, None, space)

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
        refused = None if plans is None or not plans.smaller else Refusals(plans, sizes)
        result = self._peaks(self.events, sizes, limit, space, refused)
        return result if refused is None else result._replace(refused=tuple(refused.rows))

    def alive(
        self, sizes: Integers, limit: Limit | None, plans: NumberedPlans, row: int
    ) -> list[tuple[int, int]]:
        """Return the number of each size that is alive after a row, with the bytes of its block."""
        before = self.events[: row + 1]
        held = np.zeros(self.events[:, 0].max(initial=-1) + 1, np.int64)
        self._peaks(before, sizes, limit, None, Refusals(plans, sizes), held)
        requests = before[before[:, 1] >= 0]
        numbers = np.zeros_like(held)
        numbers[requests[:, 0]] = requests[:, 1]
        alive = np.flatnonzero(held)
        return list(zip(numbers[alive].tolist(), (held[alive] * UNIT_BYTES).tolist(), strict=True))

    def _peaks(
        self,
        events: Integers,
        sizes: Integers,
        limit: Limit | None,
        space: AddressSpace | None,
        refused: Refusals | None,
        held: Integers | None = None,
    ) -> Peaks:
        limit = limit or self.limit
        nbytes = None if limit is None else limit.nbytes
        units = -(-sizes // UNIT_BYTES)
        return peaks(events, units, self.setup_count, self.settings, nbytes, space, refused, held)


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
    table: list[tuple[int, int]] = []
    setup_rows = 0
    for position, event in enumerate(events):
        if isinstance(event, Malloc):
            if event.stream or event.outside_pools or event.fails:
                return None
            table.append((places.setdefault(event.key, len(places)), number(event)))
        elif isinstance(event, Free):
            table.append((places.setdefault(event.key, len(places)), FREE))
        elif not isinstance(event, (Event, Wait)) or (
            isinstance(event, Event) and event.name in ALLOCATOR_CALLS
        ):
            return None  # waiting frees nothing: no block is used by another stream
        if position < setup_count:
            setup_rows = len(table)
    return Rows(np.array(table, np.int64).reshape(-1, 2), setup_rows, allocator.settings)
