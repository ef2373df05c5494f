"""An `Estimate` from a program that serves requests with ONNX Runtime's sessions.

1. What the arenas took of the device and gave back is known one by one, in order (`native/inference.c`).
2. What is in use in an arena is known after every request, and its most so far, by ONNX Runtime's own
   statistics. A request that raises the most reached it; of another it is known that it had at least what
   was in use before and after it, and at most the most so far. Where several arenas are in use at once the
   peak is therefore a range.
3. Releases without these statistics (before 1.23): all that is held counts as in use, which a note says.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analyzer import releases
from analyzer.devices import DeviceProfile, stands_in
from analyzer.graph import Category, Graph
from analyzer.liveness.naive import Naive
from analyzer.options import Options
from analyzer.pipeline.assemble import Captured, assemble
from analyzer.results.estimate import Estimate
from analyzer.runtimes.base import HeldAfter, Prediction, Source
from analyzer.runtimes.events import AllocationEvent, EmptyCache, Event, Free, Malloc
from analyzer.runtimes.happened import Happened, no_allocator
from analyzer.runtimes.timeline import Alive, Failure, HeldRange, SimulatedMark, Simulation
from analyzer_emulation.serving_notes import notes_on

_NO_MEMORY = (
    re.compile(r"Failed to allocate memory for requested buffer of size (\d{1,40})"),
    re.compile(r"smaller than requested bytes of (\d{1,40})"),
    re.compile(r"CUDA failure 2: out of memory|cudaErrorMemoryAllocation|STATUS_ALLOC_FAILED"),
)
_VALUES = "values that the program put on the device"
# Beside the arenas by NVML on an H200 (tests/data/h200/onnx_serving.json.gz, truth of 36 files): convolutions
# that are searched for load 10 MiB of code in most programs, and none in some; other kernels' differs by 4.
# The memory of a captured graph is not known: nothing beside its instance in one, 24 MiB more in another.
_LESS_CODE_BYTES, _MORE_CODE_BYTES, _GRAPH_BYTES = 14 << 20, 2 << 20, 24 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """A session made, or a request served: memory after it, and its most. All sizes in bytes.

    name: with the program's line and the shapes given; error: of ONNX Runtime, "" where it was served.
    peak: least and most that may have been in use at once; device: what NVML shows after it.
    """

    name: str
    what: str
    error: str
    in_use: int
    peak: tuple[int, int]
    held: int
    most_held: int
    device: int
    most_device: int


@dataclass(slots=True)
class Course:
    """The program's course, event by event. ends: how many events there were at the end of each mark."""

    events: list[AllocationEvent] = field(default_factory=list)
    rows: list[tuple[int, int, int, str, str, str, int]] = field(default_factory=list)
    marks: list[SimulatedMark] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    pieces: list[HeldRange] = field(default_factory=list)
    live: dict[int, tuple[int, int]] = field(default_factory=dict)
    kept: dict[object, list[Malloc]] = field(default_factory=dict)
    alive: dict[int, Malloc] = field(default_factory=dict)
    peak: int = 0
    peak_position: int = -1
    at_peak: tuple[Malloc, ...] = ()

    @property
    def held(self) -> int:
        return sum(nbytes for nbytes, _ in self.live.values())

    @property
    def in_use(self) -> int:
        return sum(malloc.nbytes for malloc in self.alive.values())

    def add(self, event: AllocationEvent, delta: int, label: str, category: str, phase: str) -> None:
        self.events.append(event)
        in_use = self.in_use
        self.rows.append((in_use, self.held, delta, label, category, phase, 0))
        if in_use > self.peak:
            self.peak, self.peak_position = in_use, len(self.events) - 1
            self.at_peak = tuple(self.alive.values())

    def ask(self, address: int, nbytes: int, phase: str) -> None:
        """What an arena takes of the device, or gives back."""
        if nbytes:
            self.live[address] = nbytes, len(self.events)
        elif address in self.live:
            gone, born = self.live.pop(address)
            self.pieces.append(HeldRange(address, gone, born, max(len(self.events) - 1, born)))
        else:
            return
        self.add(EmptyCache(), 0, "the arena takes" if nbytes else "the arena gives back", "", phase)

    def take(self, nbytes: int, category: Category, label: str, phase: str) -> Malloc:
        malloc = Malloc(len(self.events), nbytes, category, label=label)
        self.alive[malloc.key] = malloc
        self.add(malloc, nbytes, label, category.value, phase)
        return malloc

    def give(self, malloc: Malloc, phase: str) -> None:
        del self.alive[malloc.key]
        self.add(Free(malloc.key), -malloc.nbytes, "", "", phase)

    def keep(self, owner: object, nbytes: int, category: Category, label: str, phase: str) -> None:
        """Have so many bytes of an owner stay in use."""
        blocks = self.kept.setdefault(owner, [])
        have = sum(block.nbytes for block in blocks)
        while have > nbytes:
            last = blocks.pop()
            have -= last.nbytes
            self.give(last, phase)
        if have < nbytes:
            blocks.append(self.take(nbytes - have, category, label, phase))

    def figures(self) -> tuple[int, int]:
        """Return the most held and in use."""
        return max((request.most_held for request in self.requests), default=0), self.peak

    def simulation(self, failure: Failure | None) -> Simulation:
        columns = list(zip(*self.rows, strict=True)) or [()] * 7
        pieces = [HeldRange(address, nbytes, born) for address, (nbytes, born) in self.live.items()]
        phase = columns[5][self.peak_position] if self.peak_position >= 0 else ""
        return Simulation(
            marks=tuple(self.marks),
            peak_allocated=self.peak,
            peak_reserved=self.figures()[0],
            peak_requested=self.peak,
            peak_position=self.peak_position,
            peak_phase=str(phase),
            alive=tuple(Alive(malloc, malloc.nbytes) for malloc in self.at_peak),
            allocated=columns[0],
            requested=columns[0],
            reserved=columns[1],
            delta=columns[2],
            label=columns[3],
            category=columns[4],
            phase=columns[5],
            address=columns[6],
            rule=("",) * len(self.rows),
            failure=failure,
            pieces=tuple(sorted((*self.pieces, *pieces), key=lambda piece: (piece.born, piece.address))),
        )


def estimate_of_sessions(
    record: Mapping[str, Any],
    name: str,
    options: Options,
    profile: DeviceProfile,
    device_note: str,
    doubts: tuple[str, ...] = (),
) -> Estimate:
    """Return the estimate of a program. record: of `inside/sessions.py`; name: the program's. doubts:
    what libraries answered that was not measured on this GPU."""
    records = [record, *(one for one in record.get("others", ()) if one.get("session_marks"))]
    courses = sorted(map(course_of, records), key=Course.figures)
    course = courses[len(courses) // 2] if record["ended"]["how"] == "ended" else course_of(record)
    ended, version = record["ended"], record["onnxruntime"]
    failure = _failure(ended, course, profile)
    incomplete = {
        "exit": f"the program ended itself: {ended.get('message')}",
        "interrupted": "interrupted",
        "error": f"{ended.get('kind')}: {ended.get('message')}",
    }.get(ended["how"])
    simulation = course.simulation(failure)
    most_device = max((request.most_device for request in course.requests), default=0)
    prediction = Prediction(
        events=tuple(course.events),
        allocator=no_allocator,
        device_used=lambda _: most_device,
        simulation=simulation,
        after_runs=tuple(
            HeldAfter(request.name, None, request.in_use, request.held, request.device)
            for request in course.requests
        ),
    )
    captured = Captured(
        target=name,
        framework="onnx",
        batch=None,
        source=Source(Graph("onnx", (), (), ()), prediction=prediction),
        profile=replace(profile, releases={**profile.releases, "onnxruntime": releases.parse(version)}),
        device_note="; ".join(
            filter(
                None,
                (
                    f"emulated: ONNX Runtime {version} itself, on"
                    f" {next(iter(profile.nvml_names), profile.name)}",
                    device_note,
                ),
            )
        ),
        naive=Naive(0, 0, 0, 0, 0, 1.0, 1, 0, "infer"),
        notes=(*notes_on(record, course.requests), *orders_of([one.figures() for one in courses]), *doubts),
        incomplete=None if failure is not None else incomplete,
        unreached="" if record["sessions"] else "no session was made on the GPU",
    )
    estimate = assemble(captured, options, _Emulated()).estimate
    figures = [one.figures() for one in courses]
    held, in_use = ([one[place] for one in figures] for place in (0, 1))
    most = max(max((request.peak[1] for request in one.requests), default=0) for one in courses)
    beside = most_device - estimate.peak_reserved
    return replace(
        estimate,
        engine="emulate",
        installed={},
        certainty=replace(
            estimate.certainty,
            beside_range=(beside - _LESS_CODE_BYTES, beside + _more_bytes(record)) if beside > 0 else None,
            reserved_range=spread(held) if len(set(held)) > 1 else None,
            allocated_range=(spread(in_use)[0], max(spread(in_use)[1], most)) if min(in_use) < most else None,
        ),
        device_assumed=stands_in(options.device),
        notes=tuple(note for note in estimate.notes if note in captured.notes),
    )


def _more_bytes(record: Mapping[str, Any]) -> int:
    """Return by how much the process may take more beside its arenas than is counted."""
    captures = [
        mark for mark in record["session_marks"] if mark.get("options", {}).get("enable_cuda_graph") == "1"
    ]
    return _MORE_CODE_BYTES + len(captures) * _GRAPH_BYTES


class _Emulated(Happened):
    name = "onnxruntime"
    frameworks = ("onnx",)
    depends_on = ("onnxruntime", "cuda")


def spread(figures: Sequence[int]) -> tuple[int, int]:
    """Return what another process may have, by those of some: of three one more lies outside every other
    time, so that the range is wider by half on either side."""
    beyond = (max(figures) - min(figures)) // 2
    return min(figures) - beyond, max(figures) + beyond


def orders_of(figures: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Return a note on what processes differ in. figures: the most that each held, and had in use."""
    if len(figures) == 1:
        return (
            "ONNX Runtime loads initializers in the order of a hash table, which differs between processes:"
            " another one than the one emulated may hold more or less",
        )
    held = dict.fromkeys(f"{most / 2**20:,.0f}" for most, _ in figures)
    return (
        f"{len(figures)} processes were emulated, since ONNX Runtime loads initializers in the order of a"
        f" hash table that differs between them: at most {' and '.join(held)} MiB were held; figures are of"
        " the one in the middle",
    )


def course_of(record: Mapping[str, Any]) -> Course:
    """Return the program's course from its marks, and what was asked of the device between them."""
    course, arena_calls = Course(), of_arenas(record)
    has_statistics = not record["session_notes"]
    before: dict[int, tuple[int, int]] = {}  # an arena -> in use, and its most
    done = requests = 0
    for mark in record["session_marks"]:
        requests += mark["what"] == "request"
        name = _name(mark, requests)
        arenas = {one["arena"]: (int(one["InUse"]), int(one["MaxInUse"])) for one in mark["arenas"]}
        changes = list(_changes(course.live, arena_calls[done : mark["requests"]]))
        most_held = max((held for held, *_ in changes), default=course.held)
        values = int(mark["values"])
        peak = tuple(map(sum, zip((values, values), *_peaks(before, arenas), strict=True)))
        if not has_statistics:
            peak = most_held, most_held
        passing = max(peak[0] - course.in_use, 0)
        for held, address, nbytes in changes:
            course.ask(address, nbytes, name)
            if held == most_held and passing:
                course.give(course.take(passing, Category.ACTIVATION, name, name), name)
                passing = 0
        if passing:
            course.give(course.take(passing, Category.ACTIVATION, name, name), name)
        category = Category.PARAMETER if mark["what"] == "session" else Category.ACTIVATION
        for arena in {*before, *arenas}:
            in_use = arenas.get(arena, (0, 0))[0]
            course.keep(arena, in_use, category, f"left in use by {name}", name)
        if not has_statistics:
            course.keep(None, course.held, category, name, name)
        else:
            course.keep(_VALUES, values, Category.INPUT, _VALUES, name)
        besides = int(mark["used"]) - course.held
        course.requests.append(
            Request(
                name,
                mark["what"],
                mark.get("error") or "",
                course.in_use,
                (peak[0], max(peak)),
                course.held,
                most_held,
                int(mark["used"]),
                most_held + besides,
            )
        )
        course.add(Event(name), 0, name, "", name)
        course.marks.append(SimulatedMark(name, course.in_use, max(*peak, course.in_use), course.held))
        course.ends.append(len(course.events))
        before, done = arenas, mark["requests"]
    return course


def of_arenas(record: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return what was asked of the device, address and bytes (0: given back), with nothing in the place of
    what PyTorch's allocator asked for: its own history has that, in the same order."""
    segments = deque(
        (address, size if action == "segment_alloc" else 0)
        for action, address, size, _ in record.get("events", ())
        if action in ("segment_alloc", "segment_free")
    )
    arena_calls = []
    for request in map(tuple, record["device_requests"]):
        is_segment = bool(segments) and request == segments[0]
        arena_calls.append((0, segments.popleft()[1]) if is_segment else request)
    return arena_calls


def _name(mark: Mapping[str, Any], number: int) -> str:
    """Return a mark in words: "request 3, serve.py:12, tokens 8x128"."""
    made = "not made" if mark.get("error") else "made"
    what = {"session": f"session {mark['session'] + 1} {made}", "request": f"request {number}"}
    shapes = [
        f"{name} {'x'.join(map(str, shape)) or 'a number'}"
        for name, shape in list(mark.get("shapes", {}).items())[:2]
    ]
    return ", ".join(filter(None, (what.get(mark["what"], "the program's end"), mark["place"], *shapes)))


def _changes(
    before: Mapping[int, tuple[int, int]], arena_calls: Sequence[Sequence[int]]
) -> Iterator[tuple[int, int, int]]:
    """Yield bytes held behind each change, its address and bytes (0: given back). before: what is held at
    first, by address."""
    live = {address: nbytes for address, (nbytes, _) in before.items()}
    held = sum(live.values())
    for address, nbytes in arena_calls:
        if not address:  # the host read so many bytes
            continue
        held += nbytes or -live.pop(address, 0)
        if nbytes:
            live[address] = nbytes
        yield held, address, nbytes


def _peaks(
    before: Mapping[int, tuple[int, int]], arenas: Mapping[int, tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield of each arena the least and the most that was in use at once since the mark before."""
    for arena, (in_use, most) in arenas.items():
        then, most_then = before.get(arena, (0, 0))
        if most > most_then:
            yield most, most
        elif in_use == then:  # it was not used, or less than before
            yield then, then
        else:
            yield max(then, in_use), most


def _failure(ended: Mapping[str, Any], course: Course, profile: DeviceProfile) -> Failure | None:
    """Return the request that found no memory, where that ended the program."""
    if ended["how"] != "error":
        return None
    for pattern in _NO_MEMORY:
        if (matched := pattern.search(ended.get("message", ""))) is not None:
            nbytes = int(matched[1]) if matched.groups() else 0
            label = course.requests[-2].name if len(course.requests) > 1 else "the last request"
            malloc = Malloc(-1, nbytes, Category.ACTIVATION, label=label)
            return Failure(len(course.rows), malloc, course.in_use, course.held, profile.capacity_bytes)
    return None
