"""One session whose values take other sizes: its figures alone, as often as they are asked for.

What the sizes do not change is done once: the plan (`session.frame`), and the arena after the initializers in each of their
orders (`playing.Loaded`). What `prediction.predict` would say of the same sizes is the same.

Not modelled: sessions that share an arena, runs of several sizes; limits, shrinking and requests apart from the arena's
regions, as the CPU provider makes (`plain` says whether there are any).
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.devices import DeviceProfile
from analyzer.runtimes.onnxruntime import outside
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.playing import Loaded
from analyzer.runtimes.onnxruntime.session import Frame, record


@dataclass(frozen=True, slots=True)
class SessionBytes:
    """Bytes in use at the peak, held by the arena, and of the device."""

    peak_in_use: int
    held: int
    device_bytes: int


class ResizedSession:
    """A session ready to run; whoever has its `frame` may give its values other shapes between two calls."""

    def __init__(self, frame: Frame, settings: SessionOptions, device: DeviceProfile) -> None:
        self.frame = frame
        self._settings, self._device = settings, device
        room = device.capacity_bytes if settings.provider == "cuda" else None
        self._loaded = Loaded(record(frame, settings, device).events, settings, room)

    @property
    def plain(self) -> bool:
        """Whether its arena has no rules that `figures` does not know."""
        return self._loaded.plain

    def figures(self) -> SessionBytes | None:
        """At the sizes the values have now; None where only `predict` knows: it is not `plain`, the device has no room."""
        events = record(self.frame, self._settings, self._device).events
        reached = self._loaded.typical(events)
        if reached is None:
            return None
        beside = sum(outside.beside_arena(self.frame.graph, self._settings, self._device))
        return SessionBytes(reached.peak_in_use, reached.held, max(reached.held, reached.page_bytes) + beside)
