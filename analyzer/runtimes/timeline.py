"""Simulates allocation events on an allocator and remembers what happened, event by event.

1. Events run in order on the allocator given; its own rules decide block sizes and reserved memory. A request
   of zero bytes reaches the allocator, which has no block for it. Requests `outside_pools` are reserved past
   them. When a named event is over the allocator is told so, after the event's own figures have
   been taken.
2. An **iteration** N is everything after the last named event before its first "N.input". Peaks start anew
   there, from the bytes then in use, as `torch.cuda.reset_peak_memory_stats` at the head of a training loop
   does; a mark's `peak` is the peak since.
3. The peak of all is the largest of the iterations' peaks, at the first event that reaches it. Events before
   the first iteration (loading the model) are not part of it, unless there are no iterations.
4. `requested` counts the bytes asked for; its peak is found likewise, on its own, and so is that of
   `reserved`.
5. Where the allocator has no room for a request, the program ends there: what is returned is what happened
   until then, and the request that failed. A plan without room is asked for less instead (`plans.py`).
6. Where it is asked for, places are remembered too: the address of each request, and from which event to
   which each piece of the device was held. The pieces held after an event sum to `reserved` then.

Not modelled: time. Events have an order, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from analyzer.allocators import Allocator, OutOfMemoryError
from analyzer.runtimes.events import AllocationEvent, EmptyCache, Event, Free, Malloc, Use, Wait
from analyzer.runtimes.plans import Plans

_INPUT = re.compile(r"(\d+)\.input")


@dataclass(frozen=True, slots=True)
class SimulatedMark:
    """State at the end of a named event; `peak` is its iteration's allocated peak so far."""

    event: str
    allocated: int
    peak: int
    reserved: int


@dataclass(frozen=True, slots=True)
class Alive:
    """A request alive at the peak and the size of its block in bytes."""

    malloc: Malloc
    block_bytes: int


@dataclass(frozen=True, slots=True)
class HeldRange:
    """A range of held device memory. born: event that took it; died: event after which it is gone, -1:
    never."""

    address: int
    nbytes: int
    born: int
    died: int = -1


@dataclass(frozen=True, slots=True)
class Failure:
    """A request without room: event number `position`; bytes in use, held and allowed then.

    free: sizes of the free blocks the allocator could not put together, largest first.
    """

    position: int
    malloc: Malloc
    allocated: int
    reserved: int
    limit: int
    free: tuple[int, ...] = ()

    @classmethod
    def of(cls, position: int, malloc: Malloc, error: OutOfMemoryError) -> Failure:
        """Return the failure that the allocator's error describes."""
        return cls(position, malloc, error.allocated, error.reserved, error.limit, error.free)

    @property
    def message(self) -> str:
        """Return the failed request in words."""
        what = self.malloc.label or self.malloc.category.value
        return (
            f"{self.malloc.nbytes:,} bytes requested for {what} with {self.allocated:,} in use and"
            f" {self.reserved:,} held of {self.limit:,}"
        )


@dataclass(frozen=True, slots=True)
class Simulation:
    """Result of a simulation, in bytes.

    peak_position: index of the event that reached peak_allocated first (-1: nothing was ever allocated).
    peak_phase: the named event under way at the peak ("" after the last).
    failure: the request that ended the program, None if all were served. refused: positions of those whose
        plan had no room, so that a smaller one ran.
    alive: the requests alive at the peak, in the order they were made; their blocks sum to peak_allocated.
    allocated, requested, reserved, delta, label, category, phase, rule: parallel, one entry an event
        simulated. State after it; signed change of `allocated`; what it was for ("" for an unnamed one; a
        named event's name); the category's value; the named event under way; the rule that decided its size.
    iterations: the named event after which each begins (-1: with the first event).
    address: of the block each event takes, parallel to the others (0 for other events); pieces: what was held
        when, by birth. Both are empty unless places were asked for.
    """

    marks: tuple[SimulatedMark, ...]
    peak_allocated: int
    peak_reserved: int
    peak_requested: int
    peak_position: int
    peak_phase: str
    alive: tuple[Alive, ...]
    allocated: tuple[int, ...]
    requested: tuple[int, ...]
    reserved: tuple[int, ...]
    delta: tuple[int, ...]
    label: tuple[str, ...]
    category: tuple[str, ...]
    phase: tuple[str, ...]
    failure: Failure | None = None
    rule: tuple[str, ...] = ()
    refused: tuple[int, ...] = ()
    iterations: tuple[int, ...] = ()
    address: tuple[int, ...] = ()
    pieces: tuple[HeldRange, ...] = ()

    @classmethod
    def of_peaks(
        cls,
        allocated: int,
        reserved: int,
        alive: tuple[Alive, ...],
        refused: tuple[int, ...],
        failure: Failure | None,
    ) -> Simulation:
        """Return a simulation of which only these are known."""
        none: tuple[Any, ...] = ()
        peaks = (none, allocated, reserved, 0, -1, "", alive)
        return cls(*peaks, none, none, none, none, none, none, none, failure, refused=refused)


class States:
    """Allocator state after every event: parallel columns of bytes, filled while simulating.

    delta: signed change of `allocated`. address: of the block each event takes, if `places` is set. refused:
    positions of requests whose plan had no room.
    """

    def __init__(self, allocator: Allocator, places: bool = False) -> None:
        self.allocator, self.places = allocator, places
        self.allocated: list[int] = []
        self.requested: list[int] = []
        self.reserved: list[int] = []
        self.delta: list[int] = []
        self.address: list[int] = []
        self.refused: list[int] = []
        self.held = _HeldSegments(allocator)
        self.start, self.start_reserved = allocator.allocated, allocator.reserved

    def put(self, allocated: int, requested_bytes: int, handle: int | None = None) -> None:
        """Record the state after an event. allocated: bytes in use then, which the allocator may be past
        already. requested_bytes: negative if freed. handle: of the block."""
        allocator, position = self.allocator, len(self.allocated)
        before, requested = (self.allocated[-1], self.requested[-1]) if position else (self.start, 0)
        self.allocated.append(allocated)
        self.requested.append(requested + requested_bytes)
        self.reserved.append(allocator.reserved)
        self.delta.append(allocated - before)
        if self.places:
            self.held.record(position)
            self.address.append(0 if handle is None else allocator.address_of(handle))

    def cut(self, position: int) -> None:
        """Forget every event from this position on."""
        for column in (self.allocated, self.requested, self.reserved, self.delta, self.address):
            del column[position:]
        self.refused = [at for at in self.refused if at < position]
        self.held.cut(position)


class Server:
    """Serves allocation events on an allocator, one after the other. live: by the key of a request what is
    alive, its handle and the bytes asked for. plans: of requests that may be made smaller."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.live: dict[int, tuple[int, int]] = {}
        self.plans = Plans()
        self._without_room: set[int] = set()  # keys of requests that failed, which the program caught

    def serve(
        self, event: AllocationEvent, nbytes: int | None = None, smaller: Sequence[int] | None = None
    ) -> tuple[int, int | None]:
        """Serve one event; return (bytes requested, negative if freed, handle of the block). nbytes, smaller:
        replace the request's own.

        Raises OutOfMemoryError where that ends the program, KeyError for an event that frees what is not
        alive.
        """
        allocator = self.allocator
        if type(event) is Malloc:
            if event.key in self.live:
                raise KeyError(f"a request has the key {event.key}, which is alive")
            size = event.nbytes if nbytes is None else nbytes
            others = event.smaller if smaller is None else smaller
            try:
                if event.outside_pools:
                    handle = allocator.reserve(size)
                elif event.plan or others:
                    malloc = partial(allocator.malloc, stream=event.stream)
                    handle, size = self.plans.served(malloc, size, event.plan, others)
                else:
                    handle = allocator.malloc(size, event.stream)
            except OutOfMemoryError:
                # A program that caught the error goes on: cached blocks went back, nothing was taken.
                if not event.fails:
                    raise
                self._without_room.add(event.key)
                return 0, None
            self.live[event.key] = handle, size
            return size, handle
        if type(event) is Free:
            if event.key in self._without_room:
                self._without_room.remove(event.key)
                return 0, None
            handle, size = self.live.pop(event.key)
            allocator.free(handle)
            return -size, None
        if type(event) is Use:
            if event.key not in self._without_room:
                allocator.use(self.live[event.key][0], event.stream)
        elif type(event) is Wait:
            allocator.wait(event.stream, event.by)
        elif type(event) is EmptyCache:
            allocator.end_event("empty_cache")
        return 0, None

    def step(self, event: AllocationEvent, states: States) -> int:
        """Serve one event, record the state after it, and tell the allocator when a named event is over;
        return the bytes requested, negative if freed. Raises as `serve`, with nothing recorded."""
        refused = self.plans.refused
        requested, handle = self.serve(event)
        if self.plans.refused > refused:
            states.refused.append(len(states.allocated))
        states.put(self.allocator.allocated, requested, handle)
        if type(event) is Event:
            self.allocator.end_event(event.name, event.value)
        return requested


def simulate(events: Iterable[AllocationEvent], allocator: Allocator, places: bool = False) -> Simulation:
    """Simulate `events` on `allocator`. places: remember addresses and segments.

    A request beyond the allocator's limit ends the program: the result says until where it got. Raises
    KeyError when an event frees what is not alive.
    """
    events = tuple(events)
    failure = None
    server = Server(allocator)
    states = States(allocator, places)
    for position, event in enumerate(events):
        try:
            server.step(event, states)
        except OutOfMemoryError as error:
            assert isinstance(event, Malloc)
            failure = Failure.of(position, event, error)
            break
    return simulation_of_states(events, states, failure)


def simulation_of_states(
    events: tuple[AllocationEvent, ...], states: States, failure: Failure | None = None
) -> Simulation:
    """Return the simulation of the events, from the allocator's state after each.

    events: also those from a failure on, which were not simulated.
    """
    simulation = events[: len(states.allocated)]
    phase = _phases(events)
    label, category, rule = [], [], []
    live: dict[int, Malloc] = {}
    for event in simulation:
        name, kind, why = "", "", ""
        if isinstance(event, Event):
            name = event.name
        elif not isinstance(event, Wait | EmptyCache):
            if isinstance(event, Malloc):
                live[event.key] = event
            malloc = live.pop(event.key) if isinstance(event, Free) else live[event.key]
            name, kind = malloc.label, malloc.category.value
            why = "" if isinstance(event, Use) else malloc.rule
        label.append(name)
        category.append(kind)
        rule.append(why)

    allocated, reserved = states.allocated, states.reserved
    starts = _iteration_starts(simulation)
    first = starts[0] if starts else -1
    peak, position = _peak(allocated, first, states.start)
    return Simulation(
        marks=_marks(simulation, allocated, reserved, set(starts), states.start),
        peak_allocated=peak,
        peak_reserved=_peak(reserved, first, states.start_reserved)[0],
        peak_requested=_peak(states.requested, first, 0)[0],
        peak_position=position,
        peak_phase=phase[position] if position >= 0 else "",
        alive=_alive(simulation, states.delta, position),
        allocated=tuple(allocated),
        requested=tuple(states.requested),
        reserved=tuple(reserved),
        delta=tuple(states.delta),
        label=tuple(label),
        category=tuple(category),
        phase=phase[: len(simulation)],
        failure=failure,
        rule=tuple(rule),
        refused=tuple(states.refused),
        iterations=tuple(starts),
        address=tuple(states.address),
        pieces=states.held.pieces() if states.places else (),
    )


class _HeldSegments:
    """Segments an allocator holds, from event to event, read after its driver calls."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._state: tuple[int, int] | None = None
        self._event_count = 0  # of the allocator's own record of its segments
        self._held: dict[tuple[int, int], int] = {}
        self._freed: list[HeldRange] = []

    def record(self, position: int) -> None:
        """Event `position` has been simulated."""
        now = (self._allocator.reserved, self._allocator.device_calls)
        if now == self._state:
            return
        before, self._state = self._state, now
        changes = self._changes(before)
        if changes is None:
            segments = set(self._allocator.segments())
            changes = dict.fromkeys(self._held.keys() - segments, False)
            changes |= dict.fromkeys(segments - self._held.keys(), True)
        for piece, is_held in sorted(changes.items()):
            if is_held:
                self._held.setdefault(piece, position)
            elif piece in self._held:
                self._freed.append(HeldRange(*piece, self._held.pop(piece), position))

    def _changes(self, before: tuple[int, int] | None) -> dict[tuple[int, int], bool] | None:
        """Return which pieces are held since then, and which no more, by the allocator's own record; None
        where it keeps none, or not of whole segments. All pieces compared after each call would cost the
        square of their number."""
        events = self._allocator.segment_events
        begin, self._event_count = self._event_count, len(events)
        if before is None or not events or len(events) < begin:
            return None
        changes: dict[tuple[int, int], bool] = {}
        reserved = before[0]
        for event in events[begin:]:
            if event.action not in ("segment_alloc", "segment_free"):
                return None
            is_held = event.action == "segment_alloc"
            changes[event.address, event.size] = is_held
            reserved += event.size if is_held else -event.size
        return changes if reserved == self._allocator.reserved else None

    def cut(self, position: int) -> None:
        """Forget events from a position on; segments since then count as held at its end."""
        last = position - 1
        self._freed = [
            HeldRange(piece.address, piece.nbytes, piece.born, min(piece.died, last))
            for piece in self._freed
            if piece.born < position
        ]
        self._held = {piece: min(born, last) for piece, born in self._held.items()}

    def pieces(self) -> tuple[HeldRange, ...]:
        """Return all held pieces, by birth and address."""
        kept = (HeldRange(*piece, born) for piece, born in self._held.items())
        return tuple(sorted((*self._freed, *kept), key=lambda piece: (piece.born, piece.address)))


def iteration_start(events: tuple[AllocationEvent, ...]) -> int:
    """Return the position of the event before the first iteration, -1 if there is none."""
    return next(iter(_iteration_starts(events)), -1)


def _iteration_starts(events: tuple[AllocationEvent, ...]) -> list[int]:
    """Positions of the named events after which an iteration begins (-1: with the first event of all)."""
    starts, numbers, previous = [], set(), -1
    for position, event in enumerate(events):
        if isinstance(event, Event):
            match = _INPUT.fullmatch(event.name)
            if match and match[1] not in numbers:
                numbers.add(match[1])
                starts.append(previous)
            previous = position
    return starts


def _peak(values: Sequence[int], first: int, start: int) -> tuple[int, int]:
    """Return the largest value from position `first` on (-1: with `start`), and its first place."""
    peak, position = (values[first], first) if first >= 0 else (start, -1)
    for at in range(first + 1, len(values)):
        if values[at] > peak:
            peak, position = values[at], at
    return peak, position


def _marks(
    events: tuple[AllocationEvent, ...],
    allocated: Sequence[int],
    reserved: Sequence[int],
    starts: set[int],
    start: int,
) -> tuple[SimulatedMark, ...]:
    """Return the state at every named event, with the peak since the last of `starts` before it."""
    marks, peak = [], start
    for position, event in enumerate(events):
        peak = max(peak, allocated[position])
        if isinstance(event, Event):
            marks.append(SimulatedMark(event.name, allocated[position], peak, reserved[position]))
        if position in starts:
            peak = allocated[position]
    return tuple(marks)


def _phases(events: tuple[AllocationEvent, ...]) -> tuple[str, ...]:
    """Return the phase of every event: the name of the next named event, itself included."""
    phases, name = [], ""
    for event in reversed(events):
        if isinstance(event, Event):
            name = event.name
        phases.append(name)
    return tuple(reversed(phases))


def _alive(events: tuple[AllocationEvent, ...], delta: Sequence[int], position: int) -> tuple[Alive, ...]:
    alive: dict[int, Alive] = {}
    for at in range(position + 1):
        event = events[at]
        if isinstance(event, Malloc):
            alive[event.key] = Alive(event, delta[at])
        elif isinstance(event, Free):
            del alive[event.key]
    return tuple(alive.values())
