"""Two runtimes on one device: PyTorch's history and the sessions' marks, as `inside/` writes them, in one course."""

from __future__ import annotations

from typing import Any

import pytest

from analyzer.runtimes.events import Event, Free, Malloc
from analyzer_emulation.replay import replayed
from analyzer_emulation.served import of_arenas
from analyzer_emulation.together import Both, together

MIB = 2**20
FIRST, SECOND, REGION = 1 << 30, 2 << 30, 3 << 30


@pytest.fixture
def record() -> dict[str, Any]:
    """PyTorch takes a segment of 20 MiB, 12 of them for x; a session with weights of 40 MiB in a region of 64; PyTorch gives x
    back, and takes a segment of 40 MiB for y; a request has 60 MiB in use at once; PyTorch gives y and its segments back."""
    events = [
        ["segment_alloc", FIRST, 20 * MIB, 0],
        ["alloc", FIRST, 12 * MIB, 0],
        ["free_completed", FIRST, 12 * MIB, 0],
        ["segment_alloc", SECOND, 40 * MIB, 0],
        ["alloc", SECOND, 40 * MIB, 0],
        ["free_completed", SECOND, 40 * MIB, 0],
        ["segment_free", FIRST, 20 * MIB, 0],
        ["segment_free", SECOND, 40 * MIB, 0],
    ]
    asked = [
        (FIRST, 20 * MIB),
        (REGION, 64 * MIB),
        (SECOND, 40 * MIB),
        (0, 4),  # the host read a number
        (FIRST, 0),
        (SECOND, 0),
    ]

    def mark(what: str, requests: int, torch: tuple[int, int], in_use: int, most: int) -> dict[str, Any]:
        arena = {"arena": 1, "InUse": in_use * MIB, "MaxInUse": most * MIB}
        place = {"what": what, "session": 0, "place": "serve.py:7", "requests": requests, "used": 700 * MIB}
        return {**place, "arenas": [arena], "values": 0, "torch": torch}

    return {
        "events": events,
        "operators": [],
        "roles": {},
        "steps": [],
        "ended": {"how": "ended"},
        "sessions": 1,
        "session_notes": [],
        "session_marks": [
            mark("session", 2, (1, 0), 40, 40),
            mark("request", 3, (2, 1), 40, 60),
            mark("end", 6, (2, 2), 40, 60),
        ],
        "device_requests": asked,
    }


@pytest.fixture
def both(record: dict[str, Any]) -> Both:
    simulation, events, _ = replayed(record)
    return together(record, simulation, events)


def test_what_arenas_ask_for_is_told_from_pytorch_s_segments(record: dict[str, Any]) -> None:
    assert [request for request in of_arenas(record) if request[0]] == [(REGION, 64 * MIB)]


def test_in_use_and_held_are_sums(both: Both) -> None:
    """At the request: y's 40 MiB and the arena's 60; 20 + 40 + 64 are held."""
    simulation = both.simulation
    assert (simulation.peak_allocated, simulation.peak_reserved) == (100 * MIB, 124 * MIB)
    assert [(row.event.split(",")[0], row.allocated // MIB, row.reserved // MIB) for row in both.runs] == [
        ("session 1 made", 52, 84),
        ("request 1", 80, 124),
        ("the program's end", 40, 64),
    ]
    assert {row.device_used for row in both.runs} == {700 * MIB}
    assert (simulation.allocated[-1], simulation.reserved[-1]) == (40 * MIB, 64 * MIB)


def test_the_course_is_sound(both: Both) -> None:
    """Every request has a key of its own, and what is alive at the peak sums to it; segments sum to what is held."""
    simulation, keys = both.simulation, [event.key for event in both.events if isinstance(event, Malloc)]
    assert len(set(keys)) == len(keys)
    assert {event.key for event in both.events if isinstance(event, Free)} <= set(keys)
    assert sum(alive.block_bytes for alive in simulation.alive) == simulation.peak_allocated
    names = [event.name for event in both.events if isinstance(event, Event)]
    assert [mark.event for mark in simulation.marks] == names == [row.event for row in both.runs]
    for place, held in enumerate(simulation.reserved):
        pieces = [
            piece
            for piece in simulation.pieces
            if piece.born <= place and (piece.died < 0 or place <= piece.died)
        ]
        assert sum(piece.nbytes for piece in pieces) >= held
