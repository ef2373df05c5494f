"""Unusual memory use of a program: fragmentation, and growth from call to call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnderSetting:
    """Bytes that the same requests reserve under an allocator's setting, with room. fits: all are served on
    the device. here_bytes: reserved on the device, where that is less since freed memory is given back; None
    elsewhere."""

    setting: str
    peak_allocated: int
    peak_reserved: int
    device_used: int
    fits: bool
    here_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Memory held by the allocator and not in use. missed_count, missed_bytes: requests for which a new
    segment was taken although as much was free in pieces, and their bytes; largest_bytes, largest, source: of
    the largest of them, what for and at which line; free_bytes: what was free then. settings: what others
    would hold, least first."""

    missed_count: int
    missed_bytes: int
    largest_bytes: int
    largest: str
    source: str
    free_bytes: int
    settings: tuple[UnderSetting, ...]


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change with which a program that runs out of memory fits, followed before it is named. kind:
    "environment" (a variable to set), "arguments" (the program's), "patch" (a diff of its file), or "device";
    typed: what is typed. The figures are the changed program's, in bytes. numbers: whether it changes the
    numbers that are computed. host_bytes: host memory that it takes for them; step_seconds: a step of it,
    None where no time is known. state: how far it was followed, "" to its end or until its steps repeat."""

    name: str
    kind: str
    typed: str
    peak_allocated: int
    peak_reserved: int
    device_used: int
    numbers: bool = False
    host_bytes: int = 0
    step_seconds: float | None = None
    state: str = ""


@dataclass(frozen=True, slots=True)
class Growth:
    """A model's calls that each leave more alive than the one before. All sizes in bytes.

    step_bytes: so many more a call; calls: how many in a row; every: how many calls of the model make one of
    these. full_at: the call at which the device is full.
    held_by: who keeps most of it ("a graph"); operator, source: what made most of it, and where.
    """

    step_bytes: int
    calls: int
    full_at: int
    held_by: str
    operator: str
    source: str
    every: int = 1
