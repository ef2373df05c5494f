"""Snapshots as large as users have them, of a made-up program.

Layers that keep their results for the backward pass, an optimizer, sizes that change from step to step, on the simulated allocator, so
that the history is one an allocator makes. Entries lie in the file as `torch.cuda.memory._dump_snapshot` puts them: a dictionary each,
with a list of its own for every stack, whose frames (80 of Python and C++) are shared. The ring buffer is full: its beginning is lost.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from analyzer.allocators.pytorch.caching import PyTorchAllocator

_LAYERS, _SITES, _DEPTH = 48, 12, 80


class Recorder:
    """Records what an allocator does, as PyTorch's ring buffer: the last `most` entries. seed: of the sizes."""

    def __init__(self, most: int, seed: int = 0) -> None:
        self.allocator = PyTorchAllocator()
        self.entries: deque[dict[str, Any]] = deque(maxlen=most)
        self._random = random.Random(seed)
        self._shared = [
            [self._frame(depth + 1000 * part) for depth in range(_DEPTH - 4)] for part in range(_LAYERS)
        ]
        self._own: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
        self._held: dict[int, int] = {}
        self._at: dict[int, tuple[int, int, int, list[dict[str, Any]]]] = {}  # by handle
        self._time = 1_700_000_000_000_000

    def _frame(self, number: int, file: str = "torch/nn/modules/module.py") -> dict[str, Any]:
        python = number % 2
        return {
            "name": f"_call_impl_{number}"
            if python
            else f"at::_ops::addmm_{number}::call(at::Tensor const&, at::Tensor const&)",
            "filename": f"/usr/lib/python3/site-packages/{file}" if python else "??",
            "line": 100 + number if python else 0,
        }

    def frames(self, what: str, layer: int, site: int) -> list[dict[str, Any]]:
        """A new list of the frames of a place, which are the same every time."""
        key = what, layer, site
        if key not in self._own:
            self._own[key] = [
                {"name": f"at::_ops::{what}_{site}::call(at::Tensor const&)", "filename": "??", "line": 0},
                {"name": what, "filename": "/home/user/model.py", "line": 10 * layer + site},
                {"name": "step", "filename": "/home/user/train.py", "line": 20 + site},
                {"name": "<module>", "filename": "/home/user/train.py", "line": 99},
            ]
        own = self._own[key]
        return [*own[:2], *self._shared[layer], *own[2:]]

    def _add(self, action: str, address: int, size: int, frames: list[dict[str, Any]]) -> None:
        self._time += 7
        self.entries.append(
            {"action": action, "addr": address, "size": size, "stream": 0, "time_us": self._time, "compile_context": "N/A",
             "user_metadata": "", "frames": frames}
        )  # fmt: skip

    def take(self, nbytes: int, frames: list[dict[str, Any]]) -> int:
        """A request; what the allocator takes of the device for it comes before it."""
        handle = self.allocator.malloc(nbytes)
        now = dict(self.allocator.segments())
        for address in self._held.keys() - now.keys():
            self._add("segment_free", address, self._held[address], [])
        for address in now.keys() - self._held.keys():
            self._add("segment_alloc", address, now[address], frames)
        self._held = now
        address = self.allocator.address_of(handle)
        self._at[handle] = address, nbytes, self.allocator.size_of(handle), frames
        self._add("alloc", address, nbytes, frames)
        return handle

    def give(self, handle: int, frames: list[dict[str, Any]]) -> None:
        """A block is given back: two entries."""
        address, _, size, _ = self._at.pop(handle)
        self.allocator.free(handle)
        self._add("free_requested", address, size, frames)
        self._add("free_completed", address, size, frames)

    def size(self, mean: int) -> int:
        """Bytes about a mean."""
        return max(int(mean * self._random.uniform(0.25, 4)), 512)

    def snapshot(self) -> dict[str, Any]:
        """What `_dump_snapshot` would write."""
        blocks_at = {address: (nbytes, frames) for address, nbytes, _, frames in self._at.values()}
        segments = []
        for state in self.allocator.snapshot():
            blocks = []
            for block in state.blocks:
                nbytes, frames = blocks_at.get(block.address, (0, [])) if block.allocated else (0, [])
                blocks.append(
                    {"address": block.address, "size": block.size, "requested_size": nbytes,
                     "state": "active_allocated" if block.allocated else "inactive", "frames": frames}
                )  # fmt: skip
            segments.append(
                {"device": 0, "address": state.address, "total_size": state.size, "stream": 0, "segment_type": "small" if state.small
                 else "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks,
                 "allocated_size": sum(b.size for b in state.blocks if b.allocated),
                 "active_size": sum(b.size for b in state.blocks if b.allocated), "requested_size": 0}
            )  # fmt: skip
        return {
            "segments": segments,
            "device_traces": [list(self.entries)],
            "allocator_settings": {},
            "external_annotations": [],
        }


def trained(entries: int) -> dict[str, Any]:
    """A snapshot of a training whose ring buffer holds so many entries, and lost as many as a tenth of them before."""
    recorder = Recorder(entries)
    weights = [
        recorder.take(recorder.size(4 << 20), recorder.frames("init", layer, 0)) for layer in range(_LAYERS)
    ]
    made = 0
    while made < entries * 1.1:
        kept: list[tuple[int, int]] = []
        for layer in range(_LAYERS):
            for site in range(_SITES):
                handle = recorder.take(
                    recorder.size(1 << (12 + site)), recorder.frames("forward", layer, site)
                )
                made += 1
                if site % 3:
                    kept.append((handle, layer))
                else:
                    recorder.give(handle, recorder.frames("forward", layer, site))
                    made += 2
        for handle, layer in reversed(kept):
            gradient = recorder.take(recorder.size(1 << 18), recorder.frames("backward", layer, 1))
            recorder.give(handle, recorder.frames("backward", layer, 2))
            recorder.give(gradient, recorder.frames("backward", layer, 3))
            made += 5
    assert weights
    return recorder.snapshot()
