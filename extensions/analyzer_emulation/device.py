"""Properties of a GPU for the emulated runtime, from its profile and its architecture
(`devices/architectures.py`). The L2 cache steers Inductor's choices, and no allocation of PyTorch's own.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.devices.topology import BEHIND_SWITCHES
from analyzer.errors import OptionError

# Contents of device memory are kept up to this many bytes a tensor: 65,536 elements of eight bytes.
KNOWN_BYTES = 65536 * 8


def described(profile: DeviceProfile, cuda: tuple[int, int], count: int = 1) -> str:
    """Return the device as `native/device.c` reads it. cuda: the release PyTorch was built with. Raises
    OptionError for a compute capability that is not known, or whose L2 cache is not."""
    sm, (major, minor) = profile.architecture, profile.compute_capability
    if not sm.l2_bytes:
        raise OptionError(
            f"{profile.name} has compute capability {major}.{minor}, whose L2 cache is not known",
            "profiles of other GPUs are emulated: analyze devices",
        )
    modules = profile.modules_bytes
    fields = {
        "count": count,
        "major": major,
        "minor": minor,
        "cuda": cuda[0] * 1000 + cuda[1] * 10,
        "sm_count": profile.sm_count,
        "threads_per_sm": profile.max_threads_per_sm,
        "blocks_per_sm": sm.blocks_per_sm,
        "shared_per_sm": sm.shared_bytes,
        "shared_per_block": sm.block_shared_bytes,
        "l2": sm.l2_bytes,
        "capacity": profile.capacity_bytes,
        "listed": profile.listed_bytes,
        "driver": profile.driver_bytes,
        "context": profile.context_bytes,
        "first_kernel": profile.first_kernel_bytes,
        "cublas_code": modules.get("cublas", 0),
        "cudnn_code": modules.get("cudnn", 0),
        "cusolver_code": modules.get("cusolver", 0),
        "cufft_code": modules.get("cufft", 0),
        "kernels_code": modules.get("kernels", 0),
        "launched_code": modules.get("launched", 0),
        "searched_code": modules.get("searched", 0),
        "memset_code": modules.get("memset", 0),
        "multicast": int(count > 1 and profile.name in BEHIND_SWITCHES),
        "peers": int(profile.reaches_peers),
        "known": KNOWN_BYTES,
    }
    name = next(iter(profile.nvml_names), profile.name).replace(";", " ")
    return ";".join([*(f"{key}={value}" for key, value in fields.items()), f"name={name}"])
