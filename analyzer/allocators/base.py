"""The protocol every allocator simulator follows, and nothing more."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Protocol

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


class Allocator(Protocol):
    """`malloc` returns a handle that `free` takes once. All figures in bytes."""

    @property
    def allocated(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    @property
    def peak_allocated(self) -> int: ...
    @property
    def peak_reserved(self) -> int: ...

    def malloc(self, nbytes: int) -> int: ...
    def free(self, handle: int) -> None: ...


def check_settings(allocator: str, settings: Iterable[str], maker: Callable[..., object]) -> None:
    """Raise OptionError for the first setting that is not a keyword of `maker`."""
    known = sorted(inspect.signature(maker).parameters)
    for name in settings:
        if name not in known:
            raise OptionError(
                f"{allocator} has no setting {name!r}",
                f"{did_you_mean(name, known)}its settings: {', '.join(known)}",
            )
