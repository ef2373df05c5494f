"""The estimate as a PyTorch memory snapshot, which https://pytorch.org/memory_viz opens (drop the file on the page).

1. The file is a pickle (protocol 4) of `segments` and `device_traces`, as `torch.cuda.memory._dump_snapshot` writes.
2. The estimate knows sizes and order, not addresses: each block goes to the lowest hole that fits, in one segment that
   is as large as that takes. Read "Active Memory Timeline"; segments and addresses are not a prediction.
3. A free gives back the latest living block of its name and size: such blocks look the same to a reader.
4. What a block is for stands in its frames: its name, with category and phase as file name.

Source: `torch/cuda/_memory_viz.py` and `torch/csrc/cuda/memory_snapshot.cpp` for the format.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from typing import Any

from analyzer.estimate import Estimate
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean

_BASE = 0x7F0000000000
_STREAM = 0


def render(estimate: Estimate, _: View = PLAIN) -> bytes:
    """The file's content."""
    trace: list[dict[str, Any]] = []
    space = _Space()
    living: dict[tuple[str, int], list[int]] = defaultdict(list)
    frames: dict[int, list[dict[str, Any]]] = {}
    line = estimate.timeline
    rows = zip(line.label, line.delta, line.category, line.phase, strict=True)
    for moment, (label, delta, category, phase) in enumerate(rows):
        if delta == 0:
            continue
        if delta > 0:
            address = space.take(delta)
            living[label, delta].append(address)
            frames[address] = [{"name": clean(label), "filename": clean(f"{category}, {phase}"), "line": 0}]
            actions: tuple[str, ...] = ("alloc",)
        else:
            address = living[label, -delta].pop()
            space.give(address, -delta)
            actions = ("free_requested", "free_completed")
        entry = {"addr": address, "size": abs(delta), "stream": _STREAM, "frames": frames[address]}
        trace += [{"action": action, "time_us": moment, **entry} for action in actions]
    blocks = {address: size for (_, size), addresses in living.items() for address in addresses}
    segments = [_segment(space, blocks, frames)] if space.end > _BASE else []
    whole = {"addr": _BASE, "size": space.end - _BASE, "stream": _STREAM, "frames": []}
    trace[:0] = [{"action": "segment_alloc", "time_us": 0, **whole} for _ in segments]
    return pickle.dumps({"segments": segments, "device_traces": [trace]}, protocol=4)


class _Space:
    """Addresses without an upper end; holes sorted by address, neighbours merged."""

    def __init__(self) -> None:
        self.end = _BASE
        self.holes: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        """The lowest hole that fits, else the end."""
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


def _segment(
    space: _Space, blocks: dict[int, int], frames: dict[int, list[dict[str, Any]]]
) -> dict[str, Any]:
    tiles = [(address, size, "active_allocated") for address, size in blocks.items()]
    tiles += [(address, size, "inactive") for address, size in space.holes]
    used = sum(blocks.values())
    return {
        "device": 0,
        "address": _BASE,
        "total_size": space.end - _BASE,
        "allocated_size": used,
        "active_size": used,
        "requested_size": used,
        "stream": _STREAM,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {
                "address": address,
                "size": size,
                "requested_size": size,
                "state": state,
                "frames": frames[address] if state == "active_allocated" else [],
            }
            for address, size, state in sorted(tiles)
        ],
    }
