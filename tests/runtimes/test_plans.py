"""A library's plan without room is asked for less, and what ran is kept."""

from __future__ import annotations

import gc
import weakref

import pytest

from analyzer.allocators import OutOfMemoryError
from analyzer.runtimes.plans import Plans


class Room:
    """Serves what fits into `room` bytes; remembers what it was asked for."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.asked: list[int] = []

    def malloc(self, nbytes: int) -> int:
        self.asked.append(nbytes)
        if nbytes > self.room:
            raise OutOfMemoryError(nbytes, 0, 0, self.room)
        return len(self.asked)


def test_the_first_smaller_plan_with_room_runs_and_is_kept() -> None:
    room, plans = Room(50), Plans()
    assert plans.served(room.malloc, 100, "conv", (80, 40, 0))[1] == 40
    assert room.asked == [100, 80, 40]
    room.room = 1000
    assert plans.served(room.malloc, 100, "conv", (80, 40, 0))[1] == 40  # although there would be room now
    assert plans.served(room.malloc, 100, "another", (80, 40, 0))[1] == 100
    room.room = 10
    assert plans.served(room.malloc, 100, "conv", (80, 40, 0))[1] == 0
    assert room.asked == [100, 80, 40, 40, 100, 40, 0]
    assert plans.refused == 3


def test_when_the_last_is_refused_there_is_no_memory() -> None:
    room, plans = Room(10), Plans()
    with pytest.raises(OutOfMemoryError):
        plans.served(room.malloc, 100, "conv", (80, 40))
    with pytest.raises(OutOfMemoryError):
        plans.served(room.malloc, 100)
    assert room.asked == [100, 80, 40, 100]


def test_a_refusal_keeps_nothing_of_its_caller_alive() -> None:
    """The error knows the frames it came through, and these the program's tensors: in a cycle they would live until
    Python collects garbage, and count as memory in use."""

    class Tensor:
        pass

    def convolve() -> weakref.ref[Tensor]:
        tensor = Tensor()
        Plans().served(Room(50).malloc, 100, "conv", (80, 40))
        return weakref.ref(tensor)

    gc.disable()
    try:
        assert convolve()() is None
    finally:
        gc.enable()
