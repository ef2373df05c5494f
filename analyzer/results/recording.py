"""A recording's findings beside its `Estimate`: the failure, the holders, the growth, the setting that
helps."""

from __future__ import annotations

from dataclasses import dataclass, field

from analyzer.results.estimate import Estimate, Origin


@dataclass(frozen=True, slots=True)
class Hole:
    """Free memory inside held segments: so many free blocks of a pool ("large", "small", "large, stream 2",
    ...), their bytes together and the largest of them. serves: whether the failed request may use that
    pool."""

    pool: str
    count: int
    nbytes: int
    largest_bytes: int
    serves: bool


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A request that found no room. All sizes in bytes. free_bytes: what the device had free; fraction:
    whether a memory fraction was in the way and not the device. asked_by: the stack in short."""

    nbytes: int
    segment_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    free_bytes: int
    fraction: bool
    asked_by: str
    holes: tuple[Hole, ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """Blocks in use at the peak whose requests came from one place."""

    place: str
    nbytes: int
    count: int


@dataclass(frozen=True, slots=True)
class Growth:
    """A place whose blocks in use became more from step to step: bytes a step, over so many steps, and held
    in the end."""

    place: str
    step_bytes: int
    step_count: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class Way:
    """The recorded requests under another setting, in bytes: with room, and whether all were served within
    the limit (None: no limit is known). as_recorded: the setting the program ran with."""

    setting: str
    peak_allocated: int
    peak_reserved: int
    served: bool | None
    as_recorded: bool = False
    limited_reserved: int | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """A snapshot of PyTorch's allocator, explained. limit_bytes: what the allocator could hold, None: not
    known. steps: how growth is counted ("optimizer steps", ...). parted: why the replay is not the record's,
    "" where every byte is."""

    estimate: Estimate
    event_count: int
    limit_bytes: int | None = None
    failed: tuple[FailedRequest, ...] = ()
    holders: tuple[Holding, ...] = ()
    growth: tuple[Growth, ...] = ()
    steps: str = ""
    ways: tuple[Way, ...] = ()
    parted: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that a message says, in bytes, with the precision it is printed with (0: to the byte)."""

    name: str
    nbytes: int
    precision_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """Requests of an estimate that are alike: bytes of each, as asked for, their number and purpose. likely:
    whether they are at the message's own line or node."""

    nbytes: int
    count: int
    origin: Origin
    likely: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """The text of an error for want of memory, understood. source: whose it is. figures: what it says.
    verdict, advice: sentences. unknown: what the text does not say. place: the user's own line where it
    happened ("model.py:34, in forward: return self.head(x)"), "" where no traceback says so. operator: the
    node of an ONNX file where it happened. harmless: what it says ends no program. requests: of that size in
    an estimate, where one was given (`recordings/requests.py`); need: a sentence on what it takes in all."""

    source: str
    verdict: str
    figures: tuple[Figure, ...]
    advice: tuple[str, ...]
    quoted: str
    unknown: tuple[str, ...] = field(default=())
    place: str = ""
    harmless: bool = False
    operator: str = ""
    requests: tuple[Request, ...] = ()
    need: str = ""
