"""What GPUs of a compute capability have in common, one record for each.

Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". The L2 cache is that of
the largest GPU of the compute capability (NVIDIA's architecture whitepapers).
"""

from __future__ import annotations

from dataclasses import dataclass

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Architecture:
    """Limits of a multiprocessor, and the device's L2 cache.

    threads_per_sm, blocks_per_sm: what is resident at once. shared_bytes: its shared memory;
    block_shared_bytes: what of it one block may opt in to. l2_bytes: 0 where it is not known.
    """

    threads_per_sm: int
    blocks_per_sm: int
    shared_bytes: int
    block_shared_bytes: int
    l2_bytes: int = 0


# By compute capability.
ARCHITECTURES = {
    (7, 0): Architecture(2048, 32, 96 * _KIB, 96 * _KIB, 6 * _MIB),
    (7, 5): Architecture(1024, 16, 64 * _KIB, 64 * _KIB, 6 * _MIB),
    (8, 0): Architecture(2048, 32, 164 * _KIB, 163 * _KIB, 40 * _MIB),
    (8, 6): Architecture(1536, 16, 100 * _KIB, 99 * _KIB, 6 * _MIB),
    (8, 7): Architecture(1536, 16, 164 * _KIB, 163 * _KIB),
    (8, 9): Architecture(1536, 24, 100 * _KIB, 99 * _KIB, 96 * _MIB),
    (9, 0): Architecture(2048, 32, 228 * _KIB, 227 * _KIB, 60 * _MIB),
    (10, 0): Architecture(2048, 32, 228 * _KIB, 227 * _KIB, 126 * _MIB),
    (10, 3): Architecture(2048, 32, 228 * _KIB, 227 * _KIB, 126 * _MIB),
    (12, 0): Architecture(1536, 24, 100 * _KIB, 99 * _KIB, 96 * _MIB),
    (12, 1): Architecture(1536, 24, 100 * _KIB, 99 * _KIB),
}
