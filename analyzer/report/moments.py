"""Moments of the course a reader knows by name: named events ("0.forward"), and where iterations begin.

Of a whole program nobody said where an iteration begins; there it is where the number in front of its named
events ("0.backward", "0.step", "1.backward") goes up, from the event before on.
"""

from __future__ import annotations

import re

from analyzer.results.estimate import Estimate

_NUMBERED = re.compile(r"(\d+)\.")


def numbers(estimate: Estimate) -> tuple[int, ...]:
    """Return the number of each iteration: that of its named events, else its place. (Repeated steps are
    stored once, so 50 may follow 1.)"""
    starts = iterations(estimate)
    matches = [(event, _NUMBERED.match(name)) for event, name in named(estimate)]
    return tuple(
        next((int(match[1]) for event, match in matches if match and event > start), place)
        for place, start in enumerate(starts)
    )


def named(estimate: Estimate) -> list[tuple[int, str]]:
    """Return (event, name) of named events in order; others have a category, or no name."""
    line = estimate.timeline
    return [
        (event, line.label[event])
        for event, category in enumerate(line.category)
        if not category and line.label[event]
    ]


def iterations(estimate: Estimate) -> tuple[int, ...]:
    """Return the event after which each iteration begins (-1: with the first)."""
    if estimate.iterations:
        return estimate.iterations
    starts: list[int] = []
    number = previous = -1
    for event, name in named(estimate):
        match = _NUMBERED.match(name)
        if match and int(match[1]) > number:
            number = int(match[1])
            starts.append(previous)
        previous = event
    return tuple(starts)
