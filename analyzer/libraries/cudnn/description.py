"""How a profile's GPU is described to cuDNN: JSON in the library's own field names, of the architecture whose
kernels run there."""

from __future__ import annotations

import json

from analyzer.devices import DeviceProfile

# Compute capability -> the last torch whose libraries do not know it, and the one whose kernels run there:
# CUDA 11.8's release notes name 8.9 first, CUDA 11.1's 8.6; torch 2.0's wheels bring CUDA 11.7, torch 1.7's
# 11.0.
_BEFORE = {(8, 9): ((2, 0), (8, 6)), (8, 6): ((1, 7), (8, 0))}


def description_of(profile: DeviceProfile) -> str:
    """Return the GPU's description for cuDNN as JSON; "" if there is none."""
    major, minor = chosen_capability(profile)
    device = {**profile.cudnn_device, "deviceVer": 100 * major + 10 * minor}
    return json.dumps(device, sort_keys=True) if profile.cudnn_device else ""


def chosen_capability(profile: DeviceProfile) -> tuple[int, int]:
    """Return the compute capability whose kernels the profile's torch release runs."""
    major, minor = profile.compute_capability
    until, before = _BEFORE.get((major, minor), ((0, 0), (major, minor)))
    return before if profile.releases["torch"] <= until else (major, minor)


def clocks_of(profile: DeviceProfile) -> float:
    """Return the multiprocessors' clock by the memory's, as the GPU is described; 1 where it does not say."""
    device = profile.cudnn_device or {}
    processors, memory = (device.get(name, 0) for name in ("smClockRateKHz", "memClockRateKHz"))
    return float(processors / memory) if processors and memory else 1.0
