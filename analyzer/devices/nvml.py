"""What NVML counts for a process: the context, what libraries take outside the allocator, and the reservation.

1. The context with the first kernel's modules: `DeviceProfile.context_bytes`.
2. A library family adds its bytes when first used. Families named in `per_thread_modules` add them for every thread
   that uses them (they belong to handles, of which each thread has its own).
3. What the allocator has reserved.

Source: 70 PyTorch runs on an H200, of which 67 agree with these three to 4 MiB once the reservation is known.
Not modelled: lazily loaded kernels beyond the first, memory for printf and local variables of kernels.
"""

from __future__ import annotations

from collections.abc import Iterable

from analyzer.devices.profile import DeviceProfile


def device_used(reserved_bytes: int, libraries: Iterable[str], profile: DeviceProfile) -> int:
    """Bytes NVML shows for a process that reserved `reserved_bytes` and used these library families: "cublas" on the
    main thread, "cublas@autograd" on another, which it names."""
    counted = set()
    for use in libraries:
        family, _, _ = use.partition("@")
        counted.add(use if family in profile.per_thread_modules else family)
    return (
        profile.context_bytes
        + reserved_bytes
        + sum(profile.modules_bytes.get(use.partition("@")[0], 0) for use in counted)
    )
