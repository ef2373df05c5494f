"""GPUs for which a captured program is the same: those that would have given the same answers to every
question about the device.

A capture asks all questions about its device here. A decision by compute capability is made for those of all
known GPUs as well; those that decide otherwise are left out. A program that asks which GPU it is on, or how
much memory that has, is a program of that GPU alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from analyzer.devices import DeviceProfile, load, names
from analyzer.devices.architectures import Architecture, architecture_of

_Answer = TypeVar("_Answer")


class CompatibleDevices:
    """The known GPUs for which a program is captured as for this one.

    `capabilities`: the compute capabilities of those for which every answer was the same so far; known: what
    a tensor holds, or None.
    """

    def __init__(self, device: DeviceProfile) -> None:
        self.known: Callable[[Any], Any] = lambda _: None
        self.device = device
        self._own = device.compute_capability
        self.capabilities = _known_capabilities()

    def decided(self, decide: Callable[[Architecture], _Answer]) -> _Answer:
        """Return `decide` of the device's architecture; drop capabilities with other answers."""
        others = {number: decide(architecture_of(number)) for number in self.capabilities - {self._own}}
        decision = decide(self.device.architecture)
        self.capabilities -= {capability for capability, other in others.items() if other != decision}
        return decision

    def alone(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function whose call limits the program to this device."""

        def limiting(*arguments: Any, **keywords: Any) -> Any:
            self.capabilities = frozenset()
            return answer(*arguments, **keywords)

        return limiting


@cache
def _known_capabilities() -> frozenset[tuple[int, int]]:
    """Return the compute capabilities of the known GPUs."""
    return frozenset(load(name).compute_capability for name in names())
