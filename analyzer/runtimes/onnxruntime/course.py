"""How sessions go on a device: with room, without the blocks of memory patterns, or out of memory.

1. The sessions' requests are recorded once for each set of blocks that are refused (`Requests`).
2. The arena is simulated with all memory a process can have. Where the arena, in this order of initializers
   or in another, and the process's memory beside it are more than the device has, it is simulated once more
   with the rest.
3. That counts if it runs, and if the session's creation and its first run ask for nothing they do not get at
   once: libraries take their memory until then, so that the arena might otherwise have taken it before them.
4. A request other than a pattern's block that finds no room is out of memory; the figures are then those with
   room. The request, and how many orders run, are those of an arena with what the process's other memory
   leaves it.

Source: `core/framework/execution_frame.cc` (a pattern's block without room), `bfc_arena.cc` (`Extend`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from analyzer.allocators.onnxruntime_bfc import SESSION
from analyzer.devices import DeviceProfile
from analyzer.runtimes.events import AllocationEvent
from analyzer.runtimes.onnxruntime.frame import Frame
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.plain_arena import Reached
from analyzer.runtimes.onnxruntime.recorder import KernelTakes, Recording
from analyzer.runtimes.onnxruntime.session import record
from analyzer.runtimes.onnxruntime.simulation import (
    Orders,
    SessionFailure,
    SimulatedSession,
    reached,
    simulate_session,
    simulate_typical_order,
)


class Requests(ABC):
    """Requests of sessions on one arena, with and without memory patterns' blocks."""

    @abstractmethod
    def without(self, blocks: frozenset[int] = frozenset()) -> Recording:
        """Return the recording without the blocks with these keys."""

    def events(self, blocks: frozenset[int] = frozenset()) -> tuple[AllocationEvent, ...]:
        """Return the events of that recording."""
        return self.without(blocks).events

    def reached(self, settings: SessionOptions) -> Reached:
        """Return the peaks with initializers in the recording's order, within the arena's own limit alone."""
        return reached(self.events(), settings, None, self.events)


class Recorded(Requests):
    """Those of sessions that are followed here; recorded once each. takes: kernels' scratch as it is known,
    by recordings whose kernels have the same settings."""

    def __init__(
        self,
        sessions: Sequence[Sequence[Frame]],
        settings: SessionOptions,
        device: DeviceProfile,
        takes: KernelTakes | None = None,
    ) -> None:
        self._arguments = sessions, settings, device
        self._known: dict[frozenset[int], Recording] = {}
        self.takes: KernelTakes = {} if takes is None else takes

    def without(self, blocks: frozenset[int] = frozenset()) -> Recording:
        """Return the recording without the blocks with these keys."""
        if blocks not in self._known:
            self._known[blocks] = record(*self._arguments, refused=blocks, takes=self.takes)
        return self._known[blocks]


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
    recorded: Requests, settings: SessionOptions, usable_bytes: int | None, outside_bytes: int
) -> Course:
    """Simulate the sessions. usable_bytes: what the device has for the process, None without end;
    outside_bytes: what that takes beside the arena."""
    result = _simulated(recorded, settings, usable_bytes)
    with_room = replace(settings, gpu_mem_limit=None)
    room = None if usable_bytes is None else max(usable_bytes - outside_bytes, 0)
    if result.simulation.failure is not None:
        short = result if room is None else _simulated(recorded, settings, room)
        free = _simulated(recorded, with_room, None)
        orders = replace(free.orders, served=short.orders.served, tried=short.orders.tried)
        return replace(free, orders=orders, failure=short.simulation.failure or result.simulation.failure)
    held = _device_bytes(result.simulation)
    if room is not None and max(held, result.orders.held[1]) > room:
        less = _simulated(recorded, settings, room)
        if held <= room:
            result = replace(result, orders=less.orders)
        elif less.simulation.failure is None and _starts_with_room(less):
            result = less
        else:
            served = less.orders.served if less.simulation.failure is not None else 0
            result = replace(result, orders=replace(result.orders, served=served))
    result = replace(result, orders=_within(result, room))
    if not result.simulation.refused:
        return result
    return replace(result, held_with_room=_simulated(recorded, with_room, None).simulation.held_most)


def _simulated(recorded: Requests, settings: SessionOptions, memory: int | None) -> Course:
    typical = simulate_typical_order(recorded.events(), settings, memory, recorded.events)
    return Course(*typical, settings, memory)


def _within(result: Course, room: int | None) -> Orders:
    """Return the orders; where all are served in `room` bytes of the device, or within the arena's own limit,
    they hold no more: an arena without room for a larger region takes a smaller one."""
    orders, session = result.orders, result.simulation
    least, most = orders.held
    if room is not None:
        most = min(most, room - (_device_bytes(session) - session.held_most))
    if result.settings.gpu_mem_limit is not None:
        most = min(most, result.settings.gpu_mem_limit)
    if orders.served < orders.tried or most < session.held_most:
        return orders
    low, high = orders.peaks
    return replace(orders, held=(min(least, most), most), peaks=(min(low, most), min(high, most)))


def _device_bytes(session: SimulatedSession) -> int:
    return max(session.held_most, session.page_bytes)


def _starts_with_room(limited: Course) -> bool:
    """Return whether creation and first run get from the device what they would get of one without end."""
    free = simulate_session(limited.simulation.events, limited.settings).stages
    first = [name for name in free if name == SESSION or name.split(" of ")[0] == "run 1"]
    return all(limited.simulation.stages[name] == free[name] for name in first)
