"""An `Estimate` from what was seen of a program: the allocator's own history, and the operators that ran.

1. The history says of every request its address and the bytes asked for, and of every segment its address and
   size. The block behind a request follows: it begins at its address, inside the free block that lies there,
   and takes all of it where the rest would not be split off (`should_split`,
   c10/cuda/CUDACachingAllocator.cpp: 512 bytes or more in the pool of small blocks and in expandable
   segments, more than 1 MiB in the other). Nothing is simulated: which free block was taken, the allocator
   has decided.
2. What the allocator's counters say at the end is compared with what came out; a difference is noted.
3. A request belongs to the operator during which it was made; one before the next operator, to that one's
   place.
4. What it is for: parameters, gradients and optimizer state by what lay at its address after an optimizer's
   step; what an operator took and did not return is scratch if it was given back within it, else workspace;
   the rest are inputs outside of modules, and activations.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analyzer import releases
from analyzer.devices import DeviceProfile, stands_in
from analyzer.graph import Category, Graph
from analyzer.liveness.naive import Naive
from analyzer.options import Options
from analyzer.pipeline.assemble import Captured, assemble
from analyzer.results.estimate import Estimate
from analyzer.runtimes import base
from analyzer.runtimes.base import Description, Prediction, Source
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.timeline import Alive, Failure, HeldRange, SimulatedMark, Simulation

MIB = 2**20
SPLIT_BYTES = 512  # kMinBlockSize
SMALL_BYTES = MIB  # kSmallSize


@dataclass(slots=True)
class _Blocks:
    """The device memory an allocator holds, as its history tells: free blocks by address, and what the live
    ones take."""

    free: list[tuple[int, int]] = field(default_factory=list)
    segments: dict[int, tuple[int, bool]] = field(default_factory=dict)  # address -> bytes, expandable
    reserved: int = 0
    peak: int = 0

    def take(self, address: int, nbytes: int, segment: int, small: bool) -> int:
        """The bytes of the block at this address, in this segment, for a request of so many."""
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
        """Where the segment begins that the address lies in; 0: in none."""
        return max((start for start in self.segments if start <= address), default=0)

    def give(self, address: int, nbytes: int) -> None:
        """A block is free, and joined with free neighbours of its segment."""
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
        """Memory of the device is held from now on."""
        self.segments[address] = (nbytes, expandable)
        self.reserved += nbytes
        self.peak = max(self.peak, self.reserved)
        self.give(address, nbytes)

    def drop(self, address: int, nbytes: int) -> None:
        """It is no longer."""
        self.segments.pop(address, None)
        self.reserved -= nbytes
        at = bisect_right(self.free, (address, 1 << 62)) - 1
        if at >= 0 and self.free[at][0] <= address < sum(self.free[at]):
            start, room = self.free.pop(at)
            for piece in ((start, address - start), (address + nbytes, start + room - address - nbytes)):
                if piece[1] > 0:
                    insort(self.free, piece)


_NOWHERE = Description("a tensor")


def estimate_of(
    found: Mapping[str, Any],
    name: str,
    options: Options,
    profile: DeviceProfile,
    device_note: str,
    doubts: tuple[str, ...] = (),
) -> Estimate:
    """The estimate of a program that ran. found: what `inside` wrote; name: the program's. doubts: what
    libraries answered that was not measured on this GPU."""
    simulation, events, places = _simulation(found)
    torch, cuda = found["torch"], found["cuda"]
    besides = max(int(found["used_bytes"]) - int(found["counters"]["reserved_bytes"]), 0)
    how = found["ended"]["how"]
    out_of_memory = how == "memory"
    incomplete = {
        "exit": f"the program ended itself: {found['ended'].get('message')}",
        "interrupted": "interrupted",
        "error": f"{found['ended'].get('kind')}: {found['ended'].get('message')}",
        "stuck": found["ended"].get("message"),
    }.get(how)
    if out_of_memory:
        simulation = _failing(found, simulation, profile)
    kinds = {"optimizer": "train"} if found["steps"] else {}
    prediction = Prediction(
        events=events,
        allocator=_none,
        device_used=lambda simulation: besides + simulation.peak_reserved,
        simulation=simulation,
        describe=lambda malloc: _described(malloc, places),
    )
    empty = Graph("pytorch", (), (), ())
    captured = Captured(
        target=name,
        framework="pytorch",
        batch=None,
        source=Source(empty, answer=prediction),
        profile=replace(
            profile,
            releases={**profile.releases, "torch": releases.parse(torch), "cuda": releases.parse(cuda)},
        ),
        device_note="; ".join(
            filter(
                None,
                (
                    (
                        f"emulated: torch {torch}, CUDA {cuda}, on"
                        f" {next(iter(profile.nvml_names), profile.name)}"
                    ),
                    device_note,
                ),
            )
        ),
        naive=Naive(0, 0, 0, 0, 0, 1.0, 1, 0, "train" if kinds else "infer"),
        notes=(*_notes(found, simulation), *_assumed(found, options.assume), *doubts),
        incomplete=incomplete,
    )
    if kinds:
        options = replace(options, mode="train")
    estimate = assemble(captured, options, _Emulated()).estimate
    kept = tuple(note for note in estimate.notes if note in captured.notes)
    return replace(
        estimate, engine="emulate", installed={}, device_assumed=stands_in(options.device), notes=kept
    )


class _Emulated(base.Runtime):
    """PyTorch itself: what it did is known."""

    name = "pytorch"
    frameworks = ("pytorch",)
    depends_on = ("torch", "cuda")

    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> Prediction:
        """What was seen."""
        del options, profile
        assert source.answer is not None
        return source.answer


def _none() -> Any:
    raise AssertionError("what happened is not simulated again")


# No clock tells here how a step beside a GPU compares with the watchdog's pauses (`native/watchdog.c`), or
# how far the device lags behind.
_LATER = {
    "reduces": (
        "gradient buckets that DDP replaces, and what its hooks make of them, are assumed to be given back"
        " when the next step's gradients are reduced (the first step's: at the next collective); NCCL's"
        " watchdog looks every 100 ms only, so where steps are shorter they live longer, and the peak is"
        " higher by up to as much as the gradients"
    ),
    "sends": (
        "what is sent to another rank is through at once; where the device lags behind the host, its memory"
        " serves again later, and the peak is higher by up to what a step sends"
    ),
}


def _notes(found: Mapping[str, Any], simulation: Simulation) -> tuple[str, ...]:
    """What a reader should know: how it ended, what was read, what was not answered."""
    steps = len(found["steps"])
    notes = [f"ran through {steps} optimizer step{'' if steps == 1 else 's'}" if steps else "ran through"]
    if found["ended"]["how"] != "ended":
        notes = [f"the program ended before its end, after {steps} optimizer step{'' if steps == 1 else 's'}"]
    elif found.get("failed"):
        line, kind, text = found["failed"]
        if kind != "OutOfMemoryError":  # which programs try for, and is counted
            said = text.strip().partition("\n")[0]
            notes.append(f"the program caught an error of an operator: {_short(line)}: {kind}: {said}")
    reads = sorted(found["reads"].items(), key=lambda item: -item[1])
    for what, count in reads:
        line, _, said = what.partition(": ")
        where = _short(line) or "outside the program's own lines"
        notes.append(f"{where}: {said} ({count:,} x), since kernels compute nothing here")
    for name in found["refused"]:
        notes.append(f"the program called {name}, which is not emulated")
    if found.get("others"):
        notes.append(
            f"{found['others']:,} bytes lie reserved on other GPUs than this process's own, with a context"
            " each; they are not counted"
        )
    if "processes" in found:
        count, besides = int(found["processes"]), int(found["besides"])
        notes.append(
            "figures are of a process that the program started"
            if count == 1
            else (
                f"{count} processes of the program used the GPU; figures are of the one that held most, the"
                f" others held at most {besides:,} bytes and a context each besides"
            )
        )
    notes += [text for name, text in _LATER.items() if found.get(name)]
    if found.get("pools"):
        notes.append(
            "the program keeps private pools, as CUDA graphs do: in the one case that was measured reserved"
            " memory was 4.8 % more"
        )
    current = int(found["counters"]["allocated_bytes"])
    came_out = simulation.allocated[-1] if simulation.allocated else 0
    if current != came_out and simulation.failure is None:
        notes.append(
            f"at its end the allocator counts {current:,} bytes in use, its history {came_out:,}: what leads"
            " to the peak may be off by the difference"
        )
    if found["retries"]:
        notes.append(f"the allocator gave its cached memory back {found['retries']:,} x to find room")
    return tuple(notes)


def _assumed(found: Mapping[str, Any], assume: Mapping[str, Any]) -> tuple[str, ...]:
    """What came of what the user said is read, in the words of `analyze run`."""
    return tuple(
        (
            f"{place}: {value} is assumed, as was said"
            if place in found["assumed"]
            else f"nothing was read at {place}: what was said to be assumed there had no effect"
        )
        for place, value in assume.items()
    )


def _short(line: str) -> str:
    path, _, number = line.rpartition(":")
    return f"{Path(path).name}:{number}" if path else line


def _places(
    operators: Sequence[Sequence[Any]],
) -> list[tuple[int, int, Description, dict[int, tuple[str, tuple[int, ...]]]]]:
    found = []
    for before, after, name, module, source, phase, made in operators:
        short = name.removeprefix("aten.").removesuffix(".default")
        outputs = {address: (dtype, tuple(shape)) for address, dtype, shape in made}
        place = Description(
            f"aten::{short}", operator=f"aten::{short}", module=module, source=_short(source), phase=phase
        )
        found.append((before, after, place, outputs))
    return found


def _simulation(
    found: Mapping[str, Any],
) -> tuple[Simulation, tuple[AllocationEvent, ...], dict[int, Description]]:
    """The history as events with what they took, and of each request where it was made."""
    operators = _places(found["operators"])
    ends = [after for _, after, _, _ in operators]
    roles = sorted(
        (int(count), {int(a): kind for a, kind in lying.items()}) for count, lying in found["roles"].items()
    )
    steps = list(found["steps"])
    frees = list(
        found.get("freed_by_steps", ())
    )  # a history recorded without them has its steps before the next request
    freed = 0
    blocks, live = _Blocks(), dict[int, tuple[int, int, int, int]]()
    small = dict[int, bool]()
    events: list[AllocationEvent] = []
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("allocated", "requested", "reserved", "delta", "label", "category", "phase", "address")
    }
    born, died, held, gone = (
        dict[int, int](),
        dict[int, int](),
        dict[int, tuple[int, int]](),
        list[HeldRange](),
    )
    described, takes = dict[int, Description](), dict[int, tuple[int, int]]()
    allocated = requested = peak = count = 0
    numbers, marks = dict[int, int](), list[SimulatedMark]()

    def add(
        event: AllocationEvent, delta: int, asked: int, label: str, category: str, phase: str, address: int
    ) -> None:
        nonlocal allocated, requested, peak
        allocated, requested = allocated + delta, requested + asked
        peak = max(peak, allocated)
        events.append(event)
        for column, value in zip(
            columns.values(),
            (allocated, requested, blocks.reserved, delta, label, category, phase, address),
            strict=True,
        ):
            column.append(value)

    def step(name: str) -> None:
        add(Event(name), 0, 0, name, "", "", 0)
        marks.append(SimulatedMark(name, allocated, peak, blocks.reserved))

    for action, address, size, _stream in found["events"]:
        if action == "free_completed":
            while frees and steps and steps[0] <= count and frees[0] <= freed:
                step(f"{len(found['steps']) - len(steps)}.step")
                del steps[0], frees[0]
            freed += 1
        if action in ("segment_alloc", "segment_map"):
            blocks.hold(address, size, action == "segment_map")
            held[address] = (size, len(events))
        elif action in ("segment_free", "segment_unmap"):
            blocks.drop(address, size)
            if address in held:
                nbytes, since = held.pop(address)
                gone.append(HeldRange(address, nbytes, since, max(len(events) - 1, since)))
            if columns["reserved"]:
                columns["reserved"][-1] = min(columns["reserved"][-1], blocks.reserved) if events else 0
        elif action == "alloc":
            while steps and steps[0] <= count:
                step(f"{len(found['steps']) - len(steps)}.step")
                del steps[0], frees[:1]
            segment = blocks.segment_of(address)
            if segment not in small:
                small[segment] = size <= SMALL_BYTES
            block = blocks.take(address, size, segment, small[segment])
            which = bisect_right(ends, count)
            place, made, seen = _NOWHERE, None, which < len(operators) and operators[which][0] <= count
            if seen:
                _, _, place, outputs = operators[which]
                made = outputs.get(address)
            dtype, shape = made or ("", ())
            described[count] = replace(place, dtype=dtype, shape=shape)
            live[address] = (count, block, size, len(events))
            born[count] = len(events)
            takes[count] = (block, address)
            numbers[count] = which if seen and made is None else -1
            add(
                Malloc(count, size, Category.ACTIVATION, label=described[count].name),
                block,
                size,
                described[count].name,
                "",
                place.phase,
                address,
            )
            count += 1
        elif action == "free_completed" and address in live:
            number, block, asked, _ = live.pop(address)
            blocks.give(address, block)
            died[number] = len(events)
            add(Free(number), -block, -asked, "", "", described[number].phase, 0)
    for left in range(len(found["steps"]) - len(steps), len(found["steps"])):
        step(f"{left}.step")
    categories = _categories(described, takes, born, died, numbers, operators, roles, events)
    for number, category in categories.items():
        at = born[number]
        malloc = events[at]
        assert isinstance(malloc, Malloc)
        events[at] = replace(malloc, category=category)
        columns["category"][at] = category.value
    position = columns["allocated"].index(peak) if peak else -1
    at_peak = [n for n in born if born[n] <= position and (n not in died or died[n] > position)]
    alive = tuple(Alive(events[born[n]], takes[n][0]) for n in at_peak)  # type: ignore[arg-type]
    pieces = (*gone, *(HeldRange(address, nbytes, since) for address, (nbytes, since) in held.items()))
    series: dict[str, Any] = {name: tuple(column) for name, column in columns.items()}
    simulation = Simulation(
        marks=tuple(marks),
        peak_allocated=peak,
        peak_reserved=blocks.peak,
        peak_requested=max(columns["requested"], default=0),
        peak_position=position,
        peak_phase=columns["phase"][position] if position >= 0 else "",
        alive=alive,
        **series,
        rule=("",) * len(events),
        pieces=tuple(sorted(pieces, key=lambda piece: (piece.born, piece.address))),
    )
    return simulation, tuple(events), described


def _categories(
    described: Mapping[int, Description],
    takes: Mapping[int, tuple[int, int]],
    born: Mapping[int, int],
    died: Mapping[int, int],
    numbers: Mapping[int, int],
    operators: Sequence[tuple[int, int, Description, Any]],
    roles: Sequence[tuple[int, Mapping[int, str]]],
    events: Sequence[AllocationEvent],
) -> dict[int, Category]:
    """What each request is for."""
    kinds = {category.value: category for category in Category}
    found: dict[int, Category] = {}
    # Where there were so many requests, the last one at an address is what lies there, if it is not gone.
    requests = defaultdict[int, list[int]](list)
    for number, (_, address) in takes.items():
        requests[address].append(number)
    for count, lying in roles:
        position = born.get(count, len(events))
        for address, kind in lying.items():
            at = bisect_left(requests[address], count) - 1
            if at >= 0 and died.get(number := requests[address][at], position) >= position:
                found.setdefault(number, kinds[kind])
    for number, place in described.items():
        if number in found:
            continue
        which = numbers[number]
        if which >= 0:
            after = operators[which][1]
            end = died.get(number)
            within = end is not None and end < born.get(after, len(events))
            found[number] = Category.SCRATCH if within else Category.WORKSPACE
        elif place.phase == "optimizer":
            found[number] = Category.SCRATCH
        elif place.phase == "backward":
            found[number] = Category.GRADIENT
        else:
            found[number] = Category.ACTIVATION if place.module or place.phase else Category.INPUT
    return found


def _failing(found: Mapping[str, Any], simulation: Simulation, profile: DeviceProfile) -> Simulation:
    """With the request that ended the program."""
    failed = next((entry for entry in reversed(found["events"]) if entry[0] == "oom"), None)
    if failed is None:
        return simulation
    malloc = Malloc(-1, int(failed[2]), Category.ACTIVATION, label="the last operator")
    allocated, reserved = (
        column[-1] if column else 0 for column in (simulation.allocated, simulation.reserved)
    )
    return replace(
        simulation,
        failure=Failure(len(simulation.allocated), malloc, allocated, reserved, profile.capacity_bytes),
    )


def _described(malloc: Malloc, places: Mapping[int, Description]) -> Description:
    return places.get(malloc.key, Description(malloc.label))
