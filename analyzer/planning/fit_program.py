"""The largest batch of a PyTorch program, from captures at a few sizes.

1. A batch **runs** when every request of its steps is served by the allocator under the limit: cached blocks are given
   back and the request is tried again before it fails, as the allocator does.
2. Doubling and bisection, as a trial finder goes, give a batch that runs with one that does not right above it. Memory in
   pieces is not monotonic: so the batches below are tried too, down to where no block had to be given back. The batch
   above a **gap** is the answer only where no size it asks for is inferred (every convolution was asked of cuDNN
   at that very batch); else it is the largest with every smaller batch running. Gaps below the answer are named (`gaps`), and
   so are larger batches that would run (`also`).
3. Where convolutions have no room for their workspace, PyTorch goes on to cuDNN's next plans: what those ask for is part of
   what is played (`libraries/cudnn/ladders.py`). A batch that only runs through next plans that were inferred, not asked
   of cuDNN for that very call, is no answer, nor one that fails when inferred workspaces are larger by what they are off on
   average: whether it runs is a matter of a few megabytes nobody measured. It is named in the notes.
4. A batch at which the program itself fails is no answer, and says nothing of memory: the next one does. What was said is
   kept.
5. Batches are evaluated (`pieces.py`) from captures at small sizes; the answer and the one beyond it are captured
   themselves, and when they say otherwise, the search goes on from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from analyzer.analysis import Analysis
from analyzer.errors import AnalyzerError
from analyzer.planning.fit_result import MOST, Fit, assumptions
from analyzer.planning.pieces import Pieces
from analyzer.planning.subject import Progress, Subject
from analyzer.runtimes.events import AllocationEvent, Malloc
from analyzer.runtimes.pytorch.runtime import limited
from analyzer.runtimes.pytorch.settings import alloc_conf
from analyzer.runtimes.timeline import Played, play

_START = 16


class Search:
    """One search. known, easy: of an evaluated batch whether it runs, and whether it does without giving back. besides: bytes
    that the process takes beside its allocator."""

    def __init__(self, subject: Subject, limit: int | None, progress: Progress | None) -> None:
        """limit: bytes the allocator may hold; None: what the device has. Raises AnalyzerError where no batch can be analysed."""
        self.subject, self.progress = subject, progress
        self.refused: dict[int, str] = {}
        first = self.smallest = self.first()
        self.device_bound = limit is None
        self.besides = first.estimate.device_used - first.estimate.peak_reserved
        self.limit = max(first.profile.capacity_bytes - self.besides, 0) if limit is None else limit
        self.captured: dict[int, Analysis] = {}
        self.known: dict[int, bool] = {}
        self.easy: dict[int, bool] = {}
        self.pieces: Pieces | None = None

    def first(self) -> Analysis:
        """The analysis of one sample, or of two where the program does not take one: a batch norm has nothing to average."""
        try:
            return self.subject.analysis(1)
        except AnalyzerError as error:
            try:
                found = self.subject.analysis(2)
            except AnalyzerError:
                raise error from None
            self.refused[1] = error.message
            return found

    @property
    def start(self) -> int:
        """The smallest batch there is."""
        return 2 if 1 in self.refused else 1

    @property
    def bound(self) -> tuple[int, bool]:
        """The limit as `Prediction.limited` takes it."""
        return self.limit, self.device_bound

    def answer(self) -> Fit:
        """Doubling and bisection over evaluated batches, then the answer and the one beyond it captured themselves."""
        if not self.exactly(self.start):
            return self.found(0)
        high = _START
        self.pieces = Pieces(self.subject, self.start, high)
        while self.runs(high) and high < MOST:
            high = min(2 * high, MOST)
            self.pieces = Pieces(self.subject, self.start, high)
        low = self.start
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.runs(middle) else (low, middle)
        batch = self.without_gaps(low)
        if low > batch and self.exactly(low) and not self.inferred(low):
            batch = low
        while batch > 1 and not self.exactly(batch):
            batch -= 1
        while self.exactly(batch + 1) and batch < MOST:
            batch += 1
        return self.found(batch)

    def runs(self, batch: int) -> bool:
        """Whether every request of the batch's steps is served under the limit, evaluated. Of a batch that the program
        itself refuses, whether the next one's are; two in a row do not run."""
        if batch not in self.known:
            if self.progress is not None:
                self.progress(f"batch {batch}")
            assert self.pieces is not None
            try:
                free = self.pieces.at(batch)
            except AnalyzerError as error:
                self.refused[batch] = error.message
                return batch - 1 not in self.refused and batch < MOST and self.runs(batch + 1)
            self.easy[batch] = free.peak_reserved <= self.limit and not free.fails
            self.known[batch] = self.easy[batch] or not self.pieces.at(batch, self.bound).fails
        return self.known[batch]

    def without_gaps(self, batch: int) -> int:
        """The largest batch up to `batch` with all below it running."""
        lowest, below = batch, batch
        while below > 1:
            if not self.runs(below):
                lowest = below - 1
            elif self.easy.get(below):
                break
            below -= 1
        return lowest

    def exactly(self, batch: int) -> bool:
        """Whether it is served, captured at the batch itself, not through plans that are inferred, and also where inferred
        sizes are somewhat larger."""
        if not self.served(batch):
            return False
        found = self.at(batch)
        if _on_inferred_plans(found.events, found.played):
            return False
        if not self.inferred(batch):
            return True
        larger = tuple(
            replace(event, nbytes=event.nbytes + event.inferred)
            if isinstance(event, Malloc) and event.inferred
            else event
            for event in found.events
        )
        conf = alloc_conf(self.subject.options.runtime_options)
        played = play(larger, limited(conf, found.profile, *self.bound))
        return played.failure is None and not _on_inferred_plans(larger, played)

    def served(self, batch: int) -> bool:
        """Whether it runs, captured at the batch itself; not where the program refuses it."""
        try:
            return self.at(batch).played.failure is None
        except AnalyzerError as error:
            self.refused[batch] = error.message
            return False

    def inferred(self, batch: int) -> bool:
        """Whether a size that the batch asks for was not measured for the very call."""
        return any(isinstance(event, Malloc) and event.inferred for event in self.at(batch).events)

    def at(self, batch: int) -> Analysis:
        """The analysis of a batch under the limit."""
        if batch not in self.captured:
            self.captured[batch] = self.subject.limited_analysis(batch, self.bound)
        return self.captured[batch]

    def span(self, batch: int) -> tuple[str, ...]:
        """The largest batches if nothing of what is assumed besides the allocator were taken, and if twice as much were."""
        assumed = self.smallest.estimate.certainty.assumed
        if not assumed or not self.device_bound or self.pieces is None:
            return ()
        ends = [
            self.largest_evaluated(batch, self.limit + change) for change in (-self.besides, self.besides)
        ]
        # As the answer itself, an end has no gap below: memory in pieces would else put it on the answer's other side.
        least, most = min(ends[0], batch), max(ends[1], batch)
        return (f"it would be {least:,} if twice as much were taken, {most:,} if nothing were",)

    def largest_evaluated(self, batch: int, limit: int) -> int:
        """The largest batch that runs under another limit, by doubling and bisection from `batch`."""

        def runs(size: int) -> bool:
            assert self.pieces is not None
            if self.pieces.piece(size) is None:
                self.pieces = Pieces(self.subject, self.start, min(2 * size, MOST))
            return not self.pieces.at(size, (limit, True)).fails

        if limit < 1:
            return 0
        low, high = (batch, 2 * batch) if runs(batch) else (0, batch)
        while low and high < MOST and runs(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if runs(middle) else (low, middle)
        return low

    def refusals(self, most: int) -> Iterator[str]:
        """What the program itself said at batches up to `most`."""
        said: dict[str, list[int]] = {}
        for batch in sorted(batch for batch in self.refused if batch <= most):
            said.setdefault(self.refused[batch], []).append(batch)
        for message, batches in said.items():
            shown = ", ".join(f"{batch:,}" for batch in batches[:3]) + (", ..." if len(batches) > 3 else "")
            yield f"at {shown} the program itself fails: {message}"

    def found(self, batch: int) -> Fit:
        perhaps = batch
        while perhaps < MOST and self.served(perhaps + 1):
            perhaps += 1
        refused = self.refused.get(perhaps + 1, "") if batch else ""
        beyond = self.at(max(perhaps + 1, self.start)) if perhaps < MOST and not refused else None
        unsure = (
            (
                f"up to {perhaps:,} may run too: that depends on a few megabytes of workspace that nobody asked cuDNN "
                "for at that size",
            )
            if perhaps > batch
            else ()
        )
        also = tuple(sorted(other for other, runs in self.known.items() if runs and other > batch))
        gaps = tuple(sorted(other for other, runs in self.known.items() if not runs and other < batch))
        captures = {self.start, *self.captured, *(self.pieces.captured if self.pieces else ())}
        return Fit(
            batch,
            self.at(batch).estimate if batch else None,
            beyond.estimate if beyond is not None else None,
            self.limit,
            self.device_bound,
            also,
            tuple(sorted(captures)),
            (
                *(self.at(batch).notes if batch else ()),
                *unsure,
                *assumptions(self.at(batch) if batch else self.smallest),
                *self.span(batch),
                *self.refusals(perhaps),
            ),
            gaps=gaps,
            fails=max(perhaps + 1, self.start),
            refused=refused,
        )


def _on_inferred_plans(events: tuple[AllocationEvent, ...], played: Played) -> bool:
    """Whether a call whose plans nobody asked had no room for its first."""
    asked = [events[position] for position in played.refused]
    return any(isinstance(event, Malloc) and event.inferred is not None for event in asked)
