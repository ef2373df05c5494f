"""What NVML counts for the process: the context, the modules of the libraries used, and the allocator's reservation."""

from __future__ import annotations

from collections.abc import Iterable

from analyzer.devices.profile import DeviceProfile


def device_used(reserved_bytes: int, libraries: Iterable[str], profile: DeviceProfile) -> int:
    """Bytes NVML shows for a process that reserved `reserved_bytes` and loaded these library families."""
    return profile.context_bytes + reserved_bytes + sum(profile.modules_bytes.get(name, 0) for name in libraries)
