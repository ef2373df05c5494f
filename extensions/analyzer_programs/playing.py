"""Rounds that ask for the same as the last one, played on the allocator instead of run: some five times as
quick as the program.

1. A round's events are known, and which storage of its end is in the place of which of its beginning (their
   roles, `following/repetition.py`). The next round makes each request again, and gives back what is in the
   place of what the last one gave back.
2. Rounds are played in pairs: the first names its storages anew, the second as the followed round did, so
   that the program can go on or end behind them.

Not modelled: a round that leaves more alive than it found, that other streams have a part in, that empties
the cache or asks past the allocator: such a round is run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from analyzer.allocators.pytorch.caching import ALLOCATOR_CALLS
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc, Wait

Pair = tuple[tuple[AllocationEvent, ...], tuple[AllocationEvent, ...]]


def next_rounds(
    events: Sequence[AllocationEvent],
    before: Mapping[Hashable, int],
    now: Mapping[Hashable, int],
    new_key: Callable[[], int],
) -> Pair | None:
    """Return the events of the two rounds behind this one; None where they cannot be played. before, now:
    storages alive at its beginning and at its end, by role. new_key: returns a name for an allocation."""
    others: dict[int, int] = {}
    alive: set[int] = set()
    heirs: dict[int, int] = {}
    roles = {storage: role for role, storage in before.items()}
    for event in events:
        if isinstance(event, Malloc):
            if event.fails or event.outside_pools or event.stream is None:
                return None
            others[event.key] = new_key()
            alive.add(event.key)
        elif isinstance(event, Free):
            if event.key in alive:
                alive.remove(event.key)
            elif event.key in roles and roles[event.key] in now:
                heirs[event.key] = now[roles[event.key]]
            else:
                return None
        elif not isinstance(event, Wait | Event) or (
            isinstance(event, Event) and event.name in ALLOCATOR_CALLS
        ):
            return None
    if alive != set(heirs.values()) or len(heirs) != len(alive):
        return None
    anew = tuple(_renamed(events, others, heirs))
    return anew, tuple(_renamed(events, {}, {storage: others[heir] for storage, heir in heirs.items()}))


def _renamed(
    events: Sequence[AllocationEvent], names: Mapping[int, int], heirs: Mapping[int, int]
) -> Iterator[AllocationEvent]:
    """Yield a round's events. names: of what it requests; heirs: what it gives back for what the followed
    one gave back of its past."""
    for event in events:
        if isinstance(event, Malloc):
            yield replace(event, key=names.get(event.key, event.key))
        elif isinstance(event, Free):
            yield Free(heirs.get(event.key, names.get(event.key, event.key)))
        else:
            yield event


def later(event: AllocationEvent, steps: int) -> AllocationEvent:
    """Return a round's event with the number of its step so many steps on."""
    if isinstance(event, Event):
        step, dot, name = event.name.partition(".")
        return replace(event, name=f"{int(step) + steps}.{name}") if dot and step.isdigit() else event
    return event
