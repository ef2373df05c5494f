"""The largest batch under a runtime whose programs are simulated under any limit, from captures at a few
sizes.

1. A batch **runs** when every request of its steps is served by the allocator under the limit: cached blocks
   are given back and the request is tried again before it fails, as the allocator does.
2. Doubling and bisection, as a trial finder goes, give a batch that runs with one that does not right above
   it. Fragmented memory is not monotonic: so the batches below are tried too, down to where no block had to
   be given back. The batch above a **gap** is the answer only where no size it asks for is inferred (each was
   measured at that very batch); else it is the largest with every smaller batch running. The
   nearest gaps below the answer are named (`gaps`), and so are larger batches that would run (`also`).
3. The simulation makes a request smaller where that is allowed and there is no room (`runtimes/plans.py`). A
   batch that may or may not run (`runtimes/bounded.py`) is no answer; the notes name it.
4. A batch at which the program itself fails is no answer and says nothing about memory: the next one is
   tried. Its error is kept.
5. Batches are evaluated (`intervals.py`) from captures at a few sizes; the answer and the one beyond it are
   captured themselves, and when they differ, the search goes on from them. Where a capture agreed, further
   answers, also of other devices with the same program, are given in plain numbers (`Intervals.brief`), and
   the failed request beyond them by the evaluated batch (`Intervals.failed`); their whole estimates are made
   when they are read.
6. Ranges that captures are joined over end at one of eight batches an octave, so that devices share them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from analyzer.analysis import Analysis
from analyzer.devices import resolve
from analyzer.errors import AnalyzerError
from analyzer.options import Options
from analyzer.pipeline.assemble import Captured
from analyzer.pipeline.workload import Progress, Workload
from analyzer.planning.intervals import Intervals, intervals_of
from analyzer.results.estimate import Estimate, OutOfMemory
from analyzer.results.fit import Fit
from analyzer.runtimes.base import Limit
from analyzer.runtimes.batches import Figures
from analyzer.runtimes.bounded import bounded, convolves, unasked
from analyzer.runtimes.ranges import held_under
from analyzer.runtimes.variants import Variants

# Searched up to here; nobody trains with more samples at once.
MOST = 1 << 20
_START, _WIDER = 16, 64
# Batches whose sizes are worked out at once, where one after the other is tried: few at first (cuDNN may have
# to be asked about each), and twice as many whenever that went on, up to so many.
_FIRST_TOGETHER, _TOGETHER = 8, 1024
# Batches below an answer that are looked at for gaps, where each asks cuDNN about all convolutions and none
# can change the answer; and where each is only simulated, in a tenth of a millisecond.
_ASKED_BELOW, _SIMULATED_BELOW = 16, 4096
# Batches in doubt whose figures are compared.
_COMPARED = 8


class Search:
    """One search. known: whether an evaluated batch runs; without_freeing: also without freeing cached
    blocks. limit: what the allocator may hold, None where the device or a budget (`capacity`), less what the
    process takes besides, decides. last: limit of the batch evaluated last. grows: bytes a further sample
    takes, as last looked at."""

    def __init__(
        self,
        workload: Workload,
        limit: int | None,
        progress: Progress | None,
        known: Analysis | None = None,
        lowest: int | None = None,
    ) -> None:
        """limit: bytes the allocator may hold; None: what the device has. known: an analysis of some batch,
        in place of the smallest's. lowest: first batch that is evaluated; None: the smallest. Raises
        AnalyzerError where no batch can be analysed."""
        self.workload, self.progress = workload, progress
        self.limit = None if limit is None else Limit(limit, False)
        self.refused: dict[int, str] = {}
        self.captured: dict[int, Analysis] = {}
        self.failures: dict[int, OutOfMemory] = {}
        self.known: dict[int, bool] = {}
        self.without_freeing: dict[int, bool] = {}
        self.verdicts: dict[int, tuple[str, tuple[int, int]]] = {}
        self.last: Limit | None = None
        self.grows = math.inf
        first = self.first()
        usable = first.profile.usable_bytes
        self.capacity = min(usable, workload.options.budget_bytes or usable)
        self._smallest = known
        if not workload.intervals:  # what the runtime refuses is said at once, on the first device
            self._smallest = self.smallest
        self.lowest = self.start if lowest is None else lowest
        self.intervals = intervals_of(workload, self.lowest, _START)

    def first(self) -> Captured:
        """Capture one sample, or two where one fails (batch norm has nothing to average)."""
        try:
            return self.workload.captured(1)
        except AnalyzerError as error:
            try:
                capture = self.workload.captured(2)
            except AnalyzerError:
                raise error from None
            self.refused[1] = error.message
            return capture

    @property
    def smallest(self) -> Analysis:
        """Return the analysis of the smallest batch with all the device has, or of the one that is known."""
        if self._smallest is None:
            self._smallest = self.workload.analysis(self.start)
            if self.limit is None:
                self.captured[self.start] = self._smallest
        return self._smallest

    @property
    def start(self) -> int:
        """Smallest possible batch."""
        return 2 if 1 in self.refused else 1

    def bound(self, figures: Figures | Estimate) -> Limit:
        """Return the limit of a batch with these figures, as `Prediction.limited` takes it."""
        if self.limit is not None:
            return self.limit
        return Limit(max(self.capacity - (figures.device_used - figures.peak_reserved), 0), True)

    def answer(self) -> Fit:
        """Return the largest batch with all details."""
        return self.fit_of(*self.largest())

    def largest(self) -> tuple[int, int]:
        """Return the largest batch captured itself, and by evaluated figures: double and bisect over the
        latter, then capture the answer and the one beyond it."""
        if not self.runs(self.start) and not self.surely_runs(self.start):
            return 0, 0
        low = self.largest_by_figures()
        sure = self.surely_runs(low) and not self.has_unmeasured_size(low)
        if sure:
            batch = low
            self.without_gaps(low, _ASKED_BELOW if convolves(self.at(low).events) else _SIMULATED_BELOW)
        else:
            batch = self.without_gaps(low)
        if batch > self.start and self.has_unmeasured_size(batch) and not self.surely_runs(batch):
            # In doubt by what its convolutions may take at most, which is far more: so is every batch for a
            # while.
            batch = bisected(self.start, batch, self.surely_runs)
        while not self.surely_runs(batch):
            batch -= 1
            if batch < self.start:
                return 0, 0
        while self.surely_runs(batch + 1) and batch < MOST:
            batch += 1
        return batch, low

    def by_figures(self) -> int | None:
        """Return the largest evaluated batch; None if the lowest fails, or a batch below it."""
        low = self.largest_by_figures()
        return low if low > 1 and self.without_gaps(low) == low else None

    def largest_by_figures(self) -> int:
        """Return the largest batch that runs, by evaluated figures, whose next does not; the lowest runs."""
        low, high, reach = self.lowest, _START, MOST
        while self.runs(high) and high < MOST:
            low, reach = high, self.beyond(high)
            high = min(_shared_end(min(reach, _WIDER * high)), MOST)
            self.reaching(high)
            if reach < high:
                if not self.runs(reach):
                    break
                low, reach = reach, MOST
        high = min(high, reach)
        if low > self.lowest:
            # Growth up to there says where the memory is full, growth from there on more exactly.
            near = min(max(self.full(low // 2, low), low + 1), high)
            near = min(max(self.full(low, near), low), high - 1)
            return galloped(near, low, high, self.runs)
        self.full(low, high)  # for the growth, from which the ends of the range are looked for
        return bisected(low, high, self.runs)

    def reaching(self, batch: int) -> Intervals:
        """Return the intervals, up to this batch at least."""
        if self.intervals.interval(batch) is None:
            self.intervals = intervals_of(self.workload, self.lowest, batch)
        return self.intervals

    def beyond(self, batch: int) -> int:
        """Return a batch that will not run: an eighth beyond where steady growth fills the memory, as a
        larger range may hold other programs; `MOST` without known growth."""
        return max(self.full(batch // 2, batch) * 9 // 8, 2 * batch)

    def full(self, low: int, high: int) -> int:
        """Return the batch at which growth as between these two fills the memory with tensors, without holes
        between them; `MOST` if one fails."""
        try:
            less, more = self.intervals.at(low), self.intervals.at(high)
        except AnalyzerError:
            return MOST
        self.grows = max(more.peak_allocated - less.peak_allocated, 1) / max(high - low, 1)
        return high + int((self.bound(more)[0] - more.peak_allocated) / self.grows)

    def runs(self, batch: int) -> bool:
        """Return whether every request of this batch is served under the limit. If the program itself fails
        at it, the next batch decides; two failures in a row do not run."""
        if batch not in self.known:
            if self.progress is not None:
                self.progress(f"batch {batch}")
            try:
                self.known[batch], self.without_freeing[batch] = self.evaluated(batch)
            except AnalyzerError as error:
                self.refused[batch] = error.message
                return batch - 1 not in self.refused and batch < MOST and self.runs(batch + 1)
        return self.known[batch]

    def evaluated(self, batch: int) -> tuple[bool, bool]:
        """Return whether a batch runs, and whether without freeing cached blocks. Raises AnalyzerError."""
        # The process takes the same beside its allocator at nearly every batch: under the last limit it is
        # simulated once.
        bounded = None if self.last is None else self.intervals.at(batch, self.last)
        if bounded is not None and bounded.returned is not None and self.bound(bounded) == self.last:
            return not bounded.fails, not bounded.fails and not bounded.returned
        free = self.intervals.at(batch)
        bound = self.bound(free)
        if bounded is None or bound != self.last:
            self.last, bounded = bound, None
        if free.peak_reserved <= bound[0] and not free.fails:
            return True, True
        return not (bounded or self.intervals.at(batch, bound)).fails, False

    def without_gaps(self, batch: int, most: int = MOST) -> int:
        """Return the largest batch up to `batch` below which all run. most: number of batches looked at."""
        lowest, below, prepared, together = batch, batch, batch, _FIRST_TOGETHER
        last = max(batch - most, 1)
        while below > last:
            if below == prepared:
                prepared, together = max(below - together, last), min(2 * together, _TOGETHER)
                self.intervals.prepare(range(prepared + 1, below + 1))
            if not self.runs(below):
                lowest = below - 1
            elif self.without_freeing.get(below):
                break
            below -= 1
        return lowest

    def surely_runs(self, batch: int) -> bool:
        """Return whether the batch, captured itself, is served without doubt."""
        return self.runs_captured(batch) and not self.at(batch).estimate.doubt

    def runs_captured(self, batch: int) -> bool:
        """Return whether the batch, captured itself, is served; False if the program fails."""
        try:
            return (self.evaluated_failure(batch) or self.at(batch).estimate.out_of_memory) is None
        except AnalyzerError as error:
            self.refused[batch] = error.message
            return False

    def evaluated_failure(self, batch: int) -> OutOfMemory | None:
        """Return the batch's request without room, by evaluated figures where a capture said the same."""
        if batch not in self.failures and batch not in self.captured and self.known.get(batch) is False:
            failure = self.intervals.failed(batch, self.bound(self.intervals.at(batch)))
            if failure is not None:
                self.failures[batch] = failure
        return self.failures.get(batch)

    def has_unmeasured_size(self, batch: int) -> bool:
        """Return whether a request's size was not measured for that very call."""
        return unasked(self.at(batch).events)

    def at(self, batch: int) -> Analysis:
        """Return the analysis of a batch on the device, or under the limit."""
        if batch not in self.captured:
            brief = self.intervals.brief(batch, self.limit)
            self.captured[batch] = brief or self.intervals.proven(batch, self.limit)
        return self.captured[batch]

    def whole(self, batch: int) -> Estimate:
        """Return the whole estimate of a batch."""
        if self.at(batch).prediction.plain is not None:
            self.captured[batch] = self.intervals.proven(batch, self.limit)
        return self.captured[batch].estimate

    def ends(self, batch: int) -> tuple[int, int] | None:
        """Return the largest batches with the most and least memory beside the allocator; None where that is
        certain."""
        shown = (self.at(batch) if batch else self.smallest).estimate
        known, needed = shown.certainty, shown.needed
        in_doubt = (known.beside_range and known.assumed) or known.kept_bytes or known.spare_bytes
        if not in_doubt or self.limit is not None:
            return None
        beside = needed.device_used - needed.peak_reserved
        least, most = known.beside_range or (beside, beside)
        changes = (beside - most - known.kept_bytes, beside - least + known.spare_bytes)
        ends = [self.largest_evaluated(batch, change) for change in changes]
        # As the answer itself, an end has no gap below: fragmented memory would else put it on the answer's
        # other side.
        return min(ends[0], batch), max(ends[1], batch)

    def largest_evaluated(self, batch: int, change: int) -> int:
        """Return the largest batch that runs under a moved limit, looked for from where growth as at `batch`
        puts it."""

        def runs(size: int) -> bool:
            intervals = self.reaching(_shared_end(size))
            limit = self.bound(intervals.at(size))[0] + change
            return limit > 0 and not intervals.at(size, Limit(limit, True)).fails

        near = batch + int(change / self.grows)
        return galloped(min(max(near, 1), MOST - 1), 0, MOST, runs)

    def refusals(self, most: int) -> Iterator[str]:
        """Yield the program's own errors at batches up to `most`."""
        by_message: dict[str, list[int]] = {}
        for batch in sorted(batch for batch in self.refused if batch <= most):
            by_message.setdefault(self.refused[batch], []).append(batch)
        for message, batches in by_message.items():
            shown = ", ".join(f"{batch:,}" for batch in batches[:3]) + (", ..." if len(batches) > 3 else "")
            yield f"at {shown} the program itself fails: {message}"

    def fit_of(self, batch: int, evaluated: int = 0) -> Fit:
        """Return the answer. batch: the largest by its figures; evaluated: by evaluated figures, if known."""
        perhaps = max(batch, evaluated)
        while perhaps > batch and not self.runs_captured(perhaps):
            perhaps -= 1
        while perhaps < MOST and self.runs_captured(perhaps + 1):
            perhaps += 1
        ends = self.ends(batch)
        unsure = self.unsure(batch, perhaps)
        batch, by_figures = self.sure(batch, ends), batch
        while ends is not None and perhaps < MOST and (perhaps < ends[1] or self.runs(perhaps + 1)):
            perhaps = max(perhaps + 1, ends[1])
        refused = self.refused.get(perhaps + 1, "") if batch else ""
        fails = max(perhaps + 1, self.start)
        tried = perhaps < MOST and not refused
        shown = self.at(batch) if batch else self.smallest
        also = tuple(sorted(other for other, runs in self.known.items() if runs and other > by_figures))
        gaps = tuple(sorted(other for other, runs in self.known.items() if not runs and other < batch))
        limit = self.bound(shown.estimate)[0]
        verdict, held = self.verdict(batch) if batch else fit_verdict(shown, limit, self.limit is None, False)
        brief = shown.estimate
        if shown.prediction.plain is not None:
            brief = self.intervals.timed(shown, batch)
        return Fit(
            batch,
            brief if batch else None,
            limit,
            self.limit is None,
            also,
            tuple(sorted({self.start, *self.intervals.captured})),
            (
                *(self.at(batch).notes if batch else ()),
                *unsure,
                *assumptions(shown),
                *_range_notes(ends and (batch, max(batch, perhaps))),
                *self.refusals(perhaps),
            ),
            gaps=gaps,
            fails=fails,
            failure=(self.evaluated_failure(fails) or self.whole(fails).out_of_memory) if tried else None,
            look_at=(lambda: self.whole(batch)) if batch else None,
            look_beyond=(lambda: self.whole(fails)) if tried else None,
            refused=refused,
            verdict=verdict,
            reserved_range=held,
            beyond_verdict=self.beyond_verdict(fails, ends, shown) if tried else "",
            perhaps=perhaps if perhaps > batch else 0,
        )

    def sure(self, batch: int, ends: tuple[int, int] | None) -> int:
        """Return the largest batch up to one that runs by its figures that runs at the worst of what is
        assumed, 0 if none does; the batch itself where figures are lower bounds."""
        if not batch or self.at(batch).estimate.at_least:
            return batch

        def surely(size: int) -> bool:
            return size >= self.start and self.surely_runs(size) and self.verdict(size)[0] == "fits"

        if surely(batch):
            return batch
        near = max(min(batch - 1 if ends is None else ends[0], batch - 1), 0)
        return galloped(near, 0, batch, surely)

    def verdict(self, batch: int) -> tuple[str, tuple[int, int]]:
        """Return `fit_verdict` of a batch that runs."""
        if batch not in self.verdicts:
            analysis = self.at(batch)
            limit = self.bound(analysis.estimate)[0]
            self.verdicts[batch] = fit_verdict(analysis, limit, self.limit is None, True)
        return self.verdicts[batch]

    def unsure(self, batch: int, perhaps: int) -> tuple[str, ...]:
        """Return notes on the batches above the answer that are in doubt, up to `perhaps`."""
        if perhaps == batch:
            return ()
        figures = {size: self.intervals.at(size) for size in range(batch, perhaps + 1)[:_COMPARED]}
        above = {size: (one.peak_allocated, one.peak_reserved) for size, one in figures.items()}
        sizes = f"batch {perhaps:,}" if perhaps == batch + 1 else f"batch {batch + 1:,} to {perhaps:,}"
        return (f"{sizes} may not fit: {self.at(perhaps).estimate.doubt}", *less_for_more(above, "batch"))

    def beyond_verdict(self, fails: int, ends: tuple[int, int] | None, shown: Analysis) -> str:
        """Return the verdict of the batch that fails; shown: the answer's analysis."""
        if ends is not None and fails <= ends[1]:
            return "may not fit"
        if self.evaluated_failure(fails) is not None and not convolves(shown.events):
            return "does not fit"  # convolutions alone are in doubt
        return "may not fit" if self.at(fails).estimate.doubt else "does not fit"


def _range_notes(ends: tuple[int, int] | None) -> tuple[str, ...]:
    """Return a note on the largest batches with the most and least memory beside the allocator."""
    if ends is None:
        return ()
    why = "the context and library code may be larger or smaller, and the driver may keep more or less"
    if ends[0] == ends[1]:
        return (f"the largest batch is {ends[0]:,} in either case: {why}",)
    return (f"the largest batch is between {ends[0]:,} and {ends[1]:,}: {why}",)


def less_for_more(known: Mapping[int, tuple[int, int]], name: str) -> tuple[str, ...]:
    """Return a note on the first size that holds less than the next smaller one, and why; () without one.
    known: bytes allocated and reserved at the peak by size; name: of the size."""
    for less, more in pairwise(sorted(known)):
        (used, held), (used_more, held_more) = known[less], known[more]
        if held_more < held:
            why = (
                "more is in use, and which freed blocks serve again depends on their sizes"
                if used_more > used
                else "less is in use at the peak; a workspace depends on the algorithm a library takes"
            )
            figures = f"{held_more / 2**20:,.0f} MiB, not {held / 2**20:,.0f}"
            return (f"{name} {more:,} holds less than {name} {less:,} ({figures}): {why}",)
    return ()


def _shared_end(batch: int) -> int:
    """Return the batch, rounded up to four significant bits."""
    unit = 1 << max(batch.bit_length() - 4, 0)
    return -(-batch // unit) * unit


def bisected(low: int, high: int, runs: Callable[[int], bool]) -> int:
    """Return a batch that runs and whose successor does not, given `low` runs and `high` does not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return low


def where_full(grown: Mapping[int, int], options: Options) -> int:
    """Return the value at which steady growth fills the device. grown: its bytes at two values or more."""
    low, high = min(grown), max(grown)
    profile = resolve(options.device)[0]
    usable = min(profile.usable_bytes, options.budget_bytes or profile.usable_bytes)
    a_sample = max((grown[high] - grown[low]) / (high - low), 1)
    return min(max(low + int((usable - grown[low]) / a_sample), 1), MOST - 1)


def galloped(near: int, low: int, high: int, runs: Callable[[int], bool]) -> int:
    """Return what `bisected` does, looked for from `near` on, between both, in steps that double."""
    way, step = (1 if runs(near) else -1), 1
    while low < near + way * step < high and runs(near + way * step) == (way > 0):
        near, step = near + way * step, 2 * step
    low, high = sorted((near, min(max(near + way * step, low), high)))
    return bisected(low, high, runs)


def fit_verdict(
    analysis: Analysis, limit: int, device_bound: bool, runs: bool
) -> tuple[str, tuple[int, int]]:
    """Return `Fit.verdict` and `Fit.reserved_range` of a batch under a limit, by its figures."""
    estimate, known = analysis.estimate, analysis.estimate.certainty
    word, held = ("fits", estimate.peak_reserved) if runs else ("does not fit", limit)
    if runs and estimate.at_least:
        word = "may not fit"
    sure = known.beside_range is None and not (known.kept_bytes or known.spare_bytes)
    if sure or analysis.prediction.limited is None:
        return word, (held, held)
    less, more = limit, limit
    if device_bound:
        beside = estimate.needed.device_used - estimate.needed.peak_reserved
        fewest, most = known.beside_range or (beside, beside)
        less = max(limit - (most - beside) - known.kept_bytes, 0)
        more = limit + beside - fewest + known.spare_bytes
    variants = Variants(analysis.prediction)
    ends = held_under(variants, Limit(more, device_bound), Limit(less, device_bound))
    in_doubt = runs and bool(bounded(variants, Limit(less, device_bound))[1])
    if in_doubt or ((ends[1] is None) if runs else (ends[0] is not None)):
        word = "may not fit"
    least, largest = (limit if end is None else end for end in ends)
    return word, (min(least, held), max(largest, held))


def assumptions(analysis: Analysis) -> tuple[str, ...]:
    """Return a sentence on figures of a GPU that was not measured, with the bytes taken from one that was."""
    profile = analysis.profile
    if profile.measured:
        return ()
    assumed = ", ".join(
        f"{name} {nbytes / 2**20:,.1f} MiB" for name, nbytes in analysis.estimate.certainty.assumed.items()
    )
    as_elsewhere = f": {assumed} are taken from a GPU that was" if assumed else ""
    return (f"{profile.name} was not measured{as_elsewhere} (analyze devices {profile.name})",)
