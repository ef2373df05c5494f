"""A process's memory as NVML counts it: the context, libraries outside the allocator, and the reservation.

1. The context with the first kernel's modules: `DeviceProfile.context_bytes`.
2. A library family adds its bytes when first used. Families named in `per_thread_modules` add them for every
   thread that uses them (they belong to handles, of which each thread has its own).
3. The code of all other kernels, PyTorch's and the libraries', is loaded as they are first used: the family
   "kernels", once, in a program that uses any library. (The few kernels of one that uses none take 0 to 2
   MiB.)
4. Code that a library loads once, with its first use: "FAMILY code", which profiles of older releases have
   (`devices/contexts.py`).
5. Local memory of kernels that need more than a stack has (`libraries/cudnn/local_memory.py`).
6. The allocator's reservation.
7. Of one rank of a job, what NCCL holds for its communicators (`libraries/nccl.py`).

Source: NVML at the end of 180 runs on an H200 (`tests/data/h200`): once the reservation is known, these are
exact in 122 and within 4 MiB, two pages, in all.
Not modelled: which kernels a program loads (float32 training with many different convolutions takes 2 to 4
MiB more), memory for printf.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from analyzer.devices.profile import DeviceProfile
from analyzer.graph import Communicator
from analyzer.libraries import nccl
from analyzer.libraries.cudnn import local_memory
from analyzer.notes import NCCL_BOUNDED


def device_used(
    reserved_bytes: int,
    libraries: Iterable[str],
    profile: DeviceProfile,
    communicators: Mapping[str, Communicator] | None = None,
) -> int:
    """Return the bytes NVML shows for a process that reserved `reserved_bytes` and used these library
    families: "cublas" on the main thread, "cublas@autograd" on another, which it names."""
    counted = set()
    for use in libraries:
        family, _, _ = use.partition("@")
        counted.add(use if family in profile.per_thread_modules else family)
        counted.add(f"{family} code")
    if counted:
        counted.add("kernels")
    return (
        profile.context_bytes
        + reserved_bytes
        + sum(profile.modules_bytes.get(use.partition("@")[0], 0) for use in counted)
        + local_memory.kept_bytes(counted, profile.sm_count * profile.max_threads_per_sm)
        + nccl.memory_of(communicators or {}, profile).nbytes
    )


def notes_on_nccl(communicators: Mapping[str, Communicator], profile: DeviceProfile) -> Iterator[str]:
    """Yield notes on figures of a rank's communicators that are not measured."""
    memory = nccl.memory_of(communicators, profile)
    if memory.stands_in:
        count = sum(use.size > 1 for use in communicators.values())
        yield NCCL_BOUNDED.note(
            f"NCCL bounded: {memory.nbytes / 2**20:,.0f} MiB are counted for {count}"
            f" communicator{'s' * (count != 1)}, as measured for {memory.stands_in}; other topologies have"
            " other channels (analyze calibrate --ranks N measures them)",
            nbytes=memory.nbytes,
        )
