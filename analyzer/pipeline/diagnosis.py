"""Diagnosis: unusual memory use of an analysed program, reported beside its figures.

1. **Fragmentation** where the allocator holds a tenth more than is in use, and that is more than a hundredth
   of the device: less decides nothing. The requests are served again under each setting
   (`runtimes/under_settings.py`).
2. **Growth** where it is held in vain, or the program does not fit and it makes up a third of its peak.

Only the analysis that is shown is diagnosed; searches over many do without. Events are served again far
faster than a program is followed: six different steps of GPT-2 (124 million parameters, 13,849 events) take
30 s to follow, and 0.7 s here.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.expandable import RANGE_BYTES
from analyzer.allocators.pytorch.settings import PyTorchSettings
from analyzer.analysis import Analysis
from analyzer.graph import view_of
from analyzer.liveness.growth import Rise, growth
from analyzer.pipeline.rows import described, holder_words
from analyzer.results.diagnosis import Fragmentation, Growth, UnderSetting
from analyzer.results.estimate import UNREAD, Estimate
from analyzer.runtimes.events import Event, Malloc
from analyzer.runtimes.timeline import simulate
from analyzer.runtimes.under_settings import SETTINGS, Held, setting_name, under_setting

_TENTH, _WORTH = 10, 100
_FRACTION = "set_per_process_memory_fraction"
_VAIN = 2


def diagnosed(analysis: Analysis) -> Analysis:
    """Return the analysis with fragmentation and growth in its estimate."""
    estimate = analysis.estimate
    return replace(
        analysis,
        estimate=replace(
            estimate, fragmentation=_fragmentation(analysis, estimate), growth=_growth(analysis, estimate)
        ),
    )


def _fragmentation(analysis: Analysis, estimate: Estimate) -> Fragmentation | None:
    """Return the fragmentation, None where there is little."""
    needed, usable = estimate.needed, estimate.usable_bytes
    unused = needed.peak_reserved - needed.peak_allocated
    if _TENTH * unused < needed.peak_allocated or _WORTH * unused < usable:
        return None
    if needed.peak_reserved > RANGE_BYTES:  # more than an expandable segment has addresses for
        return None
    prediction = analysis.prediction
    allocator = None if prediction.plain is not None else prediction.allocator()
    if not isinstance(allocator, PyTorchAllocator) or not prediction.has_all_events:
        return None
    own, beside = allocator.settings, needed.device_used - needed.peak_reserved
    if under_setting(analysis.events, own, {}).peak_reserved != needed.peak_reserved:
        return None  # steps that were forgotten have left their traces in the allocator
    rows = []
    for change in SETTINGS:
        if any(getattr(own, name) == value for name, value in change.items()):
            continue
        here = None
        if "garbage_collection_threshold" in change and not _has_fraction(analysis, own):
            fits = estimate.out_of_memory is None
            held = Held(setting_name(change), needed.peak_allocated, needed.peak_reserved, fits)
        else:
            held = under_setting(analysis.events, own, change)
            fits = held.peak_reserved + beside <= usable
            if not fits:
                here = under_setting(analysis.events, own, change, max(usable - beside, 1))
                fits = here.served
        rows.append(
            UnderSetting(
                held.setting,
                held.peak_allocated,
                held.peak_reserved,
                held.peak_reserved + beside,
                fits,
                here.peak_reserved if here is not None and here.served else None,
            )
        )
    rows.sort(key=lambda row: row.peak_reserved)
    return _missed(analysis, tuple(rows))


def _has_fraction(analysis: Analysis, own: PyTorchSettings) -> bool:
    """Return whether the program calls `set_per_process_memory_fraction`: nothing is collected without."""
    calls = (event for event in analysis.events if isinstance(event, Event))
    return own.per_process_memory_fraction is not None or any(event.name == _FRACTION for event in calls)


def _missed(analysis: Analysis, rows: tuple[UnderSetting, ...]) -> Fragmentation:
    """Return the requests that took a new segment although as much was free, with what settings hold."""
    simulation, describe = analysis.simulation, described(analysis.prediction, analysis.graph)
    missed: list[tuple[int, int, Malloc]] = []
    states = zip(analysis.events, simulation.allocated, simulation.reserved, strict=False)
    allocated = reserved = 0
    for event, now_allocated, now_reserved in states:
        free = reserved - allocated
        if isinstance(event, Malloc) and now_reserved > reserved and 0 < event.nbytes <= free:
            missed.append((event.nbytes, free, event))
        allocated, reserved = now_allocated, now_reserved
    if not missed:
        return Fragmentation(0, 0, 0, "", "", 0, rows)
    nbytes, free, largest = max(missed, key=lambda entry: entry[0])
    description = describe(largest)
    return Fragmentation(
        len(missed),
        sum(nbytes for nbytes, _, _ in missed),
        nbytes,
        description.operator or description.name,
        description.source,
        free,
        rows,
    )


def _growth(analysis: Analysis, estimate: Estimate) -> Growth | None:
    """Return the growth that matters, None without."""
    rise = growth(analysis.graph)
    if rise is None:
        return None
    total, words = rise.nbytes * rise.calls, holder_words(rise.kind)
    in_vain = words in UNREAD and _WORTH * total > _VAIN * estimate.peak_allocated
    if not in_vain and (estimate.within(estimate.usable_bytes) or 3 * total < estimate.peak_allocated):
        return None
    operator = None if rise.operator is None else analysis.graph.operators[rise.operator]
    return Growth(
        rise.nbytes,
        rise.calls,
        _full_at(analysis, estimate, rise),
        words,
        "" if operator is None else operator.name,
        "" if operator is None else operator.source,
        rise.every,
    )


def _full_at(analysis: Analysis, estimate: Estimate, rise: Rise) -> int:
    """Return the model's call in which the device is full: where a request finds no memory, or further on by
    as many as still fit."""
    needed, prediction, graph = estimate.needed, analysis.prediction, analysis.graph
    left = estimate.usable_bytes - needed.device_used
    if left < 0 and prediction.limited is not None and prediction.has_all_events:
        limit = max(estimate.usable_bytes - (needed.device_used - needed.peak_reserved), 1)
        failure = simulate(analysis.events, prediction.limited(limit, True)).failure
        if failure is not None and failure.malloc.operator >= 0:
            place = view_of(graph).nodes[~failure.malloc.operator]["position"]
            return max(bisect_right(rise.places, place), 1)
    return max(len(rise.places) + 1 + left // rise.nbytes * rise.every, 1)
