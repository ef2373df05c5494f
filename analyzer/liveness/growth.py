"""Memory that grows from call to call of a model: what each call leaves alive that the one before did not.

1. A model is called (`Graph.calls`); the **level** of a call is what is alive on the device when it begins.
2. **Growth** is the longest run of calls whose levels rise by about the same: every rise at least half of
   their median. At least `_LEAST` of them, since the first steps of a training rise too, once, by gradients
   and the optimizer's states. A step may call its model several times: every second, third and fourth call
   are looked at too, and count where they cover half as many calls again.
3. It consists of what was born in the run and is alive at its end; who holds most of that is said
   (`holders.py`).

Not modelled: growth within one call.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from analyzer.graph import Graph, view_of
from analyzer.liveness.holders import Kind, holders
from analyzer.liveness.lifetimes import lifetimes, live_bytes

_LEAST, _MORE = 4, 1.5
_RUNS = [(stride, offset) for stride in (1, 2, 3, 4) for offset in range(stride)]


@dataclass(frozen=True, slots=True)
class Rise:
    """calls: how many rose in a row; nbytes: the median of their rises; every: how many calls of the model
    make one of these. kind: who holds most of it; operator: the one that made most of it (None: none did).
    places: where in the program the model is called."""

    calls: int
    nbytes: int
    kind: Kind
    operator: int | None
    every: int = 1
    places: tuple[int, ...] = ()


def growth(graph: Graph) -> Rise | None:
    """Return the growth, None without one."""
    if len(graph.calls) <= _LEAST:
        return None
    ranges = lifetimes(graph, "eager")
    levels = live_bytes(graph, ranges)
    first = count = 0
    every, begins, rises = 1, [0], [0]
    calls: list[int] = []
    for model in {model for _, model in graph.calls}:
        places = [place for place, called in graph.calls if called == model and place < len(levels)]
        for stride, offset in _RUNS:
            at = places[offset::stride]
            changes = [levels[after] - levels[before] for before, after in pairwise(at)]
            run = _longest(changes)
            enough = count * every * (_MORE if stride > every else 1)
            if run[1] >= _LEAST and run[1] * stride > enough:
                (first, count), every, begins, rises, calls = run, stride, at, changes, places
    if count < _LEAST:
        return None
    begin, end = begins[first], begins[first + count]
    kept = [index for index in ranges.alive_at(end) if ranges.first[index] > begin]
    kept = [index for index in kept if graph.storages[index].on_device]
    held = holders(graph, end, kept)
    kinds, makers, view = Counter[Kind](), Counter[tuple[str, str]](), view_of(graph)
    by_maker: dict[tuple[str, str], int] = {}
    for index in kept:
        kinds[held[index].kind] += graph.storages[index].nbytes
        for node in view.pred[index]:
            operator = graph.operators[~node]
            makers[operator.name, operator.source] += graph.storages[index].nbytes
            by_maker.setdefault((operator.name, operator.source), operator.index)
    if not kinds:
        return None
    maker = by_maker[makers.most_common(1)[0][0]] if makers else None
    rise = int(median(rises[first : first + count]))
    return Rise(count, rise, kinds.most_common(1)[0][0], maker, every, tuple(calls))


def _longest(rises: list[int]) -> tuple[int, int]:
    """Return where the longest run of like rises begins, and how many there are."""
    best = (0, 0)
    for first in range(len(rises)):
        if first and rises[first - 1] > 0 and best[1] > len(rises) - first:
            break
        count = 0
        while first + count < len(rises) and rises[first + count] > 0:
            run = rises[first : first + count + 1]
            if 2 * min(run) < median(run):
                break
            count += 1
        if count > best[1]:
            best = (first, count)
    return best
