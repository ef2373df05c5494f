"""The batch as a variable: a range of batches in intervals, each one program (`analyzer/parametric`), and
where one ends and why.

1. Batch 1 is an interval of its own: dimensions of size 1 have no order among strides, broadcast, and are
   squeezed away.
2. A range is captured at its ends and in between; when the three are one program, the range is one interval.
   A number that three captures cannot check (a square) is given a fourth. All steps are captured once;
   elsewhere the first, where the later ones repeat it (`parametric/steps.py`).
3. Otherwise the largest batch is searched, by bisection, up to which the program is that of the range's
   beginning: there the interval ends, and the next begins. A batch that is like none of its neighbours, or
   cannot be captured, is an interval of its own; the target's error is kept.
4. A batch at which a guard on sizes comes out otherwise than at the captures (`parametric/program.py`) is
   captured itself.
5. The runtime evaluates an interval's batches (`Runtime.over_batches`). With a runtime that cannot, there is
   no interval: each batch is captured and analysed.
6. Where a capture confirmed the joined ones, a batch is predicted in plain numbers, without a graph
   (`Batches.prediction`); its whole analysis is made when it is read.
7. After `MOST_CAPTURES` captures the rest is taken one by one: such a range is no interval (`figures` is
   None), each of its batches is captured on demand.

Not modelled: a batch inside an interval whose program differs although every recorded guard comes out the
same: such a batch is missed.
"""

from __future__ import annotations

import contextlib
import copy
import gc
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from analyzer.analysis import Analysis
from analyzer.errors import AnalyzerError
from analyzer.parametric.numbers import NotTheSame
from analyzer.pipeline.assemble import Captured, operators_timed, step_seconds
from analyzer.pipeline.attribution import out_of_memory
from analyzer.pipeline.rows import graph_describer
from analyzer.pipeline.workload import Workload
from analyzer.results.estimate import Estimate, OutOfMemory
from analyzer.runtimes.base import Limit
from analyzer.runtimes.batches import Batches, Figures, ParametricCapture

MOST_CAPTURES = 40
# Whether a capture beside the joined ones was found to be what they say (`ParametricCapture.known`).
_PROVEN = "proven"
_SHORT = 4
_MOST_POINTS = 3


@dataclass(frozen=True, slots=True)
class Interval:
    """Batches `low` to `high`, both included. parametric: the captures that say what they are; figures: what
    they need. Both None where each batch is captured by itself.

    ends: why the next batch is another program, "" at the end of the range.
    """

    low: int
    high: int
    parametric: ParametricCapture | None = None
    figures: Batches | None = None
    ends: str = ""


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """While open, switch Python's garbage collector off: much is made and kept, and searching it for cycles
    again and again takes longer than the rest."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class Intervals:
    """The intervals of a range, captured as needed. `captured`: batch → what was captured there."""

    def __init__(self, workload: Workload, low: int, high: int) -> None:
        """Raises AnalyzerError when neither end of the range can be captured."""
        self.workload = workload
        self.captured: dict[int, Captured | AnalyzerError] = {}
        self._analysed: dict[tuple[int, Limit | None], Figures] = {}  # of batches that only an analysis knows
        with uncollected():
            self.intervals = tuple(self._divide(low, high))

    def on(self, workload: Workload) -> Intervals | None:
        """Return the intervals on another workload's device, without joining again; None if one's program
        differs there."""
        other = copy.copy(self)
        other.workload, other.captured, other._analysed = workload, {}, {}
        for batch, capture in self.captured.items():
            known: Captured | AnalyzerError | None = capture
            if isinstance(capture, Captured):
                known = workload.moved(capture, self.workload.options.device)
            if known is None:
                return None
            other.captured[batch] = known
        with contextlib.suppress(NotTheSame):
            other.intervals = tuple([other._moved(interval) for interval in self.intervals])
            return other
        return None

    def _moved(self, interval: Interval) -> Interval:
        """Return an interval with this device's figures. Raises NotTheSame."""
        joined = interval.parametric
        if joined is None:
            return interval
        profile = self._capture(joined.batches[0]).profile
        return replace(interval, figures=self.workload.over_batches(joined, profile))

    def at(self, batch: int, limit: Limit | None = None) -> Figures:
        """Return the figures at a batch of the range, under a limit if given. Raises AnalyzerError."""
        interval = self.interval(batch)
        if interval is not None and interval.parametric is not None and interval.figures is not None:
            try:
                if not interval.parametric.changed(batch):
                    return interval.figures.at(batch, limit)
            except ArithmeticError:  # a number that is whole only at some batches
                pass
            self._capture(batch)
        if (batch, limit) not in self._analysed:
            figures = figures_of(self.analysis(batch, limit), with_room=limit is None)
            self._analysed[batch, limit] = figures
        return self._analysed[batch, limit]

    def prepare(self, batches: Sequence[int]) -> None:
        """Compute in advance what these batches share, before `at` is called for each."""
        for interval in self.intervals:
            if interval.figures is not None:
                interval.figures.prepare(
                    [batch for batch in batches if interval.low <= batch <= interval.high]
                )

    def analysis(self, batch: int, limit: Limit | None = None) -> Analysis:
        """Return the whole analysis of a batch. Raises AnalyzerError."""
        joined = self._joined_program(batch)
        captured = self._capture(batch) if joined is None else self._joined_at(joined, batch)
        return self.workload.assembled(captured, batch, limit)

    def proven(self, batch: int, limit: Limit | None = None) -> Analysis:
        """Return the whole analysis of a batch, captured itself; from the joined program where the capture
        of another batch of the interval, on any device, already confirmed its evaluated figures. Raises
        AnalyzerError."""
        interval = self.interval(batch)
        parametric = None if interval is None else interval.parametric
        if interval is None or parametric is None or batch in self.captured:
            return self.workload.assembled(self.captured_at(batch), batch, limit)
        if parametric.known.get(_PROVEN):
            return self.analysis(batch, limit)
        analysis = self.workload.assembled(self.captured_at(batch), batch, limit)
        own, evaluated = figures_of(analysis), self.at(batch)
        parametric.known[_PROVEN] = replace(evaluated, refused=own.refused, fails=own.fails) == own
        return analysis

    def brief(self, batch: int, limit: Limit | None = None) -> Analysis | None:
        """Return the analysis of a batch in plain numbers (`assemble`), as the joined program says where
        `proven` found it right; None if only a whole analysis says. Raises AnalyzerError."""
        proven = self._proven(batch)
        if proven is None:
            return None
        joined, figures = proven
        try:
            known, naive = figures.prediction(batch), joined.naive(batch)
        except ArithmeticError:
            return None
        if known is None:
            return None
        captured = replace(self._capture(joined.batches[0]), batch=batch, naive=naive)
        return self.workload.assembled(captured, batch, limit, known)

    def timed(self, brief: Analysis, batch: int) -> Estimate:
        """Return the estimate of a `brief` analysis with the time of a step. Raises AnalyzerError."""
        joined, runtime = self._joined_program(batch), self.workload.runtime
        assert joined is not None and runtime is not None
        timed = None if joined.of_file else operators_timed(joined.program.first)
        time = step_seconds(self._joined_at(joined, batch, timed), runtime)
        return replace(brief.estimate, step_seconds=time)

    def failed(self, batch: int, limit: Limit) -> OutOfMemory | None:
        """Return the request that finds no room at a batch under a limit, as the joined program says where
        `proven` found it right; None if all do, or if only an analysis says. Raises AnalyzerError."""
        proven = self._proven(batch)
        try:
            failed = None if proven is None else proven[1].failed(batch, limit)
        except ArithmeticError:
            return None
        if failed is None:
            return None
        return out_of_memory(failed.failure, failed.events, graph_describer(failed.graph))

    def _proven(self, batch: int) -> tuple[ParametricCapture, Batches] | None:
        """Return the joined captures that say what a batch is, with their figures, where `proven` found them
        right."""
        interval, joined = self.interval(batch), self._joined_program(batch)
        if interval is None or interval.figures is None or joined is None or not joined.known.get(_PROVEN):
            return None
        return joined, interval.figures

    def _joined_program(self, batch: int) -> ParametricCapture | None:
        """Return the joined captures that say what a batch is; None if it is captured itself."""
        interval = self.interval(batch)
        joined = None if interval is None else interval.parametric
        return None if joined is None or batch in self.captured or joined.changed(batch) else joined

    def _joined_at(
        self, parametric: ParametricCapture, batch: int, only: Collection[int] | None = None
    ) -> Captured:
        """Return a capture at a batch from the joined program, with its operators or some of them; ONNX files
        are read again."""
        if parametric.of_file:
            return self._capture(batch)
        first = self._capture(parametric.batches[0])
        source = replace(first.source, graph=parametric.program.at(batch, only))
        return replace(first, batch=batch, source=source, naive=parametric.naive(batch))

    def interval(self, batch: int) -> Interval | None:
        """Return a batch's interval; None outside the range and for targets without intervals."""
        return next((interval for interval in self.intervals if interval.low <= batch <= interval.high), None)

    def _capture(self, batch: int, how: Callable[[int], Captured] | None = None) -> Captured:
        """Return the capture at a batch; raise AnalyzerError, also for a batch that failed before."""
        if batch not in self.captured:
            try:
                self.captured[batch] = (how or self.workload.captured)(batch)
            except AnalyzerError as error:
                self.captured[batch] = error
        capture = self.captured[batch]
        if isinstance(capture, AnalyzerError):
            raise capture
        return capture

    def captured_at(self, batch: int) -> Captured:
        """Return the capture at a batch, of one step if steps repeat. Raises AnalyzerError."""
        return self._capture(batch, self.workload.repeated)

    def _joined(self, *batches: int) -> tuple[ParametricCapture, Batches]:
        """Join the range's ends and middle. Raises NotTheSame, also if a batch fails."""
        try:
            return self._parametric(*batches)
        except AnalyzerError as error:
            raise NotTheSame(error.message) from error
        except NotTheSame as different:
            low, *_, high = sorted(batches)
            more = next(
                (b for b in ((3 * low + high) // 4, low + 3) if low < b < high and b not in batches), None
            )
            if not different.number or more is None or len(batches) > _MOST_POINTS:
                raise
        return self._joined(*batches, more)

    def _parametric(self, *batches: int) -> tuple[ParametricCapture, Batches]:
        """Capture these batches and join them for the runtime. Raises NotTheSame, AnalyzerError."""
        captures = [self.captured_at(batch) for batch in batches]
        parametric = ParametricCapture(
            batches, [each.source for each in captures], [each.naive for each in captures]
        )
        figures = self.workload.over_batches(parametric, captures[0].profile)
        if figures is None:
            raise NotTheSame("a runtime that is asked about each batch", anywhere=True)
        return parametric, figures

    def _divide(self, low: int, high: int) -> list[Interval]:
        """Divide the range into intervals of one program each, from captures at both ends."""
        intervals: list[Interval] = []
        for end in (high, low):
            try:
                if self.workload.repetition() is None:
                    self._capture(end)
                break
            except AnalyzerError:
                continue
        else:
            self._capture(low)
        while low <= high:
            if low == 1 or high - low < _SHORT - 1:
                intervals.append(self._single(low))
            elif len(self.captured) >= MOST_CAPTURES:
                intervals.append(Interval(low, high))
            else:
                intervals.append(self._next(low, high))
            low = intervals[-1].high + 1
        return intervals

    def _single(self, batch: int, ends: str = "") -> Interval:
        try:
            return Interval(batch, batch, *self._parametric(batch), ends)
        except (AnalyzerError, NotTheSame):
            return Interval(batch, batch, ends=ends)

    def _next(self, low: int, high: int) -> Interval:
        """Return the interval that begins at `low`, found by bisection of its end."""
        try:
            return Interval(low, high, *self._joined(low, self._middle(low, high), high))
        except NotTheSame as different:
            if different.anywhere:
                return Interval(low, high)
            reason = different.where
        try:
            best = self._joined(low, low + 1, low + 2)
        except NotTheSame as different:
            return self._single(low, different.where)
        good, bad = low + 2, high
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                best, good = self._joined(low, low + 1, middle), middle
            except NotTheSame as different:
                bad, reason = middle, different.where
        return Interval(low, good, *best, ends=reason)

    def _middle(self, low: int, high: int) -> int:
        """Return a batch in the middle half of a range, captured already if there is one."""
        middle, quarter = (low + high) // 2 | 1, (high - low) // 4
        known = [
            batch
            for batch in self.workload.captured_batches()
            if abs(batch - middle) <= quarter and low < batch < high
        ]
        return min(known, key=lambda batch: abs(batch - middle), default=middle)


def intervals_of(workload: Workload, low: int, high: int) -> Intervals:
    """Return the intervals of a range, or of a longer one from the same beginning, also of another device
    with the same program. Raises AnalyzerError."""
    longer: dict[int, list[Intervals]] = {
        end: each for (begin, end), each in workload.intervals.items() if begin == low and end >= high
    }
    with uncollected():
        for end in sorted(longer, reverse=True):  # the longest serves all later requests
            for each in longer[end]:
                if (intervals := each.on(workload)) is not None:
                    return intervals
    intervals = Intervals(workload, low, high)
    workload.intervals.setdefault((low, high), []).append(intervals)
    return intervals


def figures_of(analysis: Analysis, with_room: bool = True) -> Figures:
    """Return the figures of an analysis, with room or as they are."""
    estimate = analysis.estimate
    needed = estimate.needed if with_room else estimate
    return Figures(
        estimate.batch or 0,
        needed.peak_allocated,
        needed.peak_reserved,
        needed.device_used,
        estimate.naive.total,
        analysis.simulation.failure is not None,
        len(analysis.simulation.refused),
    )
