"""CUDA streams and events for a program that runs on no GPU: everything is done the moment it is asked for."""

from __future__ import annotations

from typing import Any, Self


class Stream:
    """`torch.cuda.Stream`."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device, self.priority = device, priority

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to leave: one stream is followed."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that is over."""
        return Event() if event is None else event

    def query(self) -> bool:
        """Whether all work is done: it is."""
        return True

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


class Event:
    """`torch.cuda.Event`."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, stream: Any = None) -> None:
        """Now."""

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """Whether it is over: it is."""
        return True

    def elapsed_time(self, end_event: Any) -> float:  # noqa: ARG002
        """Milliseconds: there is no clock."""
        return 0.0

    def synchronize(self) -> None:
        """Nothing to wait for."""
