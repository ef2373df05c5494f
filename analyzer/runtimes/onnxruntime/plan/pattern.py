"""The memory pattern: where each tensor lies in the one block later runs take.

1. The first run records allocations and frees of every tensor with a buffer of its own, in order; graph
   outputs and scratch are not recorded. Sizes are rounded up to 256 bytes.
2. Each allocation goes into the smallest gap between living blocks that holds it (the lowest of equals),
   otherwise behind the last one. The block's size is the furthest end ever reached.

Many batches are followed at once where sizes are `Lanes` (`parametric/lanes.py`): `LanesPlanner` does lane by
lane what `PatternPlanner` does, in rows and columns of numbers; a property test holds it to that.

Source: `core/framework/mem_pattern_planner.h` (`TraceAllocation`, `TraceFree`), `execution_frame.cc`.
Not modelled: sizes that change between runs of the same input shapes (NonZero): those fall back to the arena.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analyzer.parametric.lanes import Integers, Lanes

ALIGNMENT_BYTES = 256


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to the alignment."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True)
class MemoryPattern:
    """Pattern the first run leaves to later ones: size of the block in bytes, and the tensors in it.

    fullest: name and bytes of those that live when most of the block is in use.
    """

    size_bytes: int
    members: frozenset[str]
    fullest: tuple[tuple[str, int], ...] = field(default=(), compare=False)


class PatternPlanner:
    """Follows a run's requests. `size_bytes`: the block's size; `members`: placed tensors."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.members: set[str] = set()
        self._living: list[tuple[int, int, str]] = []
        self._used = self._most = 0
        self._fullest: tuple[tuple[str, int], ...] = ()

    def allocate(self, name: str, nbytes: int) -> None:
        """Place a tensor in the smallest gap that holds it, else after the last live one."""
        size = aligned(nbytes)
        self.members.add(name)
        if size == 0:
            return
        best = max((offset + length for offset, length, _ in self._living), default=0)
        waste, current = None, 0
        for offset, length, _ in self._living:
            gap = offset - current
            if gap >= size and (waste is None or gap - size < waste):
                waste, best = gap - size, current
            current = max(current, offset + length)
        if current < self.size_bytes:
            gap = self.size_bytes - current
            if gap >= size and (waste is None or gap - size < waste):
                best = current
        self.size_bytes = max(self.size_bytes, best + size)
        self._living.append((best, size, name))
        self._living.sort()
        self._used += size
        if self._used > self._most:
            self._most = self._used
            self._fullest = tuple((member, length) for _, length, member in self._living)

    def free(self, name: str) -> None:
        """Remove a tensor that is no longer needed."""
        self._used -= sum(length for _, length, member in self._living if member == name)
        self._living = [entry for entry in self._living if entry[2] != name]

    def pattern(self) -> MemoryPattern:
        """Return the pattern recorded so far."""
        return MemoryPattern(self.size_bytes, frozenset(self.members), self._fullest)


class LanesPlanner:
    """`PatternPlanner` for sizes that differ in each of `lane_count` lanes; `fullest` stays empty.

    A tensor without bytes in some lane lies there at 0, where it is in nobody's way.
    """

    def __init__(self, lane_count: int) -> None:
        self.members: set[str] = set()
        self._nothing = np.zeros((1, lane_count), np.int64)
        self._size = np.zeros(lane_count, np.int64)
        self._living: dict[str, tuple[Integers, Integers]] = {}  # where each begins and ends, lane by lane

    def allocate(self, name: str, nbytes: int | Lanes) -> None:
        """Place a tensor in the smallest gap that holds it, else after the last live one."""
        sizes: Any = nbytes.values if isinstance(nbytes, Lanes) else nbytes
        size = self._nothing[0] + aligned(sizes)
        begins = np.array([*(begin for begin, _ in self._living.values()), self._size])
        ends = np.array([self._nothing[0], *(end for _, end in self._living.values())])
        # Blocks that live together do not overlap: in order of their beginnings they are in order of their
        # ends.
        begins[:-1].sort(axis=0)
        ends.sort(axis=0)
        gaps = begins - ends
        holds = gaps >= size
        smallest = np.where(holds, gaps, np.iinfo(np.int64).max).argmin(axis=0)[None]
        place = np.where(holds.any(axis=0), np.take_along_axis(ends, smallest, axis=0)[0], ends[-1])
        place[size == 0] = 0
        np.maximum(self._size, place + size, out=self._size)
        self.members.add(name)
        self._living[name] = place, place + size

    def free(self, name: str) -> None:
        """Remove a tensor that is no longer needed."""
        self._living.pop(name, None)

    def pattern(self) -> MemoryPattern:
        """Return the pattern recorded so far; its size is `Lanes`."""
        size: Any = Lanes(self._size)
        return MemoryPattern(size, frozenset(self.members))
