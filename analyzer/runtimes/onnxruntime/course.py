"""How sessions go on a device: with room, without the blocks of memory patterns, or out of memory.

1. What the sessions ask for is recorded once for each set of blocks that are refused (`Recorded`).
2. The arena is simulated with all memory a process can have. Where that and what the process takes beside the
   arena are more than the device has, in this order of initializers or in another, it is simulated once more
   with what is left beside those.
3. That counts if it runs, and if the session's creation and its first run ask for nothing they do not get at
   once: libraries take their memory until then, so that the arena might otherwise have taken it before them.
4. A request other than a pattern's block that finds no room is out of memory; the figures are then those with
   room.

Source: `core/framework/execution_frame.cc` (a pattern's block without room), `bfc_arena.cc` (`Extend`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analyzer.allocators.onnxruntime_bfc import SESSION
from analyzer.devices import DeviceProfile
from analyzer.runtimes.events import AllocationEvent
from analyzer.runtimes.onnxruntime.frame import Frame
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.recorder import Recording
from analyzer.runtimes.onnxruntime.session import record
from analyzer.runtimes.onnxruntime.simulation import (
    Orders,
    SessionFailure,
    SimulatedSession,
    simulate_session,
    simulate_to_the_end,
    simulate_typical_order,
)


class Recorded:
    """What sessions on one arena ask for, with and without memory patterns' blocks; recorded once each."""

    def __init__(
        self, sessions: Sequence[Sequence[Frame]], settings: SessionOptions, device: DeviceProfile
    ) -> None:
        self._asked = sessions, settings, device
        self._known: dict[frozenset[int], Recording] = {}

    def without(self, blocks: frozenset[int] = frozenset()) -> Recording:
        """Return the recording without the blocks with these keys."""
        if blocks not in self._known:
            self._known[blocks] = record(*self._asked, refused=blocks)
        return self._known[blocks]

    def events(self, blocks: frozenset[int] = frozenset()) -> tuple[AllocationEvent, ...]:
        """Return the events of that recording."""
        return self.without(blocks).events

    def to_the_end(self, settings: SessionOptions) -> SimulatedSession:
        """Simulate with initializers in the file's order, within the arena's own limit alone."""
        return simulate_to_the_end(self.events(), settings, None, self.events)


@dataclass(frozen=True, slots=True)
class Course:
    """Sessions simulated. All sizes in bytes.

    orders: of initializers, on the device. settings, memory: what `simulation` ran under; None: without end.
    failure: what finds no memory on the device; the simulation is then the one with room. held_with_room:
    what would be held at most with room, where blocks were refused; else 0.
    """

    simulation: SimulatedSession
    orders: Orders
    settings: SessionOptions
    memory: int | None
    failure: SessionFailure | None = None
    held_with_room: int = 0


def course(
    recorded: Recorded, settings: SessionOptions, usable_bytes: int | None, outside_bytes: int
) -> Course:
    """Simulate the sessions. usable_bytes: what the device has for the process, None without end;
    outside_bytes: what that takes beside the arena."""
    found = _simulated(recorded, settings, usable_bytes)
    with_room = replace(settings, gpu_mem_limit=None)
    if found.simulation.failure is not None:
        free = _simulated(recorded, with_room, None)
        orders = replace(free.orders, served=found.orders.served, tried=found.orders.tried)
        return replace(free, orders=orders, failure=found.simulation.failure)
    room = None if usable_bytes is None else usable_bytes - outside_bytes
    held = _device_bytes(found.simulation)
    if room is not None and max(held, found.orders.held[1]) > room:
        less = _simulated(recorded, settings, room)
        if held <= room:
            found = replace(found, orders=less.orders)
        elif less.simulation.failure is None and _starts_with_room(less):
            found = less
        else:
            served = less.orders.served if less.simulation.failure is not None else 0
            found = replace(found, orders=replace(found.orders, served=served))
    found = replace(found, orders=_within(found, room))
    if not found.simulation.refused:
        return found
    return replace(found, held_with_room=_simulated(recorded, with_room, None).simulation.held_most)


def _simulated(recorded: Recorded, settings: SessionOptions, memory: int | None) -> Course:
    typical = simulate_typical_order(recorded.events(), settings, memory, recorded.events)
    return Course(*typical, settings, memory)


def _within(found: Course, room: int | None) -> Orders:
    """Return the orders; where all are served in `room` bytes of the device, or within the arena's own limit,
    they hold no more: an arena without room for a larger region takes a smaller one."""
    orders, session = found.orders, found.simulation
    least, most = orders.held
    if room is not None:
        most = min(most, room - (_device_bytes(session) - session.held_most))
    if found.settings.gpu_mem_limit is not None:
        most = min(most, found.settings.gpu_mem_limit)
    if orders.served < orders.tried or most < session.held_most:
        return orders
    return replace(orders, held=(least, most))


def _device_bytes(session: SimulatedSession) -> int:
    return max(session.held_most, session.page_bytes)


def _starts_with_room(found: Course) -> bool:
    """Whether creation and first run get from the device what they would get of one without end."""
    free = simulate_session(found.simulation.events, found.settings).stages
    first = [name for name in free if name == SESSION or name.split(" of ")[0] == "run 1"]
    return all(found.simulation.stages[name] == free[name] for name in first)
