"""The recorded requests under other settings of the allocator: what each would hold, and whether it saves.

1. Each setting is simulated with the others as they were: once with room, and once within the limit, if a
   request failed. `garbage_collection_threshold` does something only beside a memory fraction, and is tried
   within the limit alone.
2. The **limit** is what was held when the request failed and what the device had free; where the device had
   room for the request, a memory fraction was in the way, and the limit is the most the program ever held, or
   what the request would have made of it less a byte, whatever is less.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from analyzer.allocators.pytorch.settings import PyTorchSettings, settings_from_conf
from analyzer.recordings.history import History
from analyzer.recordings.outcome import Outcome, Outcomes, segment_bytes
from analyzer.recordings.replay import Failed
from analyzer.results.recording import Way

TRIED = (
    "expandable_segments:True",
    "max_split_size_mb:128",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.8",
)
_FIELDS = (
    "expandable_segments",
    "max_split_size_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
)


class Limit(NamedTuple):
    """Bytes the allocator may hold. fraction: a memory fraction says so, and not the device."""

    nbytes: int
    fraction: bool


def limit_of(failed: Failed, peak_reserved: int, settings: PyTorchSettings) -> Limit:
    """Return the limit a request met."""
    wanted = segment_bytes(failed.entry.nbytes, settings)
    if failed.free_bytes < wanted:
        return Limit(max(failed.reserved + failed.free_bytes, peak_reserved), False)
    return Limit(min(max(failed.reserved, peak_reserved), failed.reserved + wanted - 1), True)


def within(settings: PyTorchSettings, limit: Limit | None) -> PyTorchSettings:
    """Return the settings with a limit, as the fraction or the device makes it."""
    plain = replace(settings, limit_bytes=None, per_process_memory_fraction=None, device_total_bytes=None)
    if limit is None:
        return plain
    if settings.garbage_collection_threshold:  # which goes by a fraction
        return replace(plain, per_process_memory_fraction=0.5, device_total_bytes=2 * limit.nbytes)
    return replace(plain, limit_bytes=limit.nbytes)


def ways(history: History, settings: PyTorchSettings, conf: str, limit: Limit | None) -> tuple[Way, ...]:
    """Return what the history takes as it was, and under each setting that was not in force."""
    outcomes = Outcomes(history)
    rows = [_way(outcomes, settings, conf or "the default settings", limit, True)]
    if settings.expandable_segments or conf:
        default = PyTorchSettings(ties=settings.ties)
        if within(settings, None) != default:
            rows.append(_way(outcomes, default, "the default settings", limit))
    for spelt, field in zip(TRIED, _FIELDS, strict=True):
        tried = replace(settings, **{field: getattr(settings_from_conf(spelt), field)})
        if getattr(settings, field) != getattr(PyTorchSettings(), field):
            continue
        if field == "garbage_collection_threshold" and limit is None:
            continue
        rows.append(_way(outcomes, tried, spelt, limit))
    return tuple(rows)


def _way(
    outcomes: Outcomes, settings: PyTorchSettings, spelt: str, limit: Limit | None, as_recorded: bool = False
) -> Way:
    room = outcomes.under(within(settings, None))
    if limit is None:
        return Way(spelt, room.peak_allocated, room.peak_reserved, None, as_recorded)
    pressed = outcomes.under(within(settings, limit))
    return Way(
        spelt, room.peak_allocated, room.peak_reserved, _served(pressed), as_recorded, pressed.peak_reserved
    )


def _served(result: Outcome) -> bool:
    return result.stopped < 0 and result.saved is not False
