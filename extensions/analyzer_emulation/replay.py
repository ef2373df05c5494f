"""Replay of a program's allocator history: each request's block and purpose.

1. The history says of every request its address and the bytes asked for, and of every segment its address and
   size. The block behind a request follows: it begins at its address, inside the free block that lies there,
   and takes all of it where the rest would not be split off (`should_split`,
   c10/cuda/CUDACachingAllocator.cpp: 512 bytes or more in the pool of small blocks and in expandable
   segments, more than 1 MiB in the other). Nothing is simulated: the allocator has chosen the free block.
2. A request belongs to the operator during which it was made; one before the next operator, to that one's
   place.
3. The purpose: parameters, gradients and optimizer state by the tensors at its address after an optimizer's
   step; a request of an operator that is no result is scratch if it was given back within it, else
   workspace; the rest are inputs outside of modules, and activations.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analyzer.graph import Category
from analyzer.runtimes.base import Description
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.timeline import Alive, HeldRange, SimulatedMark, Simulation

MIB = 2**20
SPLIT_BYTES = 512  # kMinBlockSize
SMALL_BYTES = MIB  # kSmallSize
_NOWHERE = Description("a tensor")


def replayed(
    record: Mapping[str, Any],
) -> tuple[Simulation, tuple[AllocationEvent, ...], dict[int, Description]]:
    """Return the history as a simulation and its events, with the origin of each request."""
    replay = _Replay(record)
    replay.run(record["events"])
    replay.categorize()
    described = {number: request.description for number, request in enumerate(replay.requests)}
    return replay.simulation(), tuple(replay.events), described


def without_folder(line: str) -> str:
    """File and line, without the file's folder."""
    path, _, number = line.rpartition(":")
    return f"{Path(path).name}:{number}" if path else line


def _operator_ranges(
    operators: Sequence[Sequence[Any]],
) -> list[tuple[int, int, Description, dict[int, tuple[str, tuple[int, ...]]]]]:
    """Return each operator's first and last request, its description, and its results by address."""
    ranges = []
    for before, after, name, module, source, phase, results in operators:
        short = name.removeprefix("aten.").removesuffix(".default")
        outputs = {address: (dtype, tuple(shape)) for address, dtype, shape in results}
        place = Description(
            f"aten::{short}",
            operator=f"aten::{short}",
            module=module,
            source=without_folder(source),
            phase=phase,
        )
        ranges.append((before, after, place, outputs))
    return ranges


@dataclass(slots=True)
class _Blocks:
    """Device memory of an allocator, from its history: free blocks by address, and live ones."""

    free: list[tuple[int, int]] = field(default_factory=list)
    segments: dict[int, tuple[int, bool]] = field(default_factory=dict)  # address -> bytes, expandable
    reserved: int = 0
    peak: int = 0

    def take(self, address: int, nbytes: int, segment: int, small: bool) -> int:
        """Return the bytes of the block at this address, in this segment, for a request of so many."""
        at = bisect_right(self.free, (address, 1 << 62)) - 1
        wanted = max(-(-nbytes // SPLIT_BYTES) * SPLIT_BYTES, SPLIT_BYTES)
        if at < 0 or not self.free[at][0] <= address < sum(self.free[at]):
            return wanted
        start, room = self.free.pop(at)
        rest = start + room - address - wanted
        if start < address:
            insort(self.free, (start, address - start))
        splits = (
            rest >= SPLIT_BYTES if small or self.segments.get(segment, (0, False))[1] else rest > SMALL_BYTES
        )
        if not splits:
            return wanted + max(rest, 0)
        insort(self.free, (address + wanted, rest))
        return wanted

    def segment_of(self, address: int) -> int:
        """Return the base address of the segment that contains the address; 0 if none does."""
        return max((start for start in self.segments if start <= address), default=0)

    def give(self, address: int, nbytes: int) -> None:
        """Free a block and merge it with free neighbours of its segment."""
        at = bisect_right(self.free, (address,))
        if (
            at < len(self.free)
            and self.free[at][0] == address + nbytes
            and not self._begins(address + nbytes)
        ):
            nbytes += self.free.pop(at)[1]
        if at and sum(self.free[at - 1]) == address and not self._begins(address):
            start, room = self.free.pop(at - 1)
            address, nbytes = start, room + nbytes
        insort(self.free, (address, nbytes))

    def _begins(self, address: int) -> bool:
        return address in self.segments and not self.segments[address][1]

    def hold(self, address: int, nbytes: int, expandable: bool) -> None:
        """Add memory the allocator holds of the device."""
        self.segments[address] = (nbytes, expandable)
        self.reserved += nbytes
        self.peak = max(self.peak, self.reserved)
        self.give(address, nbytes)

    def drop(self, address: int, nbytes: int) -> None:
        """Remove a segment, or the unmapped part of one."""
        self.segments.pop(address, None)
        self.reserved -= nbytes
        at = bisect_right(self.free, (address, 1 << 62)) - 1
        if at >= 0 and self.free[at][0] <= address < sum(self.free[at]):
            start, room = self.free.pop(at)
            for piece in ((start, address - start), (address + nbytes, start + room - address - nbytes)):
                if piece[1] > 0:
                    insort(self.free, piece)


@dataclass(slots=True)
class _Request:
    """A request that was served: its block, the event it was born with and the one it died with, and where it
    was made. operator: the number of the one that took it and did not return it; -1: of none."""

    block_bytes: int
    asked_bytes: int
    address: int
    born: int
    description: Description
    operator: int
    died: int | None = None


class _Replay:
    """State of the replay after some event of the history."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.requests: list[_Request] = []
        self.events: list[AllocationEvent] = []
        columns = "allocated requested reserved delta label category phase address"
        self._columns: dict[str, list[Any]] = {name: [] for name in columns.split()}
        self._marks: list[SimulatedMark] = []
        self._allocated = self._requested = self._peak = 0
        self._operators = _operator_ranges(record["operators"])
        self._ends = [after for _, after, _, _ in self._operators]
        self._roles = sorted(
            (int(count), {int(address): kind for address, kind in lying.items()})
            for count, lying in record["roles"].items()
        )
        # After how many requests each step was over, and after how many blocks that were given back; a
        # history recorded without these has its steps before the next request.
        self._steps, self._frees = list(record["steps"]), list(record.get("freed_by_steps", ()))
        self._steps_over = self._freed = 0
        self._blocks = _Blocks()
        self._live: dict[int, int] = {}  # by address
        self._small: dict[int, bool] = {}  # whether the segment at an address is of the pool of small blocks
        self._held: dict[int, tuple[int, int]] = {}
        self._gone: list[HeldRange] = []

    def run(self, history: Sequence[Sequence[Any]]) -> None:
        """Replay the whole history of allocator events."""
        for action, address, size, _stream in history:
            if action == "alloc":
                self._alloc(address, size)
            elif action == "free_completed":
                self._free(address)
            elif action in ("segment_alloc", "segment_map"):
                self._blocks.hold(address, size, action == "segment_map")
                self._held[address] = (size, len(self.events))
            elif action in ("segment_free", "segment_unmap"):
                self._drop(address, size)
        while self._steps:
            self._step()

    def _alloc(self, address: int, size: int) -> None:
        """Add a request: its block, and the operator within whose range it falls."""
        count = len(self.requests)
        while self._steps and self._steps[0] <= count:
            self._step()
        segment = self._blocks.segment_of(address)
        if segment not in self._small:
            self._small[segment] = size <= SMALL_BYTES
        block = self._blocks.take(address, size, segment, self._small[segment])
        which = bisect_right(self._ends, count)
        place, output, is_known = _NOWHERE, None, False
        if which < len(self._operators) and self._operators[which][0] <= count:
            _, _, place, outputs = self._operators[which]
            output, is_known = outputs.get(address), True
        dtype, shape = output or ("", ())
        place = replace(place, dtype=dtype, shape=shape)
        operator = which if is_known and output is None else -1
        self._live[address] = count
        self.requests.append(_Request(block, size, address, len(self.events), place, operator))
        malloc = Malloc(count, size, Category.ACTIVATION, label=place.name)
        self._add(malloc, block, size, place.name, place.phase, address)

    def _free(self, address: int) -> None:
        """Add the return of the request at an address, behind the ends of optimizer steps before it."""
        count = len(self.requests)
        while self._frees and self._steps and self._steps[0] <= count and self._frees[0] <= self._freed:
            self._step()
        self._freed += 1
        number = self._live.pop(address, None)
        if number is not None:
            request = self.requests[number]
            self._blocks.give(address, request.block_bytes)
            request.died = len(self.events)
            self._add(
                Free(number), -request.block_bytes, -request.asked_bytes, "", request.description.phase, 0
            )

    def _drop(self, address: int, size: int) -> None:
        self._blocks.drop(address, size)
        self._small.pop(address, None)  # another pool's segment may come to lie there
        if address in self._held:
            nbytes, since = self._held.pop(address)
            self._gone.append(HeldRange(address, nbytes, since, max(len(self.events) - 1, since)))
        if reserved := self._columns["reserved"]:
            reserved[-1] = min(reserved[-1], self._blocks.reserved)

    def _step(self) -> None:
        """Mark the end of an optimizer step."""
        name = f"{self._steps_over}.step"
        self._steps_over += 1
        del self._steps[0], self._frees[:1]
        self._add(Event(name), 0, 0, name, "", 0)
        self._marks.append(SimulatedMark(name, self._allocated, self._peak, self._blocks.reserved))

    def _add(
        self, event: AllocationEvent, delta: int, requested: int, label: str, phase: str, address: int
    ) -> None:
        """Append an event with the state after it."""
        self._allocated, self._requested = self._allocated + delta, self._requested + requested
        self._peak = max(self._peak, self._allocated)
        self.events.append(event)
        for column, value in zip(
            self._columns.values(),
            (self._allocated, self._requested, self._blocks.reserved, delta, label, "", phase, address),
            strict=True,
        ):
            column.append(value)

    def categorize(self) -> None:
        """Set the category of each request."""
        for request, category in zip(self.requests, self._categories(), strict=True):
            malloc = self.events[request.born]
            assert isinstance(malloc, Malloc)
            self.events[request.born] = replace(malloc, category=category)
            self._columns["category"][request.born] = category.value

    def _categories(self) -> Iterator[Category]:
        """Yield the category of every request, by its operator and life."""
        by_storage = self._recorded_categories()
        for number, request in enumerate(self.requests):
            place = request.description
            if number in by_storage:
                yield by_storage[number]
            elif request.operator >= 0:
                end = self._born(self._ends[request.operator])
                within = request.died is not None and request.died < end
                yield Category.SCRATCH if within else Category.WORKSPACE
            elif place.phase == "optimizer":
                yield Category.SCRATCH
            elif place.phase == "backward":
                yield Category.GRADIENT
            else:
                yield Category.ACTIVATION if place.module or place.phase else Category.INPUT

    def _recorded_categories(self) -> dict[int, Category]:
        """Return the categories recorded by address, by request number: what an optimizer uses."""
        categories: dict[int, Category] = {}
        # Where there were so many requests, the last one at an address is what lies there, if it is not gone.
        at_address = defaultdict[int, list[int]](list)
        for number, request in enumerate(self.requests):
            at_address[request.address].append(number)
        for count, lying in self._roles:
            position = self._born(count)
            for address, kind in lying.items():
                at = bisect_left(at_address[address], count) - 1
                if at >= 0:
                    number = at_address[address][at]
                    died = self.requests[number].died
                    if died is None or died >= position:
                        categories.setdefault(number, Category(kind))
        return categories

    def _born(self, count: int) -> int:
        """Return the event that the request after so many others is born with."""
        return self.requests[count].born if count < len(self.requests) else len(self.events)

    def simulation(self) -> Simulation:
        """Return the simulation: the columns, and what follows from them."""
        columns: dict[str, Any] = {name: tuple(column) for name, column in self._columns.items()}
        position = columns["allocated"].index(self._peak) if self._peak else -1
        alive = tuple(
            Alive(self.events[request.born], request.block_bytes)  # type: ignore[arg-type]
            for request in self.requests
            if request.born <= position and (request.died is None or request.died > position)
        )
        held = (HeldRange(address, nbytes, since) for address, (nbytes, since) in self._held.items())
        return Simulation(
            marks=tuple(self._marks),
            peak_allocated=self._peak,
            peak_reserved=self._blocks.peak,
            peak_requested=max(columns["requested"], default=0),
            peak_position=position,
            peak_phase=columns["phase"][position] if position >= 0 else "",
            alive=alive,
            **columns,
            rule=("",) * len(self.events),
            pieces=tuple(sorted((*self._gone, *held), key=lambda piece: (piece.born, piece.address))),
        )
