"""A recorded session simulated on its arena: stages, regions, and the order of initializers that is typical.

1. In use, peak in use and held are the arena's own figures, as `enable_profiling` reports them in
   `mem_bytes_in_use`, `mem_in_use_peak` and `mem_arena_held`; peaks count from the start of the session.
2. First run and steady state differ (`session`): the last run's figures are the steady ones.
3. The order in which initializers are loaded is a hash table's, another in every process. Several random
   orders are simulated; the one reported lies nearest the middle of all, by its peak and by what it holds: of
   other processes as many are likely to take more as less.
   One process draws one more order: it lies outside what 21 others made one time in eleven, so that the range
   stated is wider than theirs. Orders differ in whether they are served, too (`Orders.served`).
4. The block of a memory pattern that the arena has no room for ends nothing: the session goes on without it
   (`execution_frame.cc` logs it at INFO), and asks for the pattern's tensors one by one in that run. Its
   requests are recorded again, and simulated from the start; the next run tries its block anew.
5. Where the first other request that the arena cannot serve ends the session, its figures are those up to
   there.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, TypeAlias

from analyzer.allocators.onnxruntime_bfc import StreamArena
from analyzer.graph import Category
from analyzer.parametric.lanes import Lanes, NotTogether
from analyzer.runtimes.events import AllocationEvent, Event, Malloc
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.plain_arena import PlainArena, Reached, Steps, steps
from analyzer.runtimes.onnxruntime.rules import MEMORY_PATTERN
from analyzer.runtimes.timeline import Simulation, simulate

_ORDERS = 21
_EVENTS = 150_000  # simulated in all, so that large graphs stay quick


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Bytes of a run: in use at its end, highest in use, held after it, and the most held before that."""

    in_use: int
    peak_in_use: int
    held: int
    held_most: int


@dataclass(frozen=True, slots=True)
class ArenaRegion:
    """A region the arena took: why (the request, and during what), and how much beyond the request."""

    nbytes: int
    requested_bytes: int
    held_bytes: int
    label: str
    phase: str


@dataclass(frozen=True, slots=True)
class SessionFailure:
    """The first request the arena could not serve. block: its key, where it is a memory pattern's block."""

    requested_bytes: int
    in_use: int
    held: int
    limit: int
    label: str
    phase: str
    block: int | None = None


@dataclass(frozen=True, slots=True)
class SimulatedSession:
    """Figures of a simulated session, in bytes. page_bytes: most of the driver's pages under the regions.

    stages: by their named events ("session", "run 1", ...), in order; none of them, and no regions, after a
    failure. pages_after: the driver's pages after each of them. refused: the blocks of memory patterns it
    went on without, in their order.
    """

    events: tuple[AllocationEvent, ...]
    peak_in_use: int
    peak_requested: int
    held: int
    page_bytes: int
    stages: Mapping[str, RunFigures] = field(default_factory=dict)
    regions: tuple[ArenaRegion, ...] = ()
    failure: SessionFailure | None = None
    refused: tuple[SessionFailure, ...] = ()
    pages_after: Mapping[str, int] = field(default_factory=dict)

    @property
    def held_most(self) -> int:
        """Most bytes held at any time; less may be left where the arena shrinks."""
        return max((figures.held_most for figures in self.stages.values()), default=self.held)

    @property
    def blocks(self) -> frozenset[int]:
        """Keys of the blocks that were refused."""
        return frozenset(failure.block for failure in self.refused if failure.block is not None)


# A session's requests without the blocks of some memory patterns, by their keys.
Without: TypeAlias = Callable[[frozenset[int]], tuple[AllocationEvent, ...]]


def simulate_session(
    events: tuple[AllocationEvent, ...], options: SessionOptions, device_bytes: int | None = None
) -> SimulatedSession:
    """Simulate the events on an unused arena of a device with so many bytes (None: no end)."""
    arena = options.arena(device_bytes)
    simulation = simulate(events, arena)
    served = simulation.failure is None
    names = [mark.event for mark in simulation.marks]
    return SimulatedSession(
        events,
        arena.peak_allocated,
        arena.peak_requested,
        arena.reserved,
        arena.peak_page_bytes,
        _stages(simulation, arena) if served else {},
        _regions(events, simulation, arena) if served else (),
        _failure(events, simulation),
        pages_after={name: pages for name, (_, pages) in zip(names, arena.kept, strict=True)},
    )


def _stages(simulation: Simulation, arena: StreamArena) -> dict[str, RunFigures]:
    """Return each stage's figures at its end; a stage's peak includes what was in use at its start."""
    stages: dict[str, RunFigures] = {}
    begin, marks = 0, zip(simulation.marks, arena.kept, strict=True)
    for position, (name, kind) in enumerate(zip(simulation.label, simulation.category, strict=True)):
        if not kind:
            mark, (kept, _) = next(marks)
            peak = max(simulation.allocated[max(begin - 1, 0) : position + 1])
            held = max(simulation.reserved[begin:position], default=mark.reserved)
            stages[name] = RunFigures(mark.allocated, peak, kept, held)
            begin = position + 1
    return stages


def _regions(
    events: tuple[AllocationEvent, ...], simulation: Simulation, arena: StreamArena
) -> tuple[ArenaRegion, ...]:
    """Return every extension of the arena with the request that caused it."""
    requests = [
        (event, phase)
        for event, phase in zip(events, simulation.phase, strict=True)
        if isinstance(event, Malloc)
    ]
    regions = []
    for extension in arena.extensions:
        event, phase = requests[extension.malloc_count]
        regions.append(
            ArenaRegion(extension.region_bytes, event.nbytes, extension.held_bytes, event.label, phase)
        )
    return tuple(regions)


def _failure(events: tuple[AllocationEvent, ...], simulation: Simulation) -> SessionFailure | None:
    """Return the request that ended the session, with the stage it belongs to."""
    failure = simulation.failure
    if failure is None:
        return None
    phase = next(item.name for item in events[failure.position :] if isinstance(item, Event))
    request = failure.malloc
    block = request.key if request.rule == MEMORY_PATTERN else None
    return SessionFailure(
        request.nbytes, failure.allocated, failure.reserved, failure.limit, request.label, phase, block
    )


def simulate_to_the_end(
    events: tuple[AllocationEvent, ...],
    options: SessionOptions,
    device_bytes: int | None,
    without: Without,
) -> SimulatedSession:
    """Simulate the session as it goes on without the memory patterns' blocks that find no room.

    events: with its initializers in any order. without: as it goes on, those in the file's order.
    """
    loading = sum(1 for _ in takewhile(_is_initializer, events))
    refused: tuple[SessionFailure, ...] = ()
    while True:
        session = simulate_session(events, options, device_bytes)
        if session.failure is None or session.failure.block is None:
            return replace(session, refused=refused)
        refused = (*refused, session.failure)
        events = (*events[:loading], *without(replace(session, refused=refused).blocks)[loading:])


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of initializers a process may have. peaks, held: least and most bytes to expect in use at
    the peak, and held; served: in how many of `tried` every request is."""

    peaks: tuple[int, int]
    held: tuple[int, int]
    served: int = 1
    tried: int = 1

    @property
    def doubt(self) -> str:
        """Why another process may end otherwise; "" where all orders are served, or none is."""
        if self.served in (0, self.tried):
            return ""
        return f"each process loads initializers in its own order, and {self.served} of {self.tried} run"


def simulate_typical_order(
    events: tuple[AllocationEvent, ...],
    options: SessionOptions,
    device_bytes: int | None,
    without: Without,
) -> tuple[SimulatedSession, Orders]:
    """Return the session with its initializers in a typical order, and what to expect of any. without: as in
    `simulate_to_the_end`."""
    orders = [(*order, *events[len(order) :]) for order in _orders(events, options)]
    if len(orders) == 1:
        simulation = simulate_to_the_end(orders[0], options, device_bytes, without)
        peak, most = simulation.peak_in_use, simulation.held_most
        return simulation, Orders((peak, peak), (most, most))
    each = [reached(order, options, device_bytes, without) for order in orders]
    simulation = simulate_to_the_end(orders[_chosen(each)], options, device_bytes, without)
    served = sum(one.served for one in each)
    peaks = _stated([one.peak_in_use for one in each if one.served or not served], simulation.peak_requested)
    held = _stated([one.held for one in each], simulation.peak_requested)
    held = max(held[0], peaks[0]), max(held[1], peaks[1])  # each order holds what it has in use
    return simulation, Orders(peaks, held, served, len(each))


class Loaded:
    """A session's arena after its initializers, in each of their orders, for many simulations."""

    def __init__(
        self, events: tuple[AllocationEvent, ...], options: SessionOptions, device_bytes: int | None
    ) -> None:
        """events: of a session, of which the first stage counts."""
        self._options = options
        self._stage = _first_stage(events)
        orders = _orders(events, options)
        self._order_count = len(orders)
        self._arenas: list[PlainArena] | None = []
        for order in orders:
            simulation = steps((*order, *self._stage[len(order) :]), options)
            arena = None if simulation is None else PlainArena(options, device_bytes)
            if simulation is None or arena is None or not arena.simulate(simulation):
                self._arenas = None
                break
            self._arenas.append(arena)

    @property
    def plain(self) -> bool:
        """Whether the session is one that `plain_arena` can simulate, and has room for its initializers."""
        return self._arenas is not None

    def runs(self, events: tuple[AllocationEvent, ...], lane_count: int = 0) -> Steps | None:
        """Return the requests after the first stage; None if this session's first stage differs.

        lane_count: as for `steps`. Scratch that a kernel takes in some lanes only has no bytes in the others.
        Raises NotTogether where lanes are simulated in different numbers of orders.
        """
        if _first_stage(events) != self._stage or _order_count(events, self._options) != self._order_count:
            return None
        # Alone, a lane would have no event for scratch of no bytes, and none for giving it back.
        missing = 2 * sum(map(_may_be_missing, events)) if lane_count else 0
        if _affordable(len(events) - missing) != _affordable(len(events)):
            raise NotTogether
        return steps(events[len(self._stage) :], self._options, lane_count)

    def typical(self, runs: Steps) -> Reached | None:
        """Return the peaks in `simulate_typical_order`'s order of initializers; None if there is no room."""
        reached = []
        for loaded in self._arenas or ():
            arena = loaded.copy()
            if not arena.simulate(runs):
                return None
            reached.append(arena.reached)
        return reached[_chosen(reached)] if reached else None


def _may_be_missing(event: AllocationEvent) -> bool:
    """Return whether it is scratch that a kernel takes in some lanes and not in others."""
    nbytes: Any = event.nbytes if isinstance(event, Malloc) and event.category is Category.SCRATCH else 0
    return isinstance(nbytes, Lanes) and not nbytes.values.all()


def _orders(events: tuple[AllocationEvent, ...], options: SessionOptions) -> list[list[AllocationEvent]]:
    """Return the events with initializers in each simulated order."""
    initializers = list(takewhile(_is_initializer, events))
    shuffled = [initializers.copy() for _ in range(_order_count(events, options))]
    for seed, order in enumerate(shuffled):
        random.Random(seed).shuffle(order)
    return shuffled


def _order_count(events: tuple[AllocationEvent, ...], options: SessionOptions) -> int:
    """Return the number of initializer orders to simulate, one where the order has no effect."""
    apart = options.use_device_allocator_for_initializers
    if apart or options.arena_extend_strategy != "kNextPowerOfTwo":
        return 1
    if not all(map(_is_initializer, events[:2])):
        return 1
    return _affordable(len(events))


def _affordable(event_count: int) -> int:
    """Return in how many orders this many events are simulated."""
    return min(_ORDERS, max(1, _EVENTS // event_count))


def _first_stage(events: tuple[AllocationEvent, ...]) -> tuple[AllocationEvent, ...]:
    """Return the events up to the first named one."""
    count = next((place for place, event in enumerate(events) if isinstance(event, Event)), len(events) - 1)
    return events[: count + 1]


def reached(
    events: tuple[AllocationEvent, ...], options: SessionOptions, device_bytes: int | None, without: Without
) -> Reached:
    """Return the arena's peaks, also if a request finds no room. Arguments as of `simulate_to_the_end`, which
    says more and takes longer."""
    simulation = steps(events, options)
    if simulation is not None:
        arena = PlainArena(options, device_bytes)
        if arena.simulate(simulation):
            return arena.reached
    session = simulate_to_the_end(events, options, device_bytes, without)
    failure = session.failure
    held = session.held_most if failure is None else failure.held + failure.requested_bytes
    return Reached(session.peak_in_use, held, session.page_bytes, failure is None)


def _chosen(sessions: Sequence[Reached]) -> int:
    """Return the order to report: the one nearest the middle of all, by its peak and the bytes it holds."""
    peaks = _to_one_side([session.peak_in_use for session in sessions])
    held = _to_one_side([session.held for session in sessions])
    return min(range(len(sessions)), key=lambda place: peaks[place] + held[place])


def _to_one_side(values: Sequence[int]) -> list[float]:
    """Return how many of the others lie below each value, or above it where those are more; half at least."""
    ordered = sorted(values)
    count = len(ordered)
    return [max(bisect_left(ordered, v), count - bisect_right(ordered, v), count / 2) for v in values]


def _stated(values: Sequence[int], floor: int) -> tuple[int, int]:
    """Return the range of figures, widened by half on either side, not below `floor`."""
    least, most = min(values), max(values)
    beyond = (most - least) // 2
    return max(least - beyond, min(floor, least)), most + beyond


def _is_initializer(event: AllocationEvent) -> bool:
    return isinstance(event, Malloc) and event.category is Category.PARAMETER
