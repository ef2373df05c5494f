"""Recorded programs and where their segments lay, made by `benchmarks/harness/histories.py`.

`histories_whole_programs.xz` holds 45 (training loops, Trainer, Lightning, LoRA, generation, compiled models, the allocator's
settings), `histories_kinds_of_programs.xz` those of `programs.json`, `histories_ranks.xz` the ranks of 23 programs on two
GPUs, with their streams. Each is 8 bytes with the length of a JSON list of programs, the list, then for all programs in a
row the events' actions (one byte: 0 request, 1 return, 2 to 5 as in `EXCHANGES`, and 8 times the stream), their values (8
bytes: the bytes of a request, segment or page run; of a return, how many requests ago it was made) and the addresses of the
segments (8 bytes). A return is where the block was free again, which is later than asked for where another stream used it.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzer.allocators.driver import AddressSpace
from tests.paths import DATA

EXCHANGES = {2: "segment_alloc", 3: "segment_free", 4: "segment_map", 5: "segment_unmap"}


class Recorded(AddressSpace):
    """Segments where the recorded run had them."""

    def __init__(self, addresses: list[int]) -> None:
        super().__init__()
        self._addresses = iter(addresses)

    def take(self, size: int) -> int:  # noqa: ARG002
        return next(self._addresses)


@dataclass(frozen=True)
class History:
    """One program's record. coded: its actions and values as they stand in the file."""

    row: dict[str, Any]
    coded: tuple[npt.NDArray[np.int8], npt.NDArray[np.int64]]
    addresses: list[int]

    @cached_property
    def events(self) -> list[tuple[int, int, int]]:
        """(action, value, stream), as the module docstring says: made when they are looked at, since there are millions."""
        actions, values = self.coded
        return [
            (action % 8, value, action // 8)
            for action, value in zip(actions.tolist(), values.tolist(), strict=True)
        ]

    @property
    def gives_back_when_told(self) -> bool:
        return not self.row["retries"] and "garbage_collection" not in self.row["conf"]


def _path(of: str) -> Path:
    return DATA / "h200" / f"histories_{of}.xz"


def names(of: str) -> list[str]:
    """The programs of one file, in order of their names; only the list at its beginning is read."""
    with lzma.open(_path(of)) as file:
        length = int.from_bytes(file.read(8), "little")
        return sorted(row["name"] for row in json.loads(file.read(length))["programs"])


@cache
def histories(of: str = "whole_programs") -> dict[str, History]:
    """The programs of one file by name."""
    data = lzma.decompress(_path(of).read_bytes())
    length = int.from_bytes(data[:8], "little")
    rows = json.loads(data[8 : 8 + length])["programs"]
    events, segments = sum(row["count"] for row in rows), sum(row["segments"] for row in rows)
    actions = np.frombuffer(data, np.int8, events, 8 + length)
    values = np.frombuffer(data, "<i8", events, 8 + length + events)
    addresses = np.frombuffer(data, "<i8", segments, 8 + length + 9 * events).tolist()
    found, at, segment = {}, 0, 0
    for row in rows:
        end, last = at + row["count"], segment + row["segments"]
        found[row["name"]] = History(row, (actions[at:end], values[at:end]), addresses[segment:last])
        at, segment = end, last
    return found
