"""The largest batch that runs, under a device or under a limit of the allocator, and that of every length.

1. The limit is what `--limit` says the allocator may hold (`torch.cuda.set_per_process_memory_fraction`);
   else what the device has beyond what the process takes besides (context, libraries): there `cudaMalloc`
   itself has no more to give.
2. Under runtimes whose programs are simulated under any limit (`Runtime.takes_limits`: PyTorch) it is
   searched for as `search.py` says, with the allocator near its limit as it is.
3. Under all others, and of a configuration, a batch runs when its analysis says that it fits: the runtime's
   own limit (`Runtime.limited_to`) and the device are part of that analysis, which follows an arena as it
   asks for less where the device has not what it wants. Evaluated batches (`intervals.py`) say up to where
   there is room for all that the runtime wants; an arena that makes do with less may hold more samples: from
   there on batches are analysed, in steps that double, then by bisection. Beyond a batch that fails larger
   ones may run (an arena goes on without a block that finds no room): they are tried in steps of an eighth of
   the answer until two in a row surely do not fit, and named beside it (`Fit.also`).
4. Of a configuration the program is followed as a whole at each batch. The first two say how it grows, and
   where the search begins; on a further device it begins where growth on the first one puts it, so that
   little more than the answer and the batch beyond it is followed there.
5. Lengths are powers of two from `FIRST` on, up to the most positions a configuration has, or to where no GPU
   has room for a single sample.

Where a batch below one that surely runs is in doubt, the answer is the largest below that, and the other is
the most that may run.

Not modelled: other processes on the device; of 3, batches below the answer that would fail although it runs,
none of which was analysed, and larger ones that run between two that were tried and fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from analyzer.analysis import Analysis
from analyzer.devices import check_bare, parse_size, resolve
from analyzer.errors import AnalyzerError, InputError, OptionError
from analyzer.notes import CHEAPER_SETTING, Note
from analyzer.options import KeywordsButDevice, Options, takes_options
from analyzer.pipeline.workload import Progress, Workload
from analyzer.planning.countdown import Countdown
from analyzer.planning.intervals import Intervals, intervals_of, uncollected
from analyzer.planning.search import MOST, Search, assumptions, bisected, galloped, where_full
from analyzer.recipes.config import opened
from analyzer.results.estimate import Estimate
from analyzer.results.fit import Fit, Lengths
from analyzer.runtimes.bounded import convolves

if TYPE_CHECKING:
    import torch

__all__ = ["Fit", "fit", "fits", "largest", "largest_batch", "over_lengths"]

FIRST, LAST = 512, 1 << 20
# Bytes of the device by batch, of a configuration's program that runs.
Grown = dict[int, int]
_START, _WIDER = 16, 8
# Batches beyond the answer are tried in steps of such a part of it, up to so many times the answer.
_PARTS, _TIMES = 8, 4


@takes_options
def fit(
    target: str | os.PathLike[str] | torch.nn.Module,
    inputs: Any = None,
    *,
    device: str | int | None = None,
    limit: str | int | None = None,
    longest: bool = False,
    progress: Progress | None = None,
    **options: Unpack[KeywordsButDevice],
) -> Fit:
    """Return the largest batch of `target` on `device`, or under an allocator's `limit` ("8GiB" or bytes).

    longest: the greatest length instead that `batch` samples may have; `make_batch`, or `inputs`, is a
        function of (batch, length).
    Other options as for `analyzer.analyze`; `inputs` as for `sweep`. Raises AnalyzerError.
    """
    devices = (device,)
    ((_, answer),) = fits(
        target, devices, limit=limit, longest=longest, progress=progress, inputs=inputs, **options
    )
    if isinstance(answer, AnalyzerError):
        raise answer
    return answer


def fits(
    target: str | os.PathLike[str] | torch.nn.Module,
    devices: Sequence[str | int | None],
    *,
    limit: str | int | None = None,
    longest: bool = False,
    progress: Progress | None = None,
    known: Callable[[Fit | AnalyzerError], None] = lambda _: None,
    **options: Any,
) -> Iterator[tuple[str | int | None, Fit | AnalyzerError]]:
    """Yield (device, answer or error) for each device, as `fit` does: the target is opened once, and a
    capture for one device serves others with the same program (`Graph.alike`), as does its range of batches:
    the device with most memory is searched first, and growth as it is there is known to the others. known:
    hears each answer as soon as there is one. Raises AnalyzerError."""
    batch = options.pop("batch", None)
    if batch is not None and not longest:
        raise InputError("the largest batch is what is asked for", "leave batch out")
    workload = Workload(target, Options.of({"device": devices[0], **options}), progress)
    samples = (1 if batch is None else batch) if longest else None
    if samples is not None:
        workload = workload.fixed(batch=samples)

    grown: Grown = {}

    def answer(device: str | int | None) -> Fit | AnalyzerError:
        result: Fit | AnalyzerError
        with uncollected():
            try:
                result = replace(largest(workload.on(device), limit, progress, grown), samples=samples)
            except AnalyzerError as error:
                result = error
        known(result)
        return result

    most = max(devices, key=_memory)
    first = answer(most)
    for device in devices:
        yield device, first if device == most else answer(device)


def largest(
    workload: Workload,
    limit: str | int | None = None,
    progress: Progress | None = None,
    grown: Grown | None = None,
) -> Fit:
    """Return the largest batch of an open target, as `fit` does. grown: filled with how a configuration's
    need grows, and read where that is known from another device."""
    nbytes = None if limit is None else _bytes(limit)
    if nbytes is None:
        workload = _on_device(workload)
    if workload.runtime is not None and workload.runtime.takes_limits:
        return Search(workload, nbytes, progress).answer()
    return by_analyses(workload, nbytes, progress, grown)


def largest_batch(workload: Workload, known: Analysis, progress: Progress | None = None) -> int:
    """Return the batch of `largest` alone. known: the target's analysis at some batch.

    Where no request in it is a convolution's workspace, which another batch may decide otherwise, batches are
    only evaluated: the answer itself is not captured once more.
    """
    workload = _on_device(workload)
    if workload.runtime is None or not workload.runtime.takes_limits:
        return by_analyses(workload, None, progress, beyond=False).batch
    if not convolves(known.events):
        batch = Search(workload, None, progress, known).by_figures()
        if batch is not None:
            return batch
    return Search(workload, None, progress).largest()[0]


def over_lengths(
    target: str, devices: Sequence[str], options: Options, progress: Progress | None = None
) -> Lengths:
    """Return the largest batch of every length by device. Raises AnalyzerError if the first fails."""
    workload = Workload(target, replace(options, length=None), progress)
    last = (
        opened(target, options.revision).number("max_position_embeddings") if workload.config else None
    ) or LAST
    rows: dict[int, tuple[Fit | None, ...]] = {}
    notes: tuple[str, ...] = ()
    length = options.length or FIRST
    alive = set(range(len(devices)))
    lengths = (last // length).bit_length()
    steps = Countdown(lengths * len(devices), progress)
    while alive and length <= last:
        row: list[Fit | None] = [None] * len(devices)
        try:
            grown: Grown = {}
            sized = workload.fixed(length=length)  # what is captured for one device serves the others
            for place in sorted(alive):
                steps.begin(f"length {length:,} on {devices[place]}")
                row[place] = fit = largest(sized.on(devices[place]), None, steps.tell, grown)
                if fit.batch == 0:
                    alive.discard(place)
        except AnalyzerError as error:
            if not rows:
                raise
            notes = (f"at length {length:,} the program itself fails: {error.message}",)
            break
        rows[length] = tuple(row)
        length *= 2
    if alive and not notes:
        notes = (f"the model has {last:,} positions",) if last != LAST else ()
    return Lengths(target, tuple(devices), rows, notes)


def by_analyses(
    workload: Workload,
    limit: int | None,
    progress: Progress | None,
    grown: Grown | None = None,
    beyond: bool = True,
) -> Fit:
    """Return the largest batch under `limit` bytes of the allocator. grown: as of `largest`; beyond: whether
    larger ones are tried beyond one that fails. Raises AnalyzerError."""
    if limit is not None:
        if workload.runtime is None:
            what = "a configuration" if workload.config else "a target that is analysed as a whole"
            raise OptionError(f"a limit of the allocator is not for {what}", "say --device SIZE, or --budget")
        if limit < resolve(workload.options.device)[0].usable_bytes:  # else the device is the limit
            workload = workload.under(workload.runtime.limited_to(workload.options, limit))

    def analysed(batch: int) -> Analysis:
        if progress is not None:
            progress(f"batch {batch}")
        return workload.analysis(batch, needs=not _makes_tokens(workload.options))

    grown = {} if grown is None else grown
    start = where_full(grown, workload.options) if workload.config and len(grown) > 1 else 1
    first = analysed(start)
    known: dict[int, Estimate] = {start: first.estimate}
    growth: dict[int, str] = {start: first.prediction.growth}

    def runs(batch: int) -> bool:
        if batch not in known:
            analysis = analysed(batch)
            known[batch], growth[batch] = analysis.estimate, analysis.prediction.growth
        return known[batch].within(known[batch].allowed_bytes) and not known[batch].doubt

    def surely(batch: int) -> bool:
        return runs(batch) and known[batch].verdict() == "fits"

    if workload.config:
        if start == 1 and runs(1):
            start = _by_slope(known[1], runs, known)
        galloped(start, 0, MOST, runs)
        served = [size for size in known if runs(size)]
        grown |= {size: known[size].device_used for size in served}
    else:
        low, step = 0, 1
        if runs(1):
            low = 1 if workload.runtime is None else _with_room(workload, first.estimate)
        if not runs(max(low, 1)):
            low = 0  # what was evaluated is not what is analysed
        while low < MOST and runs(min(low + step, MOST)):
            low, step = min(low + step, MOST), 2 * step
        bisected(low, min(low + step, MOST), runs)
    batch = by_figures = max(filter(runs, tuple(known)), default=0)
    if batch and beyond and workload.runtime is not None:
        _try_beyond(batch, runs, known)
    perhaps = batch
    if batch and beyond and not known[batch].at_least:
        low = max((size for size in known if size < batch and surely(size)), default=0)
        if not surely(batch):
            batch = galloped(batch - 1, low, batch, surely)
        batch = _below_doubt(batch, surely, known)
    if beyond and not known[by_figures or start].at_least:
        perhaps = _perhaps(by_figures, runs, known)
    perhaps = max(perhaps, by_figures)
    at, fails = known.get(batch), known.get(max(by_figures, perhaps) + 1)
    some = at or first.estimate
    besides = some.device_used - some.peak_reserved
    room = max(some.allowed_bytes - besides, 0)
    if workload.runtime is not None:
        room = min(room, workload.runtime.own_limit(workload.options) or room)
    verdict = some.verdict()
    return Fit(
        batch,
        at,
        room,
        limit is None,
        also=tuple(size for size in sorted(filter(runs, known)) if size > by_figures and surely(size)),
        captures=tuple(sorted(known)),
        growth=growth.get(max(by_figures, perhaps) + 1, ""),
        fails=max(by_figures, perhaps) + 1,
        perhaps=perhaps if perhaps > batch else 0,
        notes=(*_in_doubt(known, batch, perhaps), *_notes(at, first), *assumptions(first)),
        failure=None if fails is None else fails.out_of_memory,
        look_beyond=None if fails is None else lambda: fails,
        verdict=verdict if at is not None or verdict != "fits" else "may not fit",
        reserved_range=at.reserved_range if at is not None else (room, room),
    )


def _notes(at: Estimate | None, first: Analysis) -> Iterator[str]:
    """Yield the answer's notes, and instead of bytes under cheaper settings where their batches are."""
    settings = [saving.setting for saving in first.prediction.savings]
    for note in () if at is None else at.notes:
        if not (isinstance(note, Note) and CHEAPER_SETTING.has(note) and note.figures["setting"] in settings):
            yield note
    if settings and at is not None:
        yield "the largest batch under each cheaper setting: analyze what-if --largest"


def _try_beyond(batch: int, runs: Callable[[int], bool], known: Mapping[int, Estimate]) -> None:
    """Analyse larger batches than one whose next fails, and the ends of each range that runs."""
    step, last = max(batch // _PARTS, 1), min(_TIMES * batch, MOST)
    tried, failed = batch + 1, 0
    while failed < 2 and tried + step <= last:
        before, tried = tried, tried + step
        if runs(tried) and not runs(before):
            bisected(before, tried, lambda size: not runs(size))
        elif runs(before) and not runs(tried):
            bisected(before, tried, runs)
        failed = failed + 1 if known[tried].verdict() == "does not fit" else 0


def _in_doubt(known: Mapping[int, Estimate], batch: int, perhaps: int) -> Iterator[str]:
    """Yield notes on the batches above the answer that may not fit, and on those that surely run."""
    above = [size for size in sorted(known) if batch < size <= perhaps]
    doubted = [size for size in above if known[size].verdict() != "fits" or known[size].doubt]
    for size in doubted[:1]:
        yield f"batch {size:,} may not fit: {known[size].doubt or 'at the most of its range it has no room'}"
    surely = [size for size in above if size not in doubted]
    if doubted and surely:
        yield f"batch {surely[-1]:,} surely runs: the runtime makes do with less there"


def _below_doubt(batch: int, surely: Callable[[int], bool], known: Mapping[int, Estimate]) -> int:
    """Return the largest batch up to `batch` that surely runs, as all do that were analysed below it."""
    while batch and (doubted := [size for size in known if size < batch and not surely(size)]):
        most = min(doubted)
        low = max((size for size in known if size < most), default=0)
        batch = galloped(max(most - 1, low), low, most, surely) if low < most - 1 else low
    return batch


def _perhaps(batch: int, runs: Callable[[int], bool], known: Mapping[int, Estimate]) -> int:
    """Return the largest batch next to one that runs which may run, if all that is assumed is at its best."""

    def may(size: int) -> bool:
        runs(size)
        return known[size].verdict() == "may not fit"

    return galloped(batch, batch, MOST, lambda size: size == batch or may(size)) if batch < MOST else batch


def _by_slope(one: Estimate, runs: Callable[[int], bool], known: Mapping[int, Estimate]) -> int:
    """Return a batch near the largest, from steady growth per sample; the search starts there."""
    if not runs(2):
        return 1
    grows = max(known[2].device_used - one.device_used, 1)
    batch, step = min(2 + (one.allowed_bytes - known[2].device_used) // grows, MOST), 1
    while not runs(batch):
        batch, step = max(batch - step, 2), 2 * step
    return batch


def _makes_tokens(options: Options) -> bool:
    """Return whether a configuration's program generates: it is followed on the device, and its need with
    room, which decides nothing here, would cost as much again."""
    return options.mode == "generate" or options.task == "grpo"


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
    return all(interval.figures is not None for interval in intervals.intervals)


def _on_device(workload: Workload) -> Workload:
    """Return the workload on its device, or on the default one if none was named."""
    return workload.on(resolve(None)[0].name) if workload.options.device is None else workload


def _memory(device: str | int | None) -> int:
    """Return the bytes a process may hold there, 0 for a device that cannot be told."""
    try:
        return resolve(device)[0].usable_bytes
    except AnalyzerError:
        return 0


def _bytes(limit: str | int) -> int:
    nbytes = limit if isinstance(limit, int) else parse_size(limit)
    if nbytes < 1:
        raise InputError(f"a limit of {nbytes} bytes holds nothing", 'write a size such as "8GiB"')
    if isinstance(limit, int):
        check_bare(limit)
    return nbytes
