"""A snapshot of PyTorch's allocator: settings, segments with their blocks, and the history of each device.

1. `torch.cuda.memory._dump_snapshot` writes a dictionary of these; `torch.cuda.memory_snapshot()` gives the
   list of segments alone. Both are read, and whatever else lies in the file is not looked at.
2. Every release since 1.13 is read: keys that came later (`requested_size`, `is_expandable`,
   `segment_pool_id`, `allocator_settings`, `category`) may be missing.
3. Sizes and addresses are integers that fit 64 bits; blocks tile their segment. A file that says otherwise is
   no snapshot.

Source: `torch/cuda/memory.py`, `torch/csrc/cuda/Module.cpp` (THCPModule_memorySnapshot).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyzer.allocators.pytorch.segments import BlockState, SegmentState
from analyzer.allocators.pytorch.settings import INTERVAL_COUNT, PyTorchSettings, settings_from_conf
from analyzer.errors import InputError, OptionError
from analyzer.recordings.plain_pickle import HINT, load
from analyzer.recordings.trace import MAP, Stacks, Trace

MIB = 2**20
DEFAULT_POOL = (0, 0)
_DEVICES = 256
_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class RecordedSegment:
    """A segment as it was at the end. state: with its blocks. pool: of a graph or a user, (0, 0) without.
    stacks: of each block."""

    state: SegmentState
    pool: tuple[int, int]
    stacks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Annotation:
    """A moment the program marked ("Optimizer.step#Adam.step"), in microseconds."""

    name: str
    time: int


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """The segments of one device at the end, and its history (None: none was recorded)."""

    number: int
    segments: tuple[RecordedSegment, ...]
    trace: Trace | None

    @property
    def reserved(self) -> int:
        """Bytes held at the end."""
        return sum(segment.state.size for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A file's contents. conf: the settings as PYTORCH_ALLOC_CONF spells them. step_ends: ends of optimizer
    steps."""

    settings: PyTorchSettings
    conf: str
    devices: tuple[DeviceRecord, ...]
    stacks: Stacks
    step_ends: tuple[Annotation, ...] = ()
    notes: tuple[str, ...] = field(default=())


def read(path: Path) -> Snapshot:
    """Return the snapshot in a file. Raises InputError."""
    value, stacks, traces = load(path)
    try:
        return _snapshot(value, stacks, traces, path.stat().st_size)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: the pickle holds no snapshot ({_reason(error)})", HINT) from None


def _snapshot(value: Any, stacks: Stacks, traces: Mapping[int, Trace], size: int) -> Snapshot:
    if isinstance(value, list):
        value = {"segments": value}
    if not isinstance(value, dict) or not isinstance(value.get("segments"), list):
        raise ValueError("there is no list of segments")
    lists = value.get("device_traces") or []
    if not isinstance(lists, list) or len(lists) > _DEVICES:
        raise ValueError(f"histories of more than {_DEVICES} devices, or none")
    by_device: dict[int, list[RecordedSegment]] = {}
    budget = _Budget(size)
    for segment in value["segments"]:
        device = _number(segment.get("device", 0))
        by_device.setdefault(device, []).append(_segment(segment, stacks, budget))
    traced = {number: traces[id(entries)] for number, entries in enumerate(lists) if id(entries) in traces}
    if len({id(trace) for trace in traced.values()}) < len(traced):
        raise ValueError("two devices share a history")
    devices = tuple(
        DeviceRecord(
            number,
            tuple(sorted(by_device.get(number, ()), key=lambda segment: segment.state.address)),
            traced.get(number),
        )
        for number in sorted({*by_device, *traced})
    )
    settings, conf, notes = _settings(value.get("allocator_settings"), devices)
    return Snapshot(settings, conf, devices, stacks, _step_ends(value.get("external_annotations")), notes)


class _Budget:
    """No more blocks than the file has bytes, however often a list is referred to."""

    def __init__(self, count: int) -> None:
        self._left = count

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError("it refers to the same blocks again and again")


def _segment(segment: Any, stacks: Stacks, budget: _Budget) -> RecordedSegment:
    address, total = _number(segment["address"]), _number(segment["total_size"])
    blocks, frames, at = [], [], address
    budget.take(1 + len(segment["blocks"]))
    for block in segment["blocks"]:
        size, state = _number(block["size"]), block["state"]
        if size == 0 or block.get("address", at) != at:
            raise ValueError(f"the blocks of the segment at {address:#x} do not tile it")
        used = state == "active_allocated"
        pending = state in ("active_pending_free", "active_awaiting_free")
        if not used and not pending and state != "inactive":
            raise ValueError(f"a block is {_shown(state)}")
        requested = _number(block.get("requested_size", size)) if used or pending else 0
        blocks.append(BlockState(at, size, requested, used, pending))
        frames.append(stacks.ref(block.get("frames")).number)
        at += size
    if at != address + total:
        raise ValueError(f"the blocks of the segment at {address:#x} do not tile it")
    small = segment.get("segment_type", "small" if total == 2 * MIB else "large") == "small"
    pool = segment.get("segment_pool_id", DEFAULT_POOL)
    if not isinstance(pool, tuple) or len(pool) != 2:
        raise ValueError("a pool has no name of two numbers")
    expandable = segment.get("is_expandable", False) is True
    state = SegmentState(address, total, small, expandable, tuple(blocks), _number(segment.get("stream", 0)))
    return RecordedSegment(state, (_number(pool[0]), _number(pool[1])), tuple(frames))


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _LIMIT:
        raise ValueError(f"{_shown(value)} is no size and no address")
    return value


def _shown(value: Any) -> str:
    """Return a value in a message; of a container, which may hold itself or be nested without end, its
    kind."""
    return f"{value!r:.40}" if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def _reason(error: Exception) -> str:
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, KeyError):
        return f"a part of it has no {error.args[0]!r:.40}"
    return "a part of it is of another type"


def _settings(values: Any, devices: tuple[DeviceRecord, ...]) -> tuple[PyTorchSettings, str, tuple[str, ...]]:
    """Return the settings of the recorded program, how they are spelt, and notes on them."""
    if not isinstance(values, dict):
        expandable = any(_is_expandable(device) for device in devices)
        conf = "expandable_segments:True" if expandable else ""
        note = "the snapshot does not say the allocator's settings (before torch 2.1): the default ones"
        return settings_from_conf(conf), conf, (note,)
    named = (values.get(name) for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"))
    conf = next((text for text in named if isinstance(text, str) and text), "")
    listed = ",".join(_spelt(values))
    try:
        settings = settings_from_conf(conf)
        if not conf:
            settings, conf = settings_from_conf(listed), listed
    except OptionError:
        settings, conf = settings_from_conf(listed), listed
    return settings, conf, ()


def _spelt(values: Mapping[Any, Any]) -> Iterator[str]:
    """Yield the settings that are not the default ones."""
    if values.get("expandable_segments") is True:
        yield "expandable_segments:True"
    size, threshold = values.get("max_split_size"), values.get("garbage_collection_threshold")
    if isinstance(size, int) and 0 < size < 2**40:
        yield f"max_split_size_mb:{size // MIB}"
    if isinstance(threshold, float) and 0 < threshold < 1:
        yield f"garbage_collection_threshold:{threshold}"
    divisions = values.get("roundup_power2_divisions")
    if isinstance(divisions, dict):
        counts = {str(k): v for k, v in divisions.items() if k != -1 and isinstance(v, int)}
        if len(counts) == INTERVAL_COUNT and any(counts.values()):
            spelt = ",".join(f"{size}:{count}" for size, count in counts.items())
            yield f"roundup_power2_divisions:[{spelt}]"


def _is_expandable(device: DeviceRecord) -> bool:
    trace = device.trace
    mapped = trace is not None and MAP in trace.action
    return mapped or any(segment.state.expandable for segment in device.segments)


def _step_ends(values: Any) -> tuple[Annotation, ...]:
    """Return the ends of optimizer steps among what the program marked."""
    ends = []
    for value in values if isinstance(values, list) else ():
        name, time = (value.get("name"), value.get("time_us")) if isinstance(value, dict) else (None, None)
        is_end = isinstance(name, str) and name.startswith("Optimizer.step") and value.get("stage") == "END"
        if is_end and type(time) is int:
            ends.append(Annotation(str(name), time))
    return tuple(sorted(ends, key=lambda mark: mark.time))
