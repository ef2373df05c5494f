"""The caching allocator as a profile's release of torch has it, with the user's settings, and under a
limit."""

from __future__ import annotations

from typing import Any

from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.create import create
from analyzer.allocators.pytorch.settings import ties_of
from analyzer.devices import DeviceProfile


def make_allocator(conf: str, profile: DeviceProfile, **settings: Any) -> PyTorchAllocator:
    """Return the allocator for these settings in the profile's torch release."""
    return create(conf, ties=ties_of(profile.releases["torch"]), **settings)


def limited(conf: str, profile: DeviceProfile, limit_bytes: int, device: bool) -> PyTorchAllocator:
    """The allocator under a limit: the device's (`cudaMalloc` has no more to give), else its own, as
    `torch.cuda.set_per_process_memory_fraction` sets it: a fraction of the device, of which only the product
    counts."""
    if device:
        return make_allocator(conf, profile, limit_bytes=limit_bytes)
    return make_allocator(conf, profile, per_process_memory_fraction=0.5, device_total_bytes=2 * limit_bytes)
