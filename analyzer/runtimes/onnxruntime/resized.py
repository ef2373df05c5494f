"""One session whose values take other sizes: its figures alone, at as many sizes as are asked for.

Work that does not depend on the sizes is done once: the plan (`frame.py`), and the arena after the
initializers in each of their orders (`simulation.Loaded`). Sizes at which the session asks for the same but
for bytes are recorded at once: its values' dimensions are then `Lanes` (`parametric/lanes.py`). The figures
are those of `prediction.predict` at the same sizes.

Not modelled: sessions that share an arena, runs of several sizes; limits, shrinking and requests apart from
the arena's regions, as the CPU provider makes (`plain` says whether there are any).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analyzer.devices import DeviceProfile
from analyzer.parametric.lanes import Integers, Lanes
from analyzer.runtimes.onnxruntime import outside
from analyzer.runtimes.onnxruntime.frame import Frame
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.plain_arena import Steps
from analyzer.runtimes.onnxruntime.session import record
from analyzer.runtimes.onnxruntime.simulation import Loaded


@dataclass(frozen=True, slots=True)
class SessionBytes:
    """Bytes in use at the peak, held by the arena, and of the device."""

    peak_in_use: int
    held: int
    device_bytes: int


@dataclass(frozen=True, slots=True)
class Runs:
    """Requests of a session's runs at several sizes, a lane each. beside: bytes outside the arena."""

    steps: Steps
    beside: Integers


class ResizedSession:
    """A session ready to run; its `frame`'s values may get other shapes between calls of `runs`."""

    def __init__(self, frame: Frame, settings: SessionOptions, device: DeviceProfile) -> None:
        self.frame = frame
        self._settings, self._device = settings, device
        room = device.usable_bytes if settings.provider == "cuda" else None
        self._loaded = Loaded(record(frame, settings, device).events, settings, room)

    @property
    def plain(self) -> bool:
        """Whether its arena has no rules that `figures` does not know."""
        return self._loaded.plain

    def runs(self, lane_count: int = 0) -> Runs | None:
        """Return the requests at the values' current sizes; None if only `predict` can tell. lane_count:
        number of lanes of `Lanes` sizes; 0 for plain numbers, which make one lane.

        Raises Apart where the session asks otherwise in some lanes, NotTogether where they cannot be worked
        out at once.
        """
        events = record(self.frame, self._settings, self._device, lane_count).events
        count = max(lane_count, 1)
        steps = self._loaded.runs(events, count)
        if steps is None:
            return None
        beside: Any = sum(outside.outside_arena(self.frame.graph, self._settings, self._device))
        every = beside.values if isinstance(beside, Lanes) else np.full(count, beside, np.int64)
        return Runs(steps, every)

    def figures(self, runs: Runs, lane: int = 0) -> SessionBytes | None:
        """Return the figures of one lane; None if only `predict` can tell, as the device has no room."""
        reached = self._loaded.typical(runs.steps.at(lane))
        if reached is None:
            return None
        device_bytes = max(reached.held, reached.page_bytes) + int(runs.beside[lane])
        return SessionBytes(reached.peak_in_use, reached.held, device_bytes)
