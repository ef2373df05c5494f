"""The estimate's course as a trace: Perfetto (https://ui.perfetto.dev) and chrome://tracing open it.

1. The file is JSON in the Trace Event Format. An event of the allocator is a microsecond: the order is real,
   the clock is not.
2. Counters: one track a category, and "allocated" and "reserved"; after every event the categories sum to
   "allocated". A counter is written when it changes.
3. Slices: iterations, and inside them the named events ("0.forward"), from the end of the one before to their
   own. A block's purpose is in an instant event where it is allocated, as is the peak.

Source: "Trace Event Format", the Chromium project's document; Perfetto's "JSON trace format" for what it
reads of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from analyzer.report import moments
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean, operator_name
from analyzer.results.estimate import Estimate

_PROCESS = 1
_ITERATIONS, _PHASES, _BLOCKS = 1, 2, 3


def render(estimate: Estimate, _: View = PLAIN) -> str:
    """Return the trace file, one event per line."""
    lines = ",\n".join(json.dumps(event) for event in _events(estimate))
    other = json.dumps({"target": clean(estimate.target), "unit": "one event of the allocator is 1 us"})
    return f'{{"displayTimeUnit": "ms", "otherData": {other}, "traceEvents": [\n{lines}\n]}}\n'


def _events(estimate: Estimate) -> Iterator[dict[str, Any]]:
    yield _named("process_name", clean(estimate.target), 0)
    for thread, name in ((_ITERATIONS, "iterations"), (_PHASES, "phases"), (_BLOCKS, "allocations")):
        yield _named("thread_name", name, thread)
    yield from _slices(estimate)
    yield from _counters(estimate)
    yield from _blocks(estimate)


def _named(kind: str, name: str, thread: int) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _slice(name: str, begin: int, end: int, thread: int) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": _PROCESS, "tid": thread, "ts": begin, "dur": end - begin}


def _slices(estimate: Estimate) -> Iterator[dict[str, Any]]:
    count = len(estimate.timeline.delta)
    begins = [*(event + 1 for event in moments.iterations(estimate)), count]
    for number, (begin, end) in zip(moments.numbers(estimate), pairwise(begins), strict=True):
        yield _slice(f"iteration {number}", begin, end, _ITERATIONS)
    begin = 0
    for event, name in moments.named(estimate):
        yield _slice(clean(name), begin, event + 1, _PHASES)
        begin = event + 1


def _counters(estimate: Estimate) -> Iterator[dict[str, Any]]:
    """Yield a counter event wherever allocated, reserved or a category's bytes change."""
    line = estimate.timeline
    sums = Counter[str]()
    shown: dict[str, int] = {}
    for event, category in enumerate(line.category):
        sums[category] += line.delta[event]
        states = {"allocated": line.allocated[event], "reserved": line.reserved[event]}
        if line.delta[event]:
            states[f"category {clean(category)}"] = sums[category]
        for name, nbytes in states.items():
            if shown.get(name) != nbytes:
                shown[name] = nbytes
                yield {"ph": "C", "name": name, "pid": _PROCESS, "ts": event, "args": {"bytes": nbytes}}


def _blocks(estimate: Estimate) -> Iterator[dict[str, Any]]:
    """Yield an instant event for the birth of every block, and one for the peak."""
    blocks = estimate.allocations
    for place, born in enumerate(blocks.born):
        origin = blocks.origins[blocks.origin[place]]
        details = {
            "bytes": blocks.nbytes[place],
            "shape": "x".join(map(str, origin.shape)),
            "dtype": clean(origin.dtype),
            "category": clean(origin.category),
            "operator": operator_name(origin.operator),
            "module": clean(origin.module),
            "line": clean(origin.source),
            "rule": clean(origin.rule),
        }
        yield {
            "ph": "i",
            "s": "t",
            "name": clean(origin.name),
            "pid": _PROCESS,
            "tid": _BLOCKS,
            "ts": born,
            "args": {name: value for name, value in details.items() if value},
        }
    if estimate.peak_event >= 0:
        peak = {"bytes": estimate.peak_allocated}
        yield {
            "ph": "i",
            "s": "p",
            "name": "peak",
            "pid": _PROCESS,
            "tid": _BLOCKS,
            "ts": estimate.peak_event,
            "args": peak,
        }
