"""Plays a program of `requests.py` on PyTorch's own allocator: `python request_states.py NAME SEED COUNT OUT`.

Needs torch alone, a CUDA build of it, and a GPU, or a CUDA runtime that answers for one. OUT gets a line of JSON for each state.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.subjects.requests import PROGRAMS, STREAMS, carry_out

_STATES = {"inactive": 0, "active_allocated": 1, "active_pending_free": 2, "active_awaiting_free": 2}


class Real:
    """PyTorch's allocator. What is held is a number: of an address, or of a tensor where streams may use it."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        self.taken = 0
        others = sorted((torch.cuda.Stream() for _ in range(STREAMS - 1)), key=lambda s: s.cuda_stream)
        self.streams = [torch.cuda.default_stream(), *others]
        self.number = {stream.cuda_stream: at for at, stream in enumerate(self.streams)}

    def take(self, nbytes: int, stream: int, tensor: bool) -> int | None:
        try:
            if tensor:
                with torch.cuda.stream(self.streams[stream]):
                    found: Any = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
            else:
                found = torch.cuda.caching_allocator_alloc(nbytes, 0, self.streams[stream])
        except torch.cuda.OutOfMemoryError:
            return None
        self.taken += 1
        self.held[self.taken] = found
        return self.taken

    def give(self, memory: int) -> None:
        found = self.held.pop(memory)
        if isinstance(found, int):
            torch.cuda.caching_allocator_delete(found)

    def use(self, memory: int, stream: int) -> None:
        self.held[memory].record_stream(self.streams[stream])

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()

    def fraction(self, value: float) -> None:
        torch.cuda.set_per_process_memory_fraction(value)

    def state(self) -> Any:
        """[peaks], and of each segment its address, bytes, pool, stream and kind, and its blocks' bytes, requests and states."""
        found = torch.cuda.memory_stats()
        figures = [
            found[f"{name}_bytes.all.{when}"]
            for name in ("allocated", "reserved", "requested")
            for when in ("current", "peak")
        ]
        segments = [
            [
                segment["address"],
                segment["total_size"],
                segment["segment_type"] == "small",
                self.number[segment["stream"]],
                segment["is_expandable"],
                [
                    [
                        block["size"],
                        block["requested_size"] if _STATES[block["state"]] else 0,
                        _STATES[block["state"]],
                    ]
                    for block in segment["blocks"]
                ],
            ]
            for segment in torch.cuda.memory_snapshot()
        ]
        return [figures, sorted(segments)]


def main() -> None:
    name, seed, count, out = sys.argv[1:]
    torch.cuda.init()
    with Path(out).open("w") as file:
        for state in carry_out(PROGRAMS[name], seed, int(count), Real()):
            file.write(json.dumps(state) + "\n")


if __name__ == "__main__":
    main()
