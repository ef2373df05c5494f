"""Orders of events: requests and frees of threads beside the program's own may reach the allocator in others
as well.

While a checkpoint is read (`analyzer_programs/following/loading.py`) the program's own thread waits for one
piece after the other. At every wait the threads have begun some pieces beyond the one that is waited for. How
many, a run decides; never fewer than none. The program is simulated again with none, and with so many as go
by while CUDA loads a kernel. Where the program asks for memory of its own for every second piece (weights
stored in 8 or 4 bits are turned back one by one), the threads are quicker than it: it is also simulated with
all of them read before the first is turned back (on an H200 384 of 1,136 were, and up to 476 lay there).

NCCL's watchdog frees what it finds done at a look (`analyzer_programs/world/collectives.py`), later where
steps are shorter than its pauses: the program is simulated again with the blocks of one look kept until the
next, or to the end.

Not modelled otherwise: threads so fast that a whole checkpoint is read before the first of it is converted;
steps so short that the watchdog's pause is longer than two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from analyzer.runtimes.events import AllocationEvent, Free, Malloc

# Pieces begun beyond the one that is waited for: none; as many as there are threads; as went by in seven
# loadings on an H200 while CUDA loaded the kernel that stacks (19 to 36).
BEYOND = (0, 4, 36)


@dataclass(slots=True)
class Reading:
    """A checkpoint that was read, as positions among the events. pieces: where the events of each begin and
    end, in the order of the pieces; waits: where the program waited, and for which piece."""

    pieces: list[tuple[int, int]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Position of its last event."""
        return max((self.pieces or [(0, 0)])[-1][1], (self.waits or [(0, 0)])[-1][0])


@dataclass(frozen=True, slots=True)
class Look:
    """A look of the watchdog: where among the events, and the keys of the blocks it lets go."""

    position: int
    keys: frozenset[int]


def other_orders(
    events: Sequence[AllocationEvent], readings: Sequence[Reading], watched: Sequence[Look] = ()
) -> Iterator[tuple[AllocationEvent, ...]]:
    """Yield the events in the other orders; those alone that are other ones. watched: a watchdog's looks."""
    orders = [tuple(events)]
    if (late := _late(events, watched)) != orders[0]:
        orders.append(late)
        yield late
    for beyond in (*BEYOND, None):
        other = list(events)
        for reading in readings:
            if beyond is not None or _slow(events, reading):
                ahead = len(reading.pieces) if beyond is None else beyond
                other[: reading.end] = _ordered(other[: reading.end], reading, ahead)
        if tuple(other) not in orders:
            orders.append(tuple(other))
            yield orders[-1]


def order_of(readings: Sequence[Reading], watched: Sequence[Look]) -> str:
    """Return which of the orders the events are in, in words."""
    reasons = []
    if readings:
        reasons.append(
            "threads read the checkpoint while its experts are stacked: the figures are of the order a quick"
            " disk gives"
        )
    if watched:
        reasons.append("the figures are of steps longer than the pauses of NCCL's watchdog")
    return "; ".join(reasons)


def _late(events: Sequence[AllocationEvent], watched: Sequence[Look]) -> tuple[AllocationEvent, ...]:
    """Return the events with storages freed one look of the watchdog later."""
    ends = [look.position for look in watched[1:]] + [len(events)]
    order: list[AllocationEvent] = list(events[: watched[0].position]) if watched else list(events)
    for look, end in zip(watched, ends, strict=True) if watched else ():
        late: list[AllocationEvent] = []
        for event in events[look.position : end]:
            (late if isinstance(event, Free) and event.key in look.keys else order).append(event)
        order += late
    return tuple(order)


def _slow(events: Sequence[AllocationEvent], reading: Reading) -> bool:
    """Return whether the program asks for a block for every second piece at least, besides them, from the
    first wait to the last: a weight comes with its scales, and is turned into more than one tensor on the
    way."""
    if not reading.waits:
        return False
    first, last = reading.waits[0][0], reading.end
    count = sum(isinstance(event, Malloc) for event in events[first:last])
    of_pieces = sum(
        isinstance(event, Malloc)
        for begin, end in reading.pieces
        for event in events[max(begin, first) : end]
    )
    return 2 * (count - of_pieces) >= len(reading.pieces)


def _ordered(events: Sequence[AllocationEvent], reading: Reading, beyond: int) -> Iterator[AllocationEvent]:
    """Yield the events; each piece comes at the first wait that leaves at most `beyond` before it."""
    moved = [_requests_and_frees(events[begin:end]) for begin, end in reading.pieces]
    elsewhere = {id(event) for piece in moved for event in piece}
    done = at = 0
    for position, number in reading.waits:
        yield from (event for event in events[at:position] if id(event) not in elsewhere)
        at = position
        for piece in moved[done : number + beyond + 1]:
            yield from piece
        done = max(done, number + beyond + 1)
    for piece in moved[done:]:
        yield from piece
    yield from (event for event in events[at:] if id(event) not in elsewhere)


def _requests_and_frees(events: Sequence[AllocationEvent]) -> list[AllocationEvent]:
    """Return a piece's requests and their frees, without frees of older storages."""
    keys = {event.key for event in events if isinstance(event, Malloc)}
    return [event for event in events if isinstance(event, Malloc | Free) and event.key in keys]
