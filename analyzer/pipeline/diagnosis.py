"""What is unusual in how an analysed program takes memory, said beside its figures.

1. **Fragmentation** where the allocator holds a tenth more than is in use, and that is more than a hundredth
   of the device: less decides nothing. The requests are served again under each setting
   (`runtimes/under_settings.py`).
2. **Growth** where it is held in vain, or the program does not fit and it makes up most of its peak.

It is looked for once, of the analysis that is shown; searches over many analyses do without.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.expandable import RANGE_BYTES
from analyzer.analysis import Analysis
from analyzer.liveness.growth import growth
from analyzer.pipeline.rows import described, holder_words
from analyzer.results.diagnosis import Fragmentation, Growth, UnderSetting
from analyzer.results.estimate import UNREAD, Estimate
from analyzer.runtimes.events import Malloc
from analyzer.runtimes.under_settings import SETTINGS, under_setting

_TENTH, _WORTH = 10, 100
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
        held = under_setting(analysis.events, own, change)
        fits = held.peak_reserved + beside <= usable
        if not fits:
            fits = under_setting(analysis.events, own, change, max(usable - beside, 1)).served
        rows.append(
            UnderSetting(
                held.setting, held.peak_allocated, held.peak_reserved, held.peak_reserved + beside, fits
            )
        )
    rows.sort(key=lambda row: row.peak_reserved)
    return _missed(analysis, tuple(rows))


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
    if not in_vain and (estimate.within(estimate.usable_bytes) or 2 * total < estimate.peak_allocated):
        return None
    # The peak is at the last of these calls.
    left = estimate.usable_bytes - estimate.needed.device_used
    operator = None if rise.operator is None else analysis.graph.operators[rise.operator]
    return Growth(
        rise.nbytes,
        rise.calls,
        max(rise.calls + 1 + left // rise.nbytes, 1),
        words,
        "" if operator is None else operator.name,
        "" if operator is None else operator.source,
    )
