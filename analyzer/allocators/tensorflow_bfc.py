"""TensorFlow's GPU allocator: BFC that either takes all its memory at once or doubles.

1. `allow_growth=True`: regions double from 2 MiB (1 MiB before TensorFlow 2.3), without an end.
2. `allow_growth=False`, TensorFlow's own default: the first request takes `memory_limit_bytes` in one region.
3. `memory_limit_bytes` bounds the regions, `device_bytes` is what the device has to give.
4. `fragmentation_fraction` of the limit is the most a chunk may waste before it is split; 0 means 128 MiB.

Sources: `tensorflow/core/common_runtime/bfc_allocator.cc`, `gpu/gpu_bfc_allocator.cc`. Everything else as in
`bfc.py`. Not modelled: `garbage_collection` of regions, splitting a too large region on the way to out of
memory.
"""

from __future__ import annotations

from typing import Any

from analyzer.allocators.base import check_settings
from analyzer.allocators.bfc import ROUND_BYTES, BfcArena
from analyzer.allocators.driver import PYTORCH_LEFTOVER
from analyzer.errors import OptionError

MIB = 2**20


class TensorFlowArena(BfcArena):
    """The simulator; figures and methods as in BfcArena, sizes in bytes. Raises OptionError for a bad
    setting.

    allow_growth defaults to True here, because the other way needs `memory_limit_bytes`.
    """

    # No addresses were recorded for TensorFlow; the context's own leftover is the same for every framework.
    leftover = PYTORCH_LEFTOVER

    def __init__(
        self,
        *,
        allow_growth: bool = True,
        memory_limit_bytes: int | None = None,
        fragmentation_fraction: float = 0.0,
        device_bytes: int | None = None,
    ) -> None:
        if memory_limit_bytes is not None and memory_limit_bytes <= 0:
            raise OptionError(f"memory_limit_bytes is {memory_limit_bytes}", "it must be above 0")
        if not 0 <= fragmentation_fraction < 1:
            raise OptionError(
                f"fragmentation_fraction is {fragmentation_fraction}", "it must lie between 0 and 1"
            )
        if memory_limit_bytes is None and (fragmentation_fraction or not allow_growth):
            raise OptionError(
                "allow_growth=False and fragmentation_fraction need memory_limit_bytes",
                "give the memory TensorFlow may take, in bytes",
            )
        dead = 128 * MIB
        if memory_limit_bytes is not None and fragmentation_fraction:
            dead = int(fragmentation_fraction * memory_limit_bytes)
        super().__init__(memory_limit_bytes, dead, device_bytes)
        first = 2 * MIB if memory_limit_bytes is None else min(memory_limit_bytes, 2 * MIB)
        if not allow_growth and memory_limit_bytes is not None:
            first = memory_limit_bytes
        self._growth = -(-first // ROUND_BYTES) * ROUND_BYTES


def create(**settings: Any) -> TensorFlowArena:
    """Return an allocator by TensorFlow's names for its settings."""
    check_settings("tensorflow_bfc", settings, TensorFlowArena)
    return TensorFlowArena(**settings)


def system_bytes(available_bytes: int, major: int) -> int:
    """Return the bytes TensorFlow leaves to the system. major: of the compute capability."""
    if available_bytes < 2**31:
        return 225 * MIB
    return (500 if major <= 6 else 1050 if major <= 7 else 1536 if major <= 8 else 1800) * MIB
