"""Recorded requests on PyTorch's allocator with other settings: what each would hold.

Settings that PYTORCH_ALLOC_CONF changes decide where blocks lie, and nothing of what a program asks for; so
the same requests, served again, give what it would hold (`allocators/pytorch`, PyTorch's
`c10/cuda/CUDACachingAllocator.cpp`). `garbage_collection_threshold` acts only where a program called
`set_per_process_memory_fraction` (there, `set_fraction`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from analyzer.allocators import create
from analyzer.allocators.pytorch.settings import PyTorchSettings
from analyzer.runtimes.events import AllocationEvent
from analyzer.runtimes.timeline import simulate

SETTINGS: tuple[Mapping[str, Any], ...] = (
    {"expandable_segments": True},
    {"max_split_size_mb": 128},
    {"roundup_power2_divisions": 8},
    {"garbage_collection_threshold": 0.8},
)


@dataclass(frozen=True, slots=True)
class Held:
    """Peaks of the requests under a setting ("expandable_segments:True"; "" for their own), in bytes.
    served: whether each found memory."""

    setting: str
    peak_allocated: int
    peak_reserved: int
    served: bool


def under_setting(
    events: Iterable[AllocationEvent],
    own: PyTorchSettings,
    change: Mapping[str, Any],
    limit_bytes: int | None = None,
) -> Held:
    """Return what the requests hold with one change of their own settings. limit_bytes: what the device has
    for the allocator; None: no end."""
    settings = {field.name: getattr(own, field.name) for field in fields(own)}
    simulation = simulate(events, create("pytorch", **{**settings, **change, "limit_bytes": limit_bytes}))
    return Held(
        setting_name(change),
        simulation.peak_allocated,
        simulation.peak_reserved,
        simulation.failure is None,
    )


def setting_name(change: Mapping[str, Any]) -> str:
    """Return a change of settings as PYTORCH_ALLOC_CONF says it."""
    return ",".join(f"{name}:{value}" for name, value in change.items())
