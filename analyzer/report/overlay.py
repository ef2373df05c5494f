"""Two courses over one another: what a comparison shows first.

1. Named events that both have ("0.backward") lie over each other; between two of them, and at the ends, the
   events of the first estimate are spread evenly over the second's. Programs without a name in common are
   spread as a whole.
2. Every event of both has its place, so no peak is lost; a course holds its bytes until its next event.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analyzer.report import moments
from analyzer.report.words import clean
from analyzer.results.estimate import Estimate


def chart(before: Estimate, after: Estimate, names: tuple[str, str]) -> dict[str, Any] | None:
    """Return the data `charts.js` draws; None if an estimate has no timeline. names: labels of the two."""
    old, new = before.timeline, after.timeline
    if not old.delta or not new.delta:
        return None
    left, right = _shared(before, after)
    events = np.arange(1, len(new.delta) + 1)
    moved = np.interp(np.arange(1, len(old.delta) + 1), left, right)
    places = np.union1d(events, moved)

    def held(estimate: Any, values: tuple[int, ...]) -> list[int]:
        last = np.searchsorted(estimate, places, side="right") - 1
        return [values[place] if place >= 0 else 0 for place in last.tolist()]

    limit = max(after.usable_bytes - (after.device_used - after.peak_reserved), 0)
    return {
        "x": "event",
        "values": [round(place, 6) for place in places.tolist()],
        "limit": limit,
        "limited": "room for the allocator",
        "stepped": True,
        "marks": [(event + 1, clean(name)) for event, name in moments.named(after)],
        "lines": [
            {
                "name": f"{word}, {name}",
                "values": held(known, getattr(line, word)),
                "dashed": line is old,
                "color": color,
            }
            for color, word in enumerate(("allocated", "reserved"))
            for name, line, known in ((names[0], old, moved), (names[1], new, events))
        ],
    }


def _shared(before: Estimate, after: Estimate) -> tuple[list[int], list[int]]:
    """Return places of the ends and common named events in both timelines, ascending."""
    events = {name: event + 1 for event, name in reversed(moments.named(after))}
    left, right = [0], [0]
    for event, name in moments.named(before):
        place = events.get(name, 0)
        if place > right[-1]:
            left.append(event + 1)
            right.append(place)
    ends = len(before.timeline.delta), len(after.timeline.delta)
    if left[-1] < ends[0] and right[-1] < ends[1]:
        left.append(ends[0])
        right.append(ends[1])
    return left, right
