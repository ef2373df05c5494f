"""Temporary storage of CUB's sorts, scans and selections, which PyTorch's index kernels take per call.

1. CUB lays its parts out at multiples of 256 bytes and asks for 255 more to align the first
   (`AliasTemporaries`).
2. **Unique by key**, **select**, **run lengths**: look-back entries of 8 bytes (16 where thrust calls it,
   whose offsets are 64-bit); run lengths, scans by key and unique by key have a part more, in CUDA 12 too
   (unique by key since 12.6).

Source: `cub/device/dispatch/dispatch_radix_sort.cuh` (`InvokeOnesweep`, `InvokePasses`), `dispatch_scan.cuh`,
`dispatch_unique_by_key.cuh`, `dispatch_merge_sort.cuh` (CCCL, as vendored by CUDA 13). Tile sizes follow the
compute capability of the code that runs (`cub/device/dispatch/tuning`). Those of 9.0 are read off recorded
requests (H200, torch 2.11, 100 to 320,000 elements: `tests/data/operators_h200.json.gz`; in small steps:
`h200/operators_tiles.json.gz`). The others, and how many thread blocks of a pass run at once, are PyTorch
2.11's own binary's, asked under the emulated CUDA runtime, which gives all of the 9.0 ones again (`python -m
benchmarks releases matrix`; tests/data/releases). Sizes of CUDA 12's CUB are those the binaries of torch 2.6
to 2.10 ask for: the registry's builds of 2.6 are of CUDA 12.4, of 2.7 to 2.10 of 12.6 and 12.8, later ones of
CUDA 13.

Not modelled: builds of a release with another CUDA; how many blocks of a pass over 1-byte keys run at once
until torch 2.9 (8.0 to 8.9: fewer, a quarter less).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from analyzer.devices import DeviceProfile
from analyzer.graph import dtype_bytes
from analyzer.releases import Span

_ALIGNMENT, _BINS, _PADDING_TILES = 256, 256, 32
_SINGLE_TILE = 256 * 9
# Types that C++ does not have.
_OF_PYTORCH = ("float16", "bfloat16", "complex32", "complex64", "complex128")


@dataclass(frozen=True, slots=True)
class Tiles:
    """Elements one thread block processes at once.

    pairs, keys: of a sort, by bytes of a key (pairs: with values of 8 bytes); float_keys: of 4 bytes without
    values. distinct: by bytes of a value. later_unique: of `unique` since torch 2.13. by_key: of a scan
    within runs of equal keys, keys and values of 4 bytes. pass_blocks: of keys that are sorted pass by pass
    instead, by (bytes of a key, whether there are values), how many blocks of such a pass a multiprocessor
    runs at once.
    """

    pairs: Mapping[int, int]
    keys: Mapping[int, int]
    float_keys: int
    distinct: Mapping[int, int]
    unique: int
    later_unique: int
    select: int
    changes: int
    by_key: int
    pass_blocks: Mapping[tuple[int, bool], int] = field(default_factory=dict)


_HOPPER = Tiles(
    pairs={8: 384 * 12, 4: 384 * 14, 2: 512 * 11, 1: 384 * 9},
    keys={8: 384 * 15, 4: 384 * 19, 2: 512 * 19, 1: 512 * 19},
    float_keys=384 * 18,
    distinct={1: 512 * 11, 2: 128 * 10, 4: 384 * 17, 8: 384 * 11},
    unique=2304,
    later_unique=224 * 11,
    select=384 * 11,
    changes=128 * 24,
    by_key=256 * 16,
)
_BLACKWELL = replace(
    _HOPPER,
    keys={**_HOPPER.keys, 2: 512 * 15},
    distinct={1: 384 * 22, 2: 128 * 10, 4: 384 * 15, 8: 384 * 11},
    unique=128 * 15,
    select=320 * 11,
    by_key=384 * 12,
)
_TURING = Tiles(
    pairs={8: 256 * 11, 4: 256 * 11},
    keys={8: 256 * 11, 4: 256 * 23},
    float_keys=256 * 23,
    distinct={1: 128 * 10, 2: 128 * 10, 4: 128 * 10, 8: 128 * 5},
    unique=32 * 5,
    later_unique=32 * 5,
    select=128 * 5,
    changes=128 * 15,
    by_key=256 * 9,
    pass_blocks={(1, False): 3, (1, True): 2, (2, False): 1, (2, True): 1},
)
_ADA = replace(
    _TURING,
    pairs={8: 384 * 10, 4: 384 * 8},
    keys={8: 384 * 10, 4: 384 * 21},
    float_keys=384 * 21,
    pass_blocks={(1, False): 2, (1, True): 3, (2, False): 1, (2, True): 1},
)
_AMPERE = replace(
    _ADA,
    distinct={1: 992 * 20, 2: 128 * 10, 4: 256 * 18, 8: 192 * 10},
    unique=64 * 14,
    later_unique=96 * 7,
    select=256 * 9,
    changes=256 * 15,
    by_key=256 * 15,
)
# By architecture (`Architecture.cub`).
_TILES = {"turing": _TURING, "ampere": _AMPERE, "ada": _ADA, "hopper": _HOPPER, "blackwell": _BLACKWELL}
# A pass: bits of a key, and what its scan works on at once. Blocks are started five times as often as run at
# once.
_PASS_BITS, _PASS_SCAN_TILE, _PASS_WAVES = {1: 5, 2: 7}, 512 * 11, 5
# Elements of flags alone that one thread block sums, its threads, and how many times as many blocks are
# started as run at once.
_COUNT_TILE, _COUNT_THREADS, _COUNT_WAVES = 256 * 16, 256, 5
_RUNS_TILE = 384
_MERGE_TILE = 512 * 7
_THRUST_UNIQUE_TILE = 512 * 18
# Under the emulated runtime, 6 to 1,000,003 keys (torch 2.11).
_MERGE_KEYS_TILE, _THRUST_SCAN_TILE, _THRUST_DISTINCT_TILE = 512 * 8, 384 * 7, 128 * 5
_LATER_THRUST_DISTINCT_TILE = 384 * 22  # of torch 2.15, 10 to 1,000,000 keys
# Releases of torch whose CUB is CUDA 13's, and those of CUDA 12.4's.
_HAS_CONTROL, _WIDE_UNIQUE = Span(since=(2, 11)), Span(until=(2, 6))
_LATER_UNIQUE, _LATER_DISTINCT = Span(since=(2, 13)), Span(since=(2, 15))


def tiles_of(device: DeviceProfile) -> Tiles:
    """Return the tiles of the code that runs on a device."""
    return _TILES[device.architecture.cub]


def aliased_bytes(*parts: int) -> int:
    """Return the bytes CUB asks for to hold these parts: each at a multiple of 256, and 255 more to align the
    first."""
    return sum(-(-part // _ALIGNMENT) * _ALIGNMENT for part in parts) + _ALIGNMENT - 1


def radix_sort_bytes(
    device: DeviceProfile,
    count: int,
    key_bits: int = 64,
    key_bytes: int = 8,
    value_bytes: int = 8,
    floats: bool = False,
) -> int:
    """Temporary bytes to sort `count` keys by `key_bits`, with values of `value_bytes` (0: keys alone):
    histograms and look-back tables for every 8 bits, and second buffers with more than one pass; 1 byte for
    what one thread block sorts.
    """
    if count <= _SINGLE_TILE:
        return 1
    tiles = tiles_of(device)
    blocks = tiles.pass_blocks.get((key_bytes, value_bytes > 0))
    if blocks is not None:
        started = device.sm_count * blocks * _PASS_WAVES
        spine = (started << _PASS_BITS[key_bytes]) + _PASS_SCAN_TILE
        return aliased_bytes(spine * 8, count * key_bytes, count * value_bytes)
    passes = -(-key_bits // 8)
    buffers = (count * key_bytes, count * value_bytes) if passes > 1 else ()
    items_by_width = {8: tiles.pairs, 0: tiles.keys}.get(value_bytes, {})
    tile = items_by_width.get(key_bytes, tiles.pairs[8])
    if floats and (key_bytes, value_bytes) == (4, 0):
        tile = tiles.float_keys
    return aliased_bytes(passes * _BINS * 8, -(-count // tile) * _BINS * 4, *buffers, passes * 4)


def _control(device: DeviceProfile) -> tuple[int, ...]:
    """Return the bytes of the control word that CUDA 13's scans and selections add."""
    return (1,) if device.releases["torch"] in _HAS_CONTROL else ()


def look_back_bytes(count: int, element_bytes: int = 8) -> int:
    """Return a scan's look-back table: an entry of twice the element for each tile and 32 more."""
    return _scan_entries(count, element_bytes) * max(4, 2 * element_bytes)


def scan_bytes(device: DeviceProfile, count: int, dtype: str = "int64") -> int:
    """Temporary bytes to scan `count` elements: the look-back table, which of a type C++ does not have (half
    precision, complex numbers) is three, of states, partial and inclusive results (`ScanTileState`, CUB's
    `single_pass_scan_operators.cuh`)."""
    width = dtype_bytes(dtype)
    if dtype not in _OF_PYTORCH:
        return aliased_bytes(look_back_bytes(count, width), *_control(device))
    entries = _scan_entries(count, width)
    return aliased_bytes(4 * entries, width * entries, width * entries, *_control(device))


def _tile_bytes(device: DeviceProfile, count: int, tile: int, entry: int = 8, *parts: int) -> int:
    """Temporary bytes of look-back entries, one a tile, of further parts and the control word."""
    return aliased_bytes((-(-count // tile) + _PADDING_TILES) * entry, *parts, *_control(device))


def _scan_entries(count: int, element_bytes: int) -> int:
    """Tiles, and 32 more: of 128 threads of 15 elements of 4 bytes, of smaller ones at most twice as many."""
    return -(-count // (128 * min(30, 60 // element_bytes))) + _PADDING_TILES


def scan_by_key_bytes(device: DeviceProfile, count: int) -> int:
    """Temporary bytes to scan 4-byte values within runs of equal 4-byte keys: a look-back entry of 16 bytes
    and a key for each tile (15 sizes each of six GPUs, under the emulated runtime, torch 2.11)."""
    tiles = -(-count // tiles_of(device).by_key)
    return aliased_bytes((tiles + _PADDING_TILES) * 16, 4 * tiles)


def unique_bytes(device: DeviceProfile, count: int) -> int:
    """Temporary bytes to keep the first of every run of equal keys, with its value: look-back entries of 8
    bytes a tile. CUDA 12.4's tiles are twice as large."""
    tiles = tiles_of(device)
    tile = tiles.later_unique if device.releases["torch"] in _LATER_UNIQUE else tiles.unique
    if device.releases["torch"] in _WIDE_UNIQUE:
        return aliased_bytes((-(-count // (2 * tile)) + _PADDING_TILES) * 8)
    return _tile_bytes(device, count, tile, 8, 1)


def count_bytes(device: DeviceProfile, count: int) -> int:
    """Return bytes to count flags among `count`: 4 for every thread block; 1 for a single block."""
    if count <= _COUNT_TILE:
        return 1
    blocks = device.max_threads_per_sm // _COUNT_THREADS
    return aliased_bytes(device.sm_count * blocks * _COUNT_WAVES * 4)


def select_bytes(device: DeviceProfile, count: int) -> int:
    """Temporary bytes to keep the positions of flags that are set: look-back entries of 8 bytes a tile."""
    return _tile_bytes(device, count, tiles_of(device).select)


def changes_bytes(device: DeviceProfile, count: int) -> int:
    """Return bytes to number runs of equal values: look-back entries of 8 bytes a tile."""
    return _tile_bytes(device, count, tiles_of(device).changes)


def distinct_bytes(device: DeviceProfile, count: int, value_bytes: int) -> int:
    """Temporary bytes to keep the first of every run of equal values: look-back entries of 8 bytes a tile."""
    return _tile_bytes(device, count, tiles_of(device).distinct[value_bytes])


def runs_bytes(count: int) -> int:
    """Return bytes to also store the lengths of runs: look-back entries of 8 bytes a tile."""
    return aliased_bytes((-(-count // _RUNS_TILE) + _PADDING_TILES) * 8, 1)


def merge_sort_bytes(count: int, key_bytes: int = 8, value_bytes: int = 8) -> int:
    """Return bytes of a merge sort: second key and value buffers, and 8 bytes a tile."""
    tiles = -(-count // _MERGE_TILE)
    return aliased_bytes((tiles + 1) * 8, count * key_bytes, count * value_bytes)


def merge_sort_keys_bytes(count: int, key_bytes: int = 8) -> int:
    """Return bytes of a merge sort of keys: a second buffer, and 8 bytes a tile."""
    return aliased_bytes((-(-count // _MERGE_KEYS_TILE) + 1) * 8, count * key_bytes)


def thrust_scan_bytes(device: DeviceProfile, count: int) -> int:
    """Temporary bytes of thrust's scan of 8-byte elements: look-back entries of 16 bytes a tile."""
    return _tile_bytes(device, count, _THRUST_SCAN_TILE, 16)


def thrust_distinct_bytes(device: DeviceProfile, count: int) -> int:
    """Temporary bytes of thrust's `unique` of 8-byte keys: look-back entries of 16 bytes a tile."""
    later = device.releases["torch"] in _LATER_DISTINCT
    tile = _LATER_THRUST_DISTINCT_TILE if later else _THRUST_DISTINCT_TILE
    return _tile_bytes(device, count, tile, 16, 1)


def thrust_unique_bytes(device: DeviceProfile, count: int) -> int:
    """Temporary bytes of thrust's `unique_by_key`: look-back entries of 16 bytes a tile."""
    return _tile_bytes(device, count, _THRUST_UNIQUE_TILE, 16, 1)


def bits_for(largest: int) -> int:
    """Bits that hold every key below `largest` (`get_num_bits`, `aten/src/ATen/cuda/cub.h`)."""
    return max(1, largest.bit_length())
