"""The largest batch by analyses alone: under a runtime whose programs cannot be simulated under any limit, or
of a configuration.

1. A batch runs when its analysis says that it fits: the runtime's own limit (`Runtime.limited_to`) and the
   device are part of that analysis, which follows an arena as it asks for less where the device has not what
   it wants.
2. Doubling and bisection over evaluated batches (`intervals.py`) find the largest with room for all that the
   runtime wants. An arena that makes do with less may hold more samples: from there on batches are analysed,
   the next one, then ever larger steps, then bisection. The answer and the one beyond it are therefore what
   `analyze` says.
3. A configuration's program is followed as a whole at each batch: the first two say how it grows, and the
   search begins where that ends.

Not modelled: batches below the answer that would fail although it runs; a session asks for its memory in a
few large pieces, so that is not to be expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analyzer.analysis import Analysis
from analyzer.errors import OptionError
from analyzer.pipeline.workload import Progress, Workload
from analyzer.planning.intervals import Intervals, intervals_of
from analyzer.planning.search import MOST, assumptions, bisected
from analyzer.results.estimate import Estimate
from analyzer.results.fit import Fit

_START, _WIDER = 16, 8


def by_analyses(workload: Workload, limit: int | None, progress: Progress | None) -> Fit:
    """Return the largest batch under `limit` bytes of the allocator. Raises AnalyzerError."""
    if limit is not None:
        if workload.runtime is None:
            what = "a configuration" if workload.config else "a target that is analysed as a whole"
            raise OptionError(f"a limit of the allocator is not for {what}", "say --device SIZE, or --budget")
        workload = workload.under(workload.runtime.limited_to(workload.options, limit))

    def analysed(batch: int) -> Analysis:
        if progress is not None:
            progress(f"batch {batch}")
        return workload.analysis(batch)

    first = analysed(1)
    known: dict[int, Estimate] = {1: first.estimate}

    def runs(batch: int) -> bool:
        if batch not in known:
            known[batch] = analysed(batch).estimate
        return known[batch].within(known[batch].allowed_bytes)

    low, step = 0, 1
    if runs(1):
        low = _by_slope(known[1], runs, known) if workload.config else _with_room(workload, first.estimate)
    if not runs(max(low, 1)):
        low = 0  # what was evaluated is not what is analysed
    while low < MOST and runs(min(low + step, MOST)):
        low, step = min(low + step, MOST), 2 * step
    bisected(low, min(low + step, MOST), runs)
    batch = max((size for size, estimate in known.items() if runs(size)), default=0)
    at, beyond = known.get(batch), known.get(batch + 1)
    some = at or known[1]
    besides = some.device_used - some.peak_reserved
    room = max(some.allowed_bytes - besides, 0) if limit is None else limit
    return Fit(
        batch,
        at,
        room,
        limit is None,
        captures=tuple(sorted(known)),
        notes=(*(at.notes if at is not None else ()), *assumptions(first)),
        failure=None if beyond is None else beyond.out_of_memory,
        look_beyond=None if beyond is None else lambda: beyond,
        verdict=(at if at is not None else first.estimate).verdict(),
        reserved_range=at.reserved_range if at is not None else (room, room),
    )


def _by_slope(one: Estimate, runs: Callable[[int], bool], known: Mapping[int, Estimate]) -> int:
    """Return a batch near the largest, from steady growth per sample; the search starts there."""
    if not runs(2):
        return 1
    grows = max(known[2].device_used - one.device_used, 1)
    batch, step = min(2 + (one.allowed_bytes - known[2].device_used) // grows, MOST), 1
    while not runs(batch):
        batch, step = max(batch - step, 2), 2 * step
    return batch


def _with_room(workload: Workload, first: Estimate) -> int:
    """Return the largest batch whose arena finds all it wants; 1 if batches cannot be evaluated."""
    low, high = 1, _START
    intervals = intervals_of(workload, 2, high)

    def has_room(batch: int) -> bool:
        interval = intervals.interval(batch)
        assert interval is not None and interval.figures is not None
        try:
            return interval.figures.at(batch).device_used <= first.allowed_bytes
        except ArithmeticError:  # the device has not what the arena wants, or only an analysis knows
            return False

    while _evaluated(intervals) and has_room(high) and high < MOST:
        low, high = high, min(_WIDER * high, MOST)
        intervals = intervals_of(workload, 2, high)
    if not _evaluated(intervals):
        return low
    return bisected(low, high, has_room)


def _evaluated(intervals: Intervals) -> bool:
    """Return whether every batch of the range can be evaluated without an analysis."""
    return bool(intervals.intervals) and all(interval.figures is not None for interval in intervals.intervals)
