"""The estimate as a PyTorch memory snapshot, which https://pytorch.org/memory_viz opens (drop the file on the
page).

1. The file is a pickle (protocol 4) of `segments`, `device_traces` and what
   `torch.cuda.memory._dump_snapshot` writes besides: `segments` is what is held at the end, `device_traces`
   every request and every call of the driver, in order.
2. Sizes, addresses and segments are those of the simulated allocator. Real addresses are the driver's
   choice; the prediction is which block lies in which segment, and the free space between them.
3. An allocator without addresses (a runtime of another package) has its blocks put into the lowest hole that
   fits, in one segment as large as that takes.
4. A block's frames name its purpose: tensor, operator, module and the line of the user's code.
5. A request's `size` in the trace is its block's, so that sums are what `memory_allocated` says; PyTorch
   writes the requested size there, which the blocks of `segments` have as `requested_size`.
6. `time_us` is the number of the event: the order is real, the clock is not.

Source: `torch/cuda/_memory_viz.py`, `torch/csrc/cuda/memory_snapshot.cpp`; a snapshot recorded on an H200.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from analyzer.errors import InputError
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean, operator_name
from analyzer.results.estimate import Allocations, Estimate, Origin, SegmentRow

_BASE = 0x7F0000000000
# A segment of the small pool; larger ones serve the large pool (`allocators/pytorch/caching.py`).
_SMALL_SEGMENT_BYTES = 2 * 2**20

Frames = list[dict[str, Any]]


def render(estimate: Estimate, _: View = PLAIN) -> bytes:
    """Return the file's content. Raises InputError for an estimate saved before blocks were kept."""
    blocks, segments = _placed(estimate)
    frames = [_frames(origin) for origin in blocks.origins]
    snapshot = {
        "segments": [_segment(segment, blocks, frames) for segment in segments if segment.died < 0],
        "device_traces": [list(_trace(blocks, segments, frames))],
        "external_annotations": [],
        "allocator_settings": {},
    }
    return pickle.dumps(snapshot, protocol=4)


def _placed(estimate: Estimate) -> tuple[Allocations, tuple[SegmentRow, ...]]:
    """Blocks with addresses, and the segments they lie in."""
    blocks = estimate.allocations
    if not blocks.born and any(estimate.timeline.delta):
        raise InputError(
            "this estimate was saved before it kept every block, which a snapshot shows",
            "make it again: analyze TARGET --format json -o FILE",
        )
    if estimate.segments or not blocks.born:
        return blocks, estimate.segments
    space = _Space()
    addresses = [0] * len(blocks.born)
    moments = sorted(
        [(event, place) for place, event in enumerate(blocks.born)]
        + [(event, ~place) for place, event in enumerate(blocks.died) if event >= 0]
    )
    for _, place in moments:
        if place >= 0:
            addresses[place] = space.take(blocks.nbytes[place])
        else:
            space.give(addresses[~place], blocks.nbytes[~place])
    placed = Allocations(
        blocks.born,
        blocks.died,
        blocks.nbytes,
        blocks.requested,
        tuple(addresses),
        blocks.origin,
        blocks.origins,
    )
    return placed, (SegmentRow(_BASE, space.end - _BASE, 0),)


class _Space:
    """Addresses without an upper end; holes sorted by address, neighbours merged."""

    def __init__(self) -> None:
        self.end = _BASE
        self.holes: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        """Return the lowest hole that fits, else the end."""
        for place, (address, room) in enumerate(self.holes):
            if room >= size:
                self.holes[place : place + 1] = [(address + size, room - size)] if room > size else []
                return address
        address, self.end = self.end, self.end + size
        return address

    def give(self, address: int, size: int) -> None:
        merged: list[tuple[int, int]] = []
        for start, room in sorted([*self.holes, (address, size)]):
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + room)
            else:
                merged.append((start, room))
        self.holes = merged


def _frames(origin: Origin) -> Frames:
    """Return an allocation's origin as stack frames, innermost first."""
    file, _, line = origin.source.rpartition(":")
    kind = ", ".join(filter(None, (origin.category, origin.phase)))
    shape = "x".join(map(str, origin.shape))
    name = " ".join(filter(None, (origin.name, shape, origin.dtype)))
    stack = [(name, kind, 0)]
    if origin.operator:
        stack.append((operator_name(origin.operator), origin.rule, 0))
    if origin.module or file:
        stack.append((origin.module or "program", file, int(line) if line.isdecimal() else 0))
    return [{"name": clean(name), "filename": clean(file), "line": number} for name, file, number in stack]


def _trace(
    blocks: Allocations, segments: tuple[SegmentRow, ...], frames: list[Frames]
) -> Iterator[dict[str, Any]]:
    """Requests, returns and calls of the driver in order; at one event the driver's come first."""
    calls = _driver_calls(segments)
    returned = {died: place for place, died in enumerate(blocks.died) if died >= 0}
    allocated = {born: place for place, born in enumerate(blocks.born)}
    for event in sorted({*calls, *returned, *allocated}):
        for action, address, size in calls.get(event, ()):
            yield _entry(action, event, address, size, 0, [])
        for actions, entries in ((("free_requested", "free_completed"), returned), (("alloc",), allocated)):
            if event in entries:
                place = entries[event]
                origin = blocks.origin[place]
                stream, frame = blocks.origins[origin].stream, frames[origin]
                for action in actions:
                    yield _entry(action, event, blocks.address[place], blocks.nbytes[place], stream, frame)


def _entry(action: str, event: int, address: int, size: int, stream: int, frames: Frames) -> dict[str, Any]:
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": stream,
        "time_us": event,
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": frames,
    }


def _driver_calls(segments: tuple[SegmentRow, ...]) -> dict[int, list[tuple[str, int, int]]]:
    """Return (action, address, size) by event; a resized run of pages is a difference."""
    gone: dict[int, list[SegmentRow]] = defaultdict(list)
    come: dict[int, list[SegmentRow]] = defaultdict(list)
    for segment in segments:
        come[segment.born].append(segment)
        if segment.died >= 0:
            gone[segment.died].append(segment)
    calls: dict[int, list[tuple[str, int, int]]] = {}
    for event in sorted({*gone, *come}):
        calls[event] = [
            (action, address, size)
            for action, these, others in (
                ("segment_free", gone[event], come[event]),
                ("segment_alloc", come[event], gone[event]),
            )
            for segment in these
            for address, size in _without(segment, others)
        ]
        if any(
            size != segment.nbytes
            for (_, _, size), segment in zip(calls[event], (*gone[event], *come[event]), strict=False)
        ):
            words = {"segment_free": "segment_unmap", "segment_alloc": "segment_map"}
            calls[event] = [(words[action], address, size) for action, address, size in calls[event]]
    return calls


def _without(segment: SegmentRow, others: list[SegmentRow]) -> list[tuple[int, int]]:
    """Return the (address, bytes) ranges of a segment that the others do not cover."""
    left, end = [], segment.address + segment.nbytes
    begin = segment.address
    for other in sorted(others, key=lambda other: other.address):
        stop = min(other.address, end)
        if stop > begin:
            left.append((begin, stop - begin))
        begin = max(begin, other.address + other.nbytes)
    if begin < end:
        left.append((begin, end - begin))
    return left


def _segment(segment: SegmentRow, blocks: Allocations, frames: list[Frames]) -> dict[str, Any]:
    """Return a segment at the end, tiled by used blocks and the free space between them."""
    end = segment.address + segment.nbytes
    inside = sorted(
        (blocks.address[place], place)
        for place, died in enumerate(blocks.died)
        if died < 0 and segment.address <= blocks.address[place] < end
    )
    tiles: list[dict[str, Any]] = []
    at = segment.address
    for address, place in inside:
        if address > at:
            tiles.append(_tile(at, address - at, 0, "inactive", []))
        size, requested = blocks.nbytes[place], blocks.requested[place]
        tiles.append(_tile(address, size, requested, "active_allocated", frames[blocks.origin[place]]))
        at = address + size
    if at < end:
        tiles.append(_tile(at, end - at, 0, "inactive", []))
    used = sum(blocks.nbytes[place] for _, place in inside)
    return {
        "device": 0,
        "address": segment.address,
        "total_size": segment.nbytes,
        "allocated_size": used,
        "active_size": used,
        "requested_size": sum(blocks.requested[place] for _, place in inside),
        "stream": blocks.origins[blocks.origin[inside[0][1]]].stream if inside else 0,
        "segment_type": "small" if segment.nbytes <= _SMALL_SEGMENT_BYTES else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": tiles,
    }


def _tile(address: int, size: int, requested: int, state: str, frames: Frames) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}
