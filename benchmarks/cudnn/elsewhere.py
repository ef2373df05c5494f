"""GPUs that are not there, described to cuDNN by their public figures: what it would choose on them, asked on another machine.

cuDNN's heuristics and plans take a device's properties (`CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR`) in place of a handle. They are those
of this machine's GPU with the figures below changed; one GPU stands for each compute capability. `plans.py ask --device NAME`
asks so.
"""

from __future__ import annotations

import json

from analyzer.runs.cudnn import Cudnn

_KIB, _MIB = 1 << 10, 1 << 20


def _gpu(
    name: str, capability: int, sm_count: int, shared_kib: int, l2_kib: int, mib: int, sm_mhz: int, memory_mhz: int,
    threads: int, blocks: int,
) -> dict[str, int | str]:  # fmt: skip
    """A GPU by the names cuDNN gives to its figures.

    shared_kib: shared memory a block may opt in to; threads, blocks: resident on a multiprocessor.
    """
    return {
        "deviceName": name, "deviceVer": capability, "multiProcessorCount": sm_count,
        "maxSharedMemoryPerBlockOptin": shared_kib * _KIB, "l2CacheSize": l2_kib * _KIB, "totalGlobalMem": mib * _MIB,
        "smClockRateKHz": 1000 * sm_mhz, "memClockRateKHz": 1000 * memory_mhz, "maxThreadsPerSM": threads, "maxCtasPerSM": blocks,
        "reservedSharedMemoryPerBlock": _KIB if capability >= 800 else 0,
    }  # fmt: skip


# Source: NVIDIA's white papers and data sheets of each; CUDA C++ Programming Guide, technical specifications per compute capability.
ELSEWHERE = {
    "sm75": _gpu("Tesla T4", 750, 40, 64, 4096, 15360, 1590, 5001, 1024, 16),
    "sm75.72": _gpu("NVIDIA TITAN RTX", 750, 72, 64, 6144, 24576, 1770, 7001, 1024, 16),
    "sm80": _gpu("NVIDIA A100-SXM4-80GB", 800, 108, 163, 40960, 81920, 1410, 1593, 2048, 32),
    "sm86": _gpu("NVIDIA GeForce RTX 3090", 860, 82, 99, 6144, 24576, 1695, 9751, 1536, 16),
    "sm89": _gpu("NVIDIA GeForce RTX 4090", 890, 128, 99, 73728, 24564, 2520, 10501, 1536, 24),
    "sm120": _gpu("NVIDIA GeForce RTX 5090", 1200, 170, 99, 98304, 32607, 2407, 14001, 1536, 32),
}


def device_json(name: str) -> str:
    """cuDNN's description of a GPU of `ELSEWHERE`, made of that of this machine's."""
    own = json.loads(Cudnn().device_json())
    changed = ELSEWHERE[name]
    unknown = changed.keys() - own.keys()
    if unknown:
        raise ValueError(f"cuDNN's description has no {', '.join(sorted(unknown))}")
    return json.dumps(own | changed)
