"""One program under several allocators (`planning/allocators.py` simulates it)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnderAllocator:
    """A program under one allocator: peaks in bytes, calls of the driver.

    at_least: the figures are lower bounds. out_of_memory: what failed, "" if nothing did; then the figures
    are those reached before. fits: reserved memory is within what the device leaves the allocator.
    """

    allocator: str
    setting: str
    requested: int
    allocated: int
    reserved: int
    device_calls: int
    fits: bool
    at_least: bool = False
    out_of_memory: str = ""

    @property
    def unused(self) -> int:
        """Reserved bytes the allocated peak leaves over."""
        return self.reserved - self.allocated


@dataclass(frozen=True, slots=True)
class Comparison:
    """One program under several allocators. `available_bytes`: what the device leaves an allocator."""

    target: str
    runtime: str
    mode: str
    batch: int | None
    optimizer: str
    device: str
    device_note: str
    available_bytes: int
    request_count: int
    rows: tuple[UnderAllocator, ...]
    notes: tuple[str, ...]
