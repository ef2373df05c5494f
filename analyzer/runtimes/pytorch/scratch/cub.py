"""Temporary storage of CUB's sorts, scans and selections, which PyTorch's index kernels take per call.

1. CUB lays its parts out at multiples of 256 bytes and asks for 255 more to align the first (`AliasTemporaries`).
2. **Radix sort** (one-sweep): for every 8 bits of the key a 256-bin histogram of 64-bit counts, a 1 KiB look-back
   table per tile, a counter per pass, and, with more than one pass, second buffers of keys and values. What one
   thread block sorts at once (256 threads × 9 elements of 8 bytes) takes 1 byte.
3. **Scan**: a look-back entry of twice the element (at least 4 bytes) per tile and 32 more, and a control word.
4. **Unique by key**, **select**, **run lengths**: the same with 8-byte entries (16 where thrust calls it, whose offsets are 64-bit).
5. **Sum** of flags: 4 bytes for each thread block that is started, five times as many as run at once.
6. **Merge sort**, for comparisons of a program's own (thrust's `sort_by_key`): second buffers of keys and values, and
   where the tiles of 512 × 7 pairs are parted.

Source: `cub/device/dispatch/dispatch_radix_sort.cuh` (`InvokeOnesweep`), `dispatch_scan.cuh`, `dispatch_unique_by_key.cuh`,
`dispatch_merge_sort.cuh`
(CCCL, as vendored by CUDA 13). Tile sizes are those of compute capability 9.0, read off recorded requests
(H200, torch 2.11, 100 to 320,000 elements: `tests/data/operators_h200.json.gz`; in small steps: `h200/operators_tiles.json.gz`).

Not modelled: tile sizes of other architectures (a tile more or less is 1 KiB of sort storage).
"""

from __future__ import annotations

_ALIGNMENT, _BINS, _PADDING_TILES = 256, 256, 32
_SINGLE_TILE = 256 * 9
# Pairs (keys) one tile sorts, by bytes of key and value.
_SORT_TILE = {
    (8, 8): 384 * 12, (4, 8): 384 * 14, (2, 8): 512 * 11, (1, 8): 384 * 9,
    (8, 0): 384 * 15, (4, 0): 384 * 19, (2, 0): 512 * 19, (1, 0): 512 * 19,
}  # fmt: skip
_FLOAT_SORT_TILE = 384 * 18  # of 4 bytes, without values
_UNIQUE_TILE = 2304
# What one thread block sums of flags alone; how many blocks of its size a multiprocessor runs, and how many times as many are started.
_COUNT_TILE, _COUNT_BLOCKS, _COUNT_WAVES = 256 * 16, 8, 5
_SELECT_TILE = 384 * 11
_DISTINCT_TILE = {
    1: 512 * 11,
    2: 128 * 10,
    4: 512 * 14,
    8: 384 * 11,
}  # by bytes of a value; of 4, at least 6,250
_CHANGES_TILE = 128 * 24
_RUNS_TILE = 384
_MERGE_TILE = 512 * 7
_THRUST_UNIQUE_TILE = 512 * 18


def aliased_bytes(*parts: int) -> int:
    """Bytes CUB asks for to hold these parts: each at a multiple of 256, and 255 more to align the first."""
    return sum(-(-part // _ALIGNMENT) * _ALIGNMENT for part in parts) + _ALIGNMENT - 1


def radix_sort_bytes(
    count: int, key_bits: int = 64, key_bytes: int = 8, value_bytes: int = 8, floats: bool = False
) -> int:
    """Temporary bytes to sort `count` keys by `key_bits`, with values of `value_bytes` (0: keys alone): histograms and
    look-back tables for every 8 bits, and second buffers with more than one pass; 1 byte for what one thread block
    sorts.
    """
    if count <= _SINGLE_TILE:
        return 1
    passes = -(-key_bits // 8)
    buffers = (count * key_bytes, count * value_bytes) if passes > 1 else ()
    form = (key_bytes, value_bytes)
    tile = _FLOAT_SORT_TILE if floats and form == (4, 0) else _SORT_TILE.get(form, 384 * 12)
    tiles = -(-count // tile)
    return aliased_bytes(passes * _BINS * 8, tiles * _BINS * 4, *buffers, passes * 4)


def scan_bytes(count: int, element_bytes: int = 8) -> int:
    """Temporary bytes to scan `count` elements: a look-back entry of twice the element for each tile and 32 more."""
    tile = 128 * (7 if element_bytes > 4 else 15)
    entry = max(4, 2 * element_bytes)
    return aliased_bytes((-(-count // tile) + _PADDING_TILES) * entry, 1)


def unique_bytes(count: int) -> int:
    """Temporary bytes to keep the first of every run of equal keys, with its value: look-back entries of 8 bytes a
    tile."""
    return aliased_bytes((-(-count // _UNIQUE_TILE) + _PADDING_TILES) * 8, 1, 1)


def count_bytes(count: int, multiprocessors: int) -> int:
    """Temporary bytes to count the flags among `count`: 4 for every thread block that is started; 1 byte for what one block counts."""
    if count <= _COUNT_TILE:
        return 1
    return aliased_bytes(multiprocessors * _COUNT_BLOCKS * _COUNT_WAVES * 4)


def _look_back_bytes(count: int, tile: int) -> int:
    return aliased_bytes((-(-count // tile) + _PADDING_TILES) * 8, 1)


def select_bytes(count: int) -> int:
    """Temporary bytes to keep the positions of flags that are set: look-back entries of 8 bytes a tile."""
    return _look_back_bytes(count, _SELECT_TILE)


def changes_bytes(count: int) -> int:
    """Temporary bytes to number the runs of equal values, a 32-bit sum of flags: look-back entries of 8 bytes a tile."""
    return _look_back_bytes(count, _CHANGES_TILE)


def distinct_bytes(count: int, value_bytes: int) -> int:
    """Temporary bytes to keep the first of every run of equal values: look-back entries of 8 bytes a tile."""
    return _look_back_bytes(count, _DISTINCT_TILE[value_bytes])


def runs_bytes(count: int) -> int:
    """Temporary bytes to keep how long every run of equal values is as well: look-back entries of 8 bytes a tile."""
    return _look_back_bytes(count, _RUNS_TILE)


def merge_sort_bytes(count: int, key_bytes: int = 8, value_bytes: int = 8) -> int:
    """Temporary bytes to sort by merging: second buffers of keys and values, and an entry of 8 bytes for each tile."""
    tiles = -(-count // _MERGE_TILE)
    return aliased_bytes((tiles + 1) * 8, count * key_bytes, count * value_bytes)


def thrust_unique_bytes(count: int) -> int:
    """Temporary bytes of thrust's `unique_by_key`: look-back entries of 16 bytes a tile."""
    return aliased_bytes((-(-count // _THRUST_UNIQUE_TILE) + _PADDING_TILES) * 16, 1, 1)


def bits_for(largest: int) -> int:
    """Bits that hold every key below `largest` (`get_num_bits`, `aten/src/ATen/cuda/cub.h`)."""
    return max(1, largest.bit_length())
