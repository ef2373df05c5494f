"""The allocator a PYTORCH_ALLOC_CONF string asks for."""

from __future__ import annotations

from typing import Any

from analyzer.allocators.base import check_settings
from analyzer.allocators.driver import AddressSpace
from analyzer.allocators.pytorch.asynchronous import AsyncAllocator
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.expandable import ExpandableAllocator
from analyzer.allocators.pytorch.settings import PyTorchSettings, as_divisions, settings_from_conf


def create(conf: str = "", space: AddressSpace | None = None, **settings: Any) -> PyTorchAllocator:
    """Return a simulator from a PYTORCH_ALLOC_CONF string and fields of PyTorchSettings, which win over the
    string.

    space: where its segments lie; None: in a process that has run its first kernel.
    """
    check_settings("pytorch", settings, PyTorchSettings)
    if "roundup_power2_divisions" in settings:
        settings["roundup_power2_divisions"] = as_divisions(settings["roundup_power2_divisions"])
    chosen = settings_from_conf(conf, **settings)
    if chosen.backend == "cudaMallocAsync":
        return AsyncAllocator(chosen)
    if chosen.expandable_segments:
        return ExpandableAllocator(chosen, space)
    return PyTorchAllocator(chosen, space)
