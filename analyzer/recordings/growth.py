"""Growth: places with more blocks in use from step to step.

1. **Steps** are the program's optimizer steps, where the snapshot has their marks. Else a step is one round
   of a loop, recognised by a place that allocates regularly: of all stacks that occur at least four times,
   at distances no two of which differ by more than half, one that covers most of the history; of several the
   least frequent.
2. After each step the bytes in use are summed by place. A place **grows** if it held more at the end of each
   of the last steps than at the one before: three steps or more, and not less than half of all. The first
   steps may differ (an optimizer makes its state).
3. Bytes a step are those of the last steps, on average.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

from analyzer.recordings.history import History
from analyzer.results.recording import Growth
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc

_LEAST_STEPS = 3
_MOST_STEPS = 10_000
_SHOWN = 8


def growth(
    events: Sequence[AllocationEvent], delta: Sequence[int], history: History, place: Callable[[int], str]
) -> tuple[tuple[Growth, ...], str]:
    """Return the places that grow, largest first, and the name of a step. place: of a request's key."""
    ends = [at for at, event in enumerate(events) if isinstance(event, Event)]
    unit = "optimizer step"
    if len(ends) < _LEAST_STEPS + 1:
        ends, unit = _rounds(events, history), "round of its loop"
    if len(ends) < _LEAST_STEPS + 1:
        return (), ""
    sums = _sampled(events, delta, set(ends[-_MOST_STEPS:]), place)
    places = []
    for name, course in sums.items():
        rising = 0
        while rising + 1 < len(course) and course[-rising - 1] > course[-rising - 2]:
            rising += 1
        if rising >= max(_LEAST_STEPS, (len(course) - 1) // 2):
            grown = course[-1] - course[-1 - rising]
            places.append(Growth(name, grown // rising, rising, course[-1]))
    places.sort(key=lambda row: -row.step_bytes)
    return tuple(places[:_SHOWN]), unit if places else ""


def _sampled(
    events: Sequence[AllocationEvent], delta: Sequence[int], ends: set[int], place: Callable[[int], str]
) -> dict[str, list[int]]:
    """Return the bytes in use by place at each step's end."""
    live: dict[int, tuple[str, int]] = {}
    sums: dict[str, int] = defaultdict(int)
    courses: dict[str, list[int]] = {}
    count = 0
    for at, (event, change) in enumerate(zip(events, delta, strict=False)):
        if isinstance(event, Malloc):
            name = place(event.key)
            live[event.key] = name, change
            sums[name] += change
        elif isinstance(event, Free):
            name, size = live.pop(event.key)
            sums[name] -= size
        if at in ends:
            for name, nbytes in sums.items():
                courses.setdefault(name, [0] * count).append(nbytes)
            count += 1
    return courses


def _rounds(events: Sequence[AllocationEvent], history: History) -> list[int]:
    """Return the events at which the rounds of a loop begin; none if no loop is found."""
    positions: dict[int, list[int]] = defaultdict(list)
    for at, event in enumerate(events):
        if isinstance(event, Malloc) and history.stacks[event.key]:
            positions[history.stacks[event.key]].append(at)
    regular = []
    for places in positions.values():
        gaps = [second - first for first, second in pairwise(places)][1:]
        if len(places) > _LEAST_STEPS and max(gaps) <= 1.5 * min(gaps) and min(gaps) > 1:
            regular.append(places)
    longest = max((places[-1] - places[0] for places in regular), default=0)
    if 2 * longest < len(events):
        return []
    whole = [places for places in regular if 5 * (places[-1] - places[0]) >= 4 * longest]
    return min(whole, key=len, default=[])
