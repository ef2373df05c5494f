"""What the emulated runtime is told of a GPU, from its profile and NVIDIA's documents.

Of a multiprocessor, by compute capability: CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability". The L2 cache is that of the largest GPU of the compute capability (NVIDIA's architecture
whitepapers); it steers what Inductor tries, and no allocation of PyTorch's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.devices import DeviceProfile
from analyzer.errors import OptionError

KIB = 1024
MIB = 2**20
# Contents of device memory are kept up to this many bytes a tensor: 65,536 elements of eight bytes.
KNOWN_BYTES = 65536 * 8


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """Blocks it holds at once, its shared memory and what of it a block may have, and the device's L2 cache,
    in bytes."""

    blocks: int
    shared_bytes: int
    block_shared_bytes: int
    l2_bytes: int


MULTIPROCESSORS = {
    (7, 0): Multiprocessor(32, 96 * KIB, 96 * KIB, 6 * MIB),
    (7, 5): Multiprocessor(16, 64 * KIB, 64 * KIB, 6 * MIB),
    (8, 0): Multiprocessor(32, 164 * KIB, 163 * KIB, 40 * MIB),
    (8, 6): Multiprocessor(16, 100 * KIB, 99 * KIB, 6 * MIB),
    (8, 9): Multiprocessor(24, 100 * KIB, 99 * KIB, 96 * MIB),
    (9, 0): Multiprocessor(32, 228 * KIB, 227 * KIB, 60 * MIB),
    (10, 0): Multiprocessor(32, 228 * KIB, 227 * KIB, 126 * MIB),
    (10, 3): Multiprocessor(32, 228 * KIB, 227 * KIB, 126 * MIB),
    (12, 0): Multiprocessor(24, 100 * KIB, 99 * KIB, 96 * MIB),
}


def described(profile: DeviceProfile, cuda: tuple[int, int], count: int = 1) -> str:
    """The device as `native/device.c` reads it. cuda: the release PyTorch was built with. Raises OptionError
    for a compute capability that is not known."""
    sm = MULTIPROCESSORS.get(profile.compute_capability)
    if sm is None:
        major, minor = profile.compute_capability
        raise OptionError(
            f"{profile.name} has compute capability {major}.{minor}, which is not emulated",
            f"one of {', '.join(f'{a}.{b}' for a, b in MULTIPROCESSORS)}",
        )
    major, minor = profile.compute_capability
    modules = profile.modules_bytes
    fields = {
        "count": count,
        "major": major,
        "minor": minor,
        "cuda": cuda[0] * 1000 + cuda[1] * 10,
        "sm_count": profile.sm_count,
        "threads_per_sm": profile.max_threads_per_sm,
        "blocks_per_sm": sm.blocks,
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
        "known": KNOWN_BYTES,
    }
    name = next(iter(profile.nvml_names), profile.name).replace(";", " ")
    return ";".join([*(f"{key}={value}" for key, value in fields.items()), f"name={name}"])
