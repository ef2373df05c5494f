"""ONNX Runtime's device arena: BFC with two ways to grow, and shrinking.

1. `kNextPowerOfTwo` (default): regions double from `initial_chunk_size_bytes`. After one that was taken as it
   is, the next has at most `max_power_of_two_extend_bytes`.
2. `kSameAsRequested`: the rounded request.
3. `gpu_mem_limit` bounds regions and reserved memory together, `device_bytes` is what the device has to give.
4. `shrink` (run option `memory.enable_memory_arena_shrinkage`) gives idle regions back, but never the first
   with `kNextPowerOfTwo`, and the next region starts from `initial_growth_chunk_size_bytes` again.

Names and defaults of the settings: `OrtArenaCfg` and the CUDA provider's options of 1.30. Source:
`onnxruntime/core/framework/bfc_arena.cc`; the arenas' log lines of 24 runs on an H200 are replayed in
`tests/allocators/test_onnxruntime_bfc.py`. Everything else as in `bfc.py`.
"""

from __future__ import annotations

from typing import Any

from analyzer.allocators.base import check_settings
from analyzer.allocators.bfc import ROUND_BYTES, BfcArena
from analyzer.allocators.driver import ONNXRUNTIME_LEFTOVER
from analyzer.errors import OptionError

MIB = 2**20
STRATEGIES = ("kNextPowerOfTwo", "kSameAsRequested")
INITIAL_CHUNK_BYTES = MIB
MAX_DEAD_BYTES = 128 * MIB
LARGEST_EXTENSION_BYTES = 1024 * MIB


class OnnxRuntimeArena(BfcArena):
    """The simulator; figures and methods as in BfcArena, sizes in bytes. Raises OptionError for a bad
    setting."""

    leftover = ONNXRUNTIME_LEFTOVER

    def __init__(
        self,
        *,
        arena_extend_strategy: str = "kNextPowerOfTwo",
        gpu_mem_limit: int | None = None,
        initial_chunk_size_bytes: int = INITIAL_CHUNK_BYTES,
        initial_growth_chunk_size_bytes: int = 2 * MIB,
        max_dead_bytes_per_chunk: int = MAX_DEAD_BYTES,
        max_power_of_two_extend_bytes: int = LARGEST_EXTENSION_BYTES,
        device_bytes: int | None = None,
    ) -> None:
        super().__init__(gpu_mem_limit, max_dead_bytes_per_chunk, device_bytes)
        if arena_extend_strategy not in STRATEGIES:
            raise OptionError(
                f"unknown arena_extend_strategy {arena_extend_strategy!r}",
                f"strategies: {', '.join(STRATEGIES)}",
            )
        for name, value in (
            ("gpu_mem_limit", gpu_mem_limit),
            ("initial_chunk_size_bytes", initial_chunk_size_bytes),
            ("initial_growth_chunk_size_bytes", initial_growth_chunk_size_bytes),
            ("max_dead_bytes_per_chunk", max_dead_bytes_per_chunk),
            ("max_power_of_two_extend_bytes", max_power_of_two_extend_bytes),
        ):
            if value is not None and value <= 0:
                raise OptionError(f"{name} is {value}", "it must be above 0")
        self.strategy = arena_extend_strategy
        first = (
            initial_chunk_size_bytes
            if gpu_mem_limit is None
            else min(gpu_mem_limit, initial_chunk_size_bytes)
        )
        self._growth = -(-first // ROUND_BYTES) * ROUND_BYTES
        self._regrowth = initial_growth_chunk_size_bytes
        self._largest = max_power_of_two_extend_bytes

    def shrink(self) -> int:
        """Idle regions go back, never the first with `kNextPowerOfTwo`. Returns the bytes given back."""
        before = self.reserved
        first = next(iter(self._pool.regions.values()), None)
        for region in self._pool.idle():
            if region is first and self.strategy == "kNextPowerOfTwo":
                continue
            self._pool.drop(region)
            self._space.give(region.address, region.size)
            self.reserved -= region.size
        self._growth = self._regrowth
        return before - self.reserved

    def _strategy(self, size: int) -> int:
        return size if self.strategy == "kSameAsRequested" else super()._strategy(size)


def create(**settings: Any) -> OnnxRuntimeArena:
    """Return an arena by ONNX Runtime's names for its settings."""
    check_settings("onnxruntime_bfc", settings, OnnxRuntimeArena)
    return OnnxRuntimeArena(**settings)
