"""A program with two runtimes on one device: PyTorch's allocator and ONNX Runtime's arenas, in one course.

1. The history of PyTorch's allocator and the marks of the sessions have one order: a mark knows how many
   requests that allocator had served by then, and how many blocks it had got back (`inside/sessions.py`).
   While a session runs, PyTorch asks for nothing.
2. In use and held are the sums of both at every event. A tensor of one that the other reads or writes (IO
   binding by `data_ptr`, DLPack) is its owner's, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analyzer.runtimes.base import HeldAfter
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.timeline import Alive, HeldRange, SimulatedMark, Simulation
from analyzer_emulation.served import Course, course_of

_COLUMNS = ("allocated", "requested", "reserved", "delta", "label", "category", "phase", "address")
_SUMS = ("allocated", "requested", "reserved")


@dataclass(frozen=True, slots=True)
class Both:
    """Both runtimes' course. runs: what is left after each request to a session; course: of the sessions."""

    simulation: Simulation
    events: tuple[AllocationEvent, ...]
    runs: tuple[HeldAfter, ...]
    course: Course


def together(record: Mapping[str, Any], simulation: Simulation, events: Sequence[AllocationEvent]) -> Both:
    """Return the course of a process. record: of `inside`; simulation, events: of PyTorch's allocator."""
    course = course_of(record)
    joined = _Joined(simulation, events, course.simulation(None), course.events)
    done, runs = 0, []
    marks = zip(record["session_marks"], course.requests, course.ends, strict=True)
    for mark, request, end in marks:
        joined.pytorch(*mark["torch"])
        joined.sessions(range(done, end))
        done = end
        in_use, _, held = joined.state()
        runs.append(HeldAfter(request.name, None, in_use, held, request.device))
    joined.pytorch(len(events), len(events))
    return Both(joined.simulation(), tuple(joined.events), tuple(runs), course)


@dataclass(slots=True)
class _Side:
    """One runtime's simulation. keys: what is added to the keys of its requests; at: the events that are in
    the joined course; places: where they lie there."""

    simulation: Simulation
    events: Sequence[AllocationEvent]
    keys: int = 0
    at: int = 0
    places: list[int] = field(default_factory=list)

    def state(self) -> tuple[int, ...]:
        """Return in use, requested and held after the events that are in."""
        return tuple(getattr(self.simulation, name)[self.at - 1] if self.at else 0 for name in _SUMS)


class _Joined:
    """The joined course so far."""

    def __init__(
        self,
        pytorch: Simulation,
        pytorch_events: Sequence[AllocationEvent],
        sessions: Simulation,
        session_events: Sequence[AllocationEvent],
    ) -> None:
        self.events: list[AllocationEvent] = []
        self._rows: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        requests = sum(isinstance(event, Malloc) for event in pytorch_events)
        self._pytorch = _Side(pytorch, pytorch_events)
        self._sessions = _Side(sessions, session_events, requests)
        self._served = self._freed = 0

    def state(self) -> tuple[int, int, int]:
        """Return in use, requested and held now."""
        in_use, requested, held = map(sum, zip(self._pytorch.state(), self._sessions.state(), strict=True))
        return in_use, requested, held

    def pytorch(self, served: int, freed: int) -> None:
        """Add PyTorch's events until it has served so many requests and got so many blocks back."""
        side = self._pytorch
        while side.at < len(side.events):
            event = side.events[side.at]
            self._served += isinstance(event, Malloc)
            self._freed += isinstance(event, Free)
            if self._served > served or self._freed > freed:
                self._served -= isinstance(event, Malloc)
                self._freed -= isinstance(event, Free)
                return
            self._add(side)

    def sessions(self, places: range) -> None:
        """Add the sessions' events at these places."""
        for _ in places:
            self._add(self._sessions)

    def _add(self, side: _Side) -> None:
        event, place = side.events[side.at], side.at
        if side.keys and isinstance(event, (Malloc, Free)):
            event = replace(event, key=event.key + side.keys)
        side.at += 1
        side.places.append(len(self.events))
        self.events.append(event)
        for name, value in zip(_SUMS, self.state(), strict=True):
            self._rows[name].append(value)
        for name in _COLUMNS[len(_SUMS) :]:
            self._rows[name].append(getattr(side.simulation, name)[place])

    def simulation(self) -> Simulation:
        """Return the simulation of all that was added."""
        columns: dict[str, Any] = {name: tuple(values) for name, values in self._rows.items()}
        allocated: tuple[int, ...] = columns["allocated"]
        peak = max(allocated, default=0)
        position = allocated.index(peak) if peak else -1
        pieces = [piece for side in (self._pytorch, self._sessions) for piece in self._pieces(side)]
        return Simulation(
            marks=self._marks(),
            peak_allocated=peak,
            peak_reserved=max(columns["reserved"], default=0),
            peak_requested=max(columns["requested"], default=0),
            peak_position=position,
            peak_phase=columns["phase"][position] if position >= 0 else "",
            alive=self._alive(position),
            **columns,
            rule=("",) * len(self.events),
            pieces=tuple(sorted(pieces, key=lambda piece: (piece.born, piece.address))),
        )

    def _alive(self, position: int) -> tuple[Alive, ...]:
        """Return the requests alive after an event, with their blocks."""
        alive: dict[int, Alive] = {}
        for event, delta in zip(self.events[: position + 1], self._rows["delta"], strict=False):
            if isinstance(event, Malloc):
                alive[event.key] = Alive(event, delta)
            elif isinstance(event, Free):
                alive.pop(event.key, None)
        return tuple(alive.values())

    def _pieces(self, side: _Side) -> list[HeldRange]:
        def place(event: int) -> int:
            return side.places[event] if event < len(side.places) else len(self.events)

        return [
            replace(piece, born=place(piece.born), died=-1 if piece.died < 0 else place(piece.died))
            for piece in side.simulation.pieces
        ]

    def _marks(self) -> tuple[SimulatedMark, ...]:
        """Return the named events of both, with the sums there."""
        marks, most = [], 0
        for place, event in enumerate(self.events):
            most = max(most, self._rows["allocated"][place])
            if isinstance(event, Event):
                in_use, held = (self._rows[name][place] for name in ("allocated", "reserved"))
                marks.append(SimulatedMark(event.name, in_use, most, held))
        return tuple(marks)
