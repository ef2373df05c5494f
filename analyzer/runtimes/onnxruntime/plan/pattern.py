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

from bisect import bisect_left, insort
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
    """Follows a run's requests. `size_bytes`: the block's size; `members`: placed tensors.

    Living blocks do not overlap. They and the gaps between them are kept in order, so that a request costs
    the same beside twenty thousand living blocks (a Split with as many outputs) as beside twenty.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self.members: set[str] = set()
        self._living: dict[str, tuple[int, int]] = {}  # name -> where its block begins and ends
        self._begins: list[int] = []  # of living blocks, in order
        self._ends: list[int] = []
        self._gaps: list[tuple[int, int]] = []  # (bytes, begin) before each living block and behind the last
        self._used = self._most = 0
        self._requests: list[tuple[str, int, int]] = []  # name, begin, bytes; bytes 0: given back
        self._most_at = 0  # requests until most of the block was in use

    def allocate(self, name: str, nbytes: int) -> None:
        """Place a tensor in the smallest gap that holds it, else after the last live one."""
        size = aligned(nbytes)
        self.members.add(name)
        if size == 0:
            return
        place = bisect_left(self._gaps, (size, 0))
        begin = self._gaps[place][1] if place < len(self._gaps) else (self._ends[-1] if self._ends else 0)
        at = bisect_left(self._begins, begin)
        before = self._ends[at - 1] if at else 0
        after = self._begins[at] if at < len(self._begins) else self.size_bytes
        self._change_gaps([(before, after)], [(begin + size, max(after, begin + size))])
        self.size_bytes = max(self.size_bytes, begin + size)
        self._begins.insert(at, begin)
        self._ends.insert(at, begin + size)
        self._living[name] = begin, begin + size
        self._requests.append((name, begin, size))
        self._used += size
        if self._used > self._most:
            self._most, self._most_at = self._used, len(self._requests)

    def free(self, name: str) -> None:
        """Remove a tensor that is no longer needed."""
        if name not in self._living:
            return
        begin, end = self._living.pop(name)
        at = bisect_left(self._begins, begin)
        del self._begins[at], self._ends[at]
        before = self._ends[at - 1] if at else 0
        after = self._begins[at] if at < len(self._begins) else self.size_bytes
        self._change_gaps([(before, begin), (end, after)], [(before, after)])
        self._requests.append((name, begin, 0))
        self._used -= end - begin

    def pattern(self) -> MemoryPattern:
        """Return the pattern recorded so far."""
        living: dict[str, tuple[int, int]] = {}
        for name, begin, size in self._requests[: self._most_at]:
            if size:
                living[name] = begin, size
            else:
                del living[name]
        by_place = sorted((begin, size, name) for name, (begin, size) in living.items())
        fullest = tuple((name, size) for _, size, name in by_place)
        return MemoryPattern(self.size_bytes, frozenset(self.members), fullest)

    def _change_gaps(self, old: list[tuple[int, int]], new: list[tuple[int, int]]) -> None:
        """Put gaps (begin, end) in the place of others; empty ones are not kept."""
        for begin, end in old:
            if end > begin:
                del self._gaps[bisect_left(self._gaps, (end - begin, begin))]
        for begin, end in new:
            if end > begin:
                insort(self._gaps, (end - begin, begin))


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
