"""TensorFlow's settings that decide memory, by the names of its GPU options, and what the device leaves it.

1. `allow_growth`: regions double from 2 MiB; without it (TensorFlow's default) the first request takes
   everything. TF_FORCE_GPU_ALLOW_GROWTH in the environment says the same and wins, as it does in TensorFlow.
2. `memory_limit` (MB of 2^20 bytes, `LogicalDeviceConfiguration`) or `per_process_gpu_memory_fraction` (of
   the device's total memory) bound what it may take; without either it leaves the system some of what is
   available: 225 MiB below 2 GiB, else 500, 1,050, 1,536 or 1,800 MiB for compute capability up to 6, 7, 8
   and above.

Source: `tensorflow/core/common_runtime/gpu/gpu_device.cc` (`MinSystemMemory`,
`SingleVirtualDeviceMemoryLimit`) and `gpu_process_state.cc` of TensorFlow 2.13 and later (1,800 MiB above
compute capability 8 is newer).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.allocators.tensorflow_bfc import system_bytes
from analyzer.devices import DeviceProfile
from analyzer.errors import OptionError, did_you_mean

MIB = 2**20
KNOWN = (
    "allow_growth",
    "memory_limit",
    "per_process_gpu_memory_fraction",
    "fragmentation_fraction",
    "cudnn_workspace_limit_in_mb",
)


@dataclass(frozen=True, slots=True)
class TensorFlowSettings:
    """allow_growth: regions double. limit_bytes: of the arena; limited: by the user."""

    allow_growth: bool
    limit_bytes: int
    limited: bool
    fragmentation_fraction: float
    workspace_limit_bytes: int


def parse(
    options: Mapping[str, Any],
    profile: DeviceProfile,
    available_bytes: int,
    environment: Mapping[str, str] = os.environ,
) -> TensorFlowSettings:
    """The settings on a device with `available_bytes` free. Raises OptionError."""
    for name in options:
        if name not in KNOWN:
            raise OptionError(
                f"unknown runtime option {name!r} for tensorflow",
                f"{did_you_mean(name, KNOWN)}one of {', '.join(KNOWN)}",
            )
    if environment.get("TF_GPU_ALLOCATOR", "") not in ("", "bfc"):
        raise OptionError(
            f"TF_GPU_ALLOCATOR={environment['TF_GPU_ALLOCATOR']} is not simulated",
            "unset it: TensorFlow's own allocator is BFC",
        )
    limited = "memory_limit" in options or "per_process_gpu_memory_fraction" in options
    if "memory_limit" in options:
        limit_bytes = int(_number("memory_limit", options["memory_limit"], 1) * MIB)
    elif "per_process_gpu_memory_fraction" in options:
        name = "per_process_gpu_memory_fraction"
        limit_bytes = int(profile.capacity_bytes * _number(name, options[name], 0, 1))
    else:
        limit_bytes = available_bytes - system_bytes(available_bytes, profile.compute_capability[0])
    name = "fragmentation_fraction"
    growth = environment.get("TF_FORCE_GPU_ALLOW_GROWTH") or options.get("allow_growth", False)
    return TensorFlowSettings(
        _switch(growth),
        max(limit_bytes, 1),
        limited,
        _number(name, options.get(name, 0.0), 0, 1),
        int(
            _number(
                "cudnn_workspace_limit_in_mb",
                options.get(
                    "cudnn_workspace_limit_in_mb",
                    environment.get("TF_CUDNN_WORKSPACE_LIMIT_IN_MB", 4096),
                ),
                0,
            )
            * MIB
        ),
    )


def _switch(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("1", "true", "0", "false"):
        raise OptionError(f"allow_growth is {value!r}", "give True or False")
    return text in ("1", "true")


def _number(name: str, value: Any, least: float, most: float | None = None) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not (least <= number <= (most if most is not None else 2**40)):
        bound = f"at least {least:g}" if most is None else f"between {least:g} and {most:g}"
        raise OptionError(f"{name} is {value!r}", f"give a number {bound}")
    return number
