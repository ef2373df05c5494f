"""Memory by batch: a row a batch, and where and why the curve bends.

1. Rows are exact: each equals the analysis at that batch on a device with unlimited memory. A few batches
   (`FEW`) are simply analysed; more are evaluated by the runtime, interval by interval (`intervals.py`,
   `Runtime.over_batches`). The analysis also decides whether one that takes more than the device has runs
   there nevertheless.
2. A batch at which the target fails is no row but a failure with its message; the others are kept.
3. A **kink** is where one straight line no longer passes all rows of peak allocated closely (within 1 % of
   the largest, or 8 MiB), or where an interval ends. With `explain` the sharpest few are explained by what
   makes the peak before and after: an analysis each, which costs more than many rows.
4. The **slope** is bytes of peak allocated a sample, over the rows between two kinks: (last - first) / (their
   batches).

Not modelled: kinks between the batches asked for.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Unpack

from analyzer.devices import resolve, stands_in
from analyzer.errors import AnalyzerError, InputError
from analyzer.options import KeywordsButBatches, Options, takes_options
from analyzer.pipeline.workload import Workload
from analyzer.planning.intervals import Intervals, figures_of, uncollected
from analyzer.planning.search import galloped
from analyzer.results.curve import Curve, Kink, Row, Slope
from analyzer.results.estimate import Estimate, TensorRow
from analyzer.runtimes.base import Limit
from analyzer.runtimes.batches import Figures

if TYPE_CHECKING:
    import torch

FEW = 6
_EXPLAINED = 3
_SHOWN_TENSORS = 3
# How far from a straight line rows may lie: remainders of blocks too small to be split off come and go with
# the batch.
_CLOSE = 0.01
_CLOSE_BYTES = 8 * 2**20


@takes_options
def sweep(
    target: str | os.PathLike[str] | torch.nn.Module,
    batches: Iterable[int],
    inputs: Any = None,
    *,
    explain: bool = False,
    progress: Callable[[str], None] | None = None,
    **options: Unpack[KeywordsButBatches],
) -> Curve:
    """The curve of `target` over `batches` (whole numbers of at least 1). Options as for `analyzer.analyze`.

    explain: say what makes the peak on either side of the sharpest kinks.
    inputs: also a function from the batch to (inputs, targets); tensors have their first dimension set to the
    batch. Raises AnalyzerError when the target fails at every batch, or the options are at fault.
    """
    wanted = sorted(set(batches))
    if not wanted or any(
        isinstance(batch, bool) or not isinstance(batch, int) or batch < 1 for batch in wanted
    ):
        raise InputError(
            "a curve needs batch sizes", "give whole numbers of at least 1, such as range(1, 65)"
        )
    if options.pop("batch", None) is not None:
        raise InputError("a curve has many batches", "leave batch out")
    workload = Workload(target, Options.of({"inputs": inputs, **options}), progress)
    return curve(workload, wanted, progress, explain)


def curve(
    workload: Workload,
    batches: Sequence[int],
    progress: Callable[[str], None] | None = None,
    explain: bool = False,
) -> Curve:
    """Return the curve of an open target, as `sweep` does; `batches` ascend."""
    intervals: Intervals | None = None
    if len(batches) > FEW and workload.runtime is not None:
        intervals = Intervals(workload, batches[0], batches[-1])
    rows: list[Row] = []
    estimates: dict[int, Estimate] = {}
    failures: dict[int, str] = {}
    problem: AnalyzerError | None = None
    capacity = _capacity(workload.options)

    def estimate_at(batch: int) -> Estimate:
        if batch not in estimates:
            estimates[batch] = (intervals.analysis(batch) if intervals else workload.analysis(batch)).estimate
        return estimates[batch]

    with uncollected() if intervals is not None else contextlib.nullcontext():
        if intervals is not None:
            intervals.prepare(batches)
        for batch in batches:
            if progress is not None:
                progress(f"batch {batch}")
            try:
                if intervals is not None:
                    figures = intervals.at(batch)
                else:
                    analysed = workload.analysis(batch)
                    estimates[batch] = analysed.estimate
                    figures = figures_of(analysed)
            except AnalyzerError as error:
                failures[batch] = error.message
                problem = problem or error
                continue
            fits = None
            if capacity is not None:
                fits = figures.device_used <= capacity or (
                    _may_run(intervals, figures, capacity) and estimate_at(batch).within(capacity)
                )
            peaks = figures.peak_allocated, figures.peak_reserved, figures.device_used
            rows.append(Row(batch, *peaks, figures.naive, fits))
        if capacity is not None and rows:
            rows = _with_verdicts(rows, lambda batch: estimate_at(batch).verdict())
    if not rows:
        assert problem is not None
        raise problem

    captures = [*intervals.captured] if intervals is not None else [*estimates]
    slopes = _slopes(rows)
    return Curve(
        tuple(rows),
        failures,
        slopes,
        _kinks(rows, slopes, intervals, estimate_at if explain else None),
        tuple(sorted(captures)),
        lambda: estimate_at(rows[-1].batch),
    )


def _capacity(options: Options) -> int | None:
    """Return the bytes the job may use; None if neither device nor budget is given and no GPU is here."""
    device = None if stands_in(options.device) else resolve(options.device)[0].usable_bytes
    return min((nbytes for nbytes in (device, options.budget_bytes) if nbytes is not None), default=None)


def _may_run(intervals: Intervals | None, figures: Figures, capacity: int) -> bool:
    """Return whether a batch that needs more than the capacity with room may run under it."""
    if intervals is None or intervals.workload.runtime is None or not intervals.workload.runtime.takes_limits:
        # Figures of one without limits are those on its device; a budget leaves it less.
        return intervals is None or intervals.workload.options.budget is not None
    room = capacity - (figures.device_used - figures.peak_reserved)
    return room > 0 and not intervals.at(figures.batch, Limit(room, True)).fails


def _with_verdicts(rows: Sequence[Row], verdict: Callable[[int], str]) -> list[Row]:
    """Return the rows with their verdicts: the last that fits and the first that does not are looked for from
    where figures put the end, as analyses are few that way."""
    known: dict[int, str] = {}

    def says(place: int, *words: str) -> bool:
        batch = rows[place].batch
        if batch not in known:
            known[batch] = verdict(batch)
        return known[batch] in words

    last = max((place for place, row in enumerate(rows) if row.fits), default=-1)
    sure = galloped(last, -1, last + 1, lambda place: place < 0 or says(place, "fits"))
    most = galloped(last, last, len(rows), lambda place: place <= last or says(place, "may not fit"))
    words = {True: "fits", False: "does not fit"}
    return [
        replace(
            row,
            verdict=known.get(row.batch, "may not fit" if sure < place <= most else words[bool(row.fits)]),
        )
        for place, row in enumerate(rows)
    ]


def _slopes(rows: Sequence[Row]) -> tuple[Slope, ...]:
    """Return the fewest straight lines between rows that pass all others closely (Ramer-Douglas-Peucker)."""
    close = max(_CLOSE_BYTES, _CLOSE * max(row.peak_allocated for row in rows))
    ends = [0]

    def divide(start: int, end: int) -> None:
        first, last = rows[start], rows[end]
        slope = (last.peak_allocated - first.peak_allocated) / (last.batch - first.batch)
        apart = {
            place: abs(
                rows[place].peak_allocated - first.peak_allocated - slope * (rows[place].batch - first.batch)
            )
            for place in range(start + 1, end)
        }
        farthest = max(apart, key=lambda place: apart[place], default=start)
        if apart.get(farthest, 0) > close:
            divide(start, farthest)
            divide(farthest, end)
        else:
            ends.append(end)

    if len(rows) > 1:
        divide(0, len(rows) - 1)
    return tuple(
        Slope(
            rows[start].batch,
            rows[end].batch,
            (rows[end].peak_allocated - rows[start].peak_allocated) / (rows[end].batch - rows[start].batch),
        )
        for start, end in pairwise(ends)
    )


def _kinks(
    rows: Sequence[Row],
    slopes: Sequence[Slope],
    intervals: Intervals | None,
    estimate_at: Callable[[int], Estimate] | None,
) -> tuple[Kink, ...]:
    """Return the lasting bends, the sharpest explained if possible, and the ends of intervals."""
    known = [row.batch for row in rows]
    following = dict(pairwise(known))
    bends = {
        before.last: abs(after.bytes_per_sample - before.bytes_per_sample)
        for before, after in pairwise(slopes)
    }
    explained = sorted(bends, key=lambda batch: -bends[batch])[:_EXPLAINED]
    kinks = []
    for batch in sorted(bends):
        before: tuple[str, tuple[TensorRow, ...]] = ("", ())
        after = before
        if estimate_at is not None and batch in explained:
            before, after = _peak(estimate_at(batch)), _peak(estimate_at(following[batch]))
        kinks.append(Kink(batch, following[batch], "", before, after))
    for interval in intervals.intervals if intervals else ():
        if interval.ends and interval.high < known[-1]:
            kinks.append(Kink(interval.high, interval.high + 1, interval.ends))
    return tuple(sorted(kinks, key=lambda kink: kink.before))


def _peak(estimate: Estimate) -> tuple[str, tuple[TensorRow, ...]]:
    return estimate.peak_at, estimate.top(_SHOWN_TENSORS)
