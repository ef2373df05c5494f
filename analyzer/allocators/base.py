"""The interface of every allocator simulator, and nothing more.

1. `malloc` takes memory for one stream, 0 being the default one; None is a request outside any stream. A
   simulator that keeps no streams apart takes the stream and does nothing with it.
2. `reserve` takes memory apart from the pools, where the allocator has such a way; otherwise as `malloc`
   does.
3. `end_event` tells that a named event of the program is over ("run 1"); most allocators do nothing then.
4. `use` tells that another stream uses what is held, `wait` that the device has done all it was asked.
5. A simulator that knows where things are says so: `address_of` and `segments`. One that does not has no
   addresses.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from analyzer.errors import OptionError, did_you_mean


class OutOfMemoryError(Exception):
    """The simulated device has no room: `requested`, `allocated`, `reserved`, `limit` in bytes.

    free: sizes of the free blocks the allocator held then, largest first, where it says (PyTorch's does).
    """

    def __init__(
        self, requested: int, allocated: int, reserved: int, limit: int, free: tuple[int, ...] = ()
    ) -> None:
        super().__init__(
            f"{requested} bytes requested with {allocated} allocated and {reserved} reserved of {limit}"
        )
        self.requested, self.allocated, self.reserved, self.limit = requested, allocated, reserved, limit
        self.free = free


class Allocator(ABC):
    """A simulator. All figures in bytes: in use and held now, and the highest of each so far."""

    allocated: int
    reserved: int
    segment_events: Sequence[Any] = ()  # calls of the driver in order, where the simulator records them
    peak_allocated: int
    peak_reserved: int

    @abstractmethod
    def malloc(self, nbytes: int, stream: int | None = 0) -> int:
        """Take `nbytes` bytes for a stream (None: outside any); returns a handle that `free` takes once.

        Raises OutOfMemoryError where a limit is reached, ValueError for a negative size.
        """

    @abstractmethod
    def free(self, handle: int) -> None:
        """Give back what `malloc` or `reserve` took. Raises ValueError for a handle that is not alive."""

    def reserve(self, nbytes: int) -> int:
        """Take `nbytes` bytes outside the pools; allocators without such a way use `malloc`."""
        return self.malloc(nbytes)

    def use(self, handle: int, stream: int) -> None:  # noqa: B027
        """Record that another stream uses the handle's block; ignored by allocators without streams."""

    def wait(self, stream: int | None = None, by: int | None = None) -> None:  # noqa: B027
        """Record that the host (or stream `by`) waited for a stream, or all; ignored without streams."""

    @property
    def device_calls(self) -> int:
        """Number of allocations and frees at the driver; 0 where the simulator does not count them."""
        return 0

    def address_of(self, handle: int) -> int:  # noqa: ARG002
        """Address of a live handle's memory; 0 for a request of 0 bytes and without addresses."""
        return 0

    def segments(self) -> tuple[tuple[int, int], ...]:
        """Device memory held now: (address, bytes) of each segment, by address; () without addresses."""
        return ()

    def end_event(self, event: str, value: float | None = None) -> None:  # noqa: B027
        """End a named event of the program; most allocators do nothing."""


def check_settings(allocator: str, settings: Iterable[str], maker: Callable[..., object]) -> None:
    """Raise OptionError for the first setting that is not a keyword of `maker`."""
    names = sorted(inspect.signature(maker).parameters)
    for name in settings:
        if name not in names:
            raise OptionError(
                f"{allocator} has no setting {name!r}",
                f"{did_you_mean(name, names)}its settings: {', '.join(names)}",
            )
