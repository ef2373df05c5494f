"""Workspaces of split engines on Hopper: from cuDNN's answer by a device's description to that by a handle.

Six engines run persistent kernels in CUTLASS's manner: clusters of thread blocks walk over the output tiles
of an implicit matrix product. Their bytes beyond copies of operands depend on how many blocks run at once.
With a handle cuDNN asks the GPU (`cudaOccupancyMaxActiveClusters`), by a description it assumes 18 SMs.

- T output tiles on S blocks at once: a tile counter of 4 bytes if T > 2 S.
- Knob 25 = 0 (split along K) divides the R tiles of the last, partial wave (R = T % S; all if T <= S) into
  s parts: R s float32 tiles, 4 bytes for every node of the tree that adds them up, 32 bytes.
- 127 bytes for alignment, if there is anything to align.
- Groups of many channels, which share no tile, are products one after the other: each has these bytes for its
  own tiles, rounded up to 16, and 16 more.
- s is the number whose longest part and whose adding up cost least. Adding up goes through memory: an H200,
  whose memory's clock is higher, splits more than an H100. That part of the costs is in proportion to the
  SMs' clock by the memory's.

Sources: CUTLASS, `sm90_tile_scheduler_stream_k.hpp` (the workspace's parts), `get_max_cta_occupancy` (18 SMs
a GPC). Tiles, costs, the rule for s: cuDNN 9.19 asked by descriptions, `CUDNN_ATTR_ENGINE_SM_COUNT_TARGET`
1 to 18 and up to 6,000 tiles along K; the clocks' share: descriptions whose clocks' ratio is a quarter to
twice an H100's. S, packing of groups, and the check of it all: 20,025 convolutions asked both ways on an H100
(tests/data/h100/README.md), and s as an H200's handle says it of 1,789 others in one group: all but one
(tests/data/h200/README.md). S depends on which SMs a chip has lost: another GPU of 132 may give others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import combinations

from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES, Convolution, Plan, up

ENGINES = {"forward": (62, 67), "data": (67, 71), "weight": (65, 68)}
_TILE, _TILE_K, _SPLITS_OFF, _CLUSTER_M, _CLUSTER_N = 2, 13, 25, 27, 28  # cudnnBackendKnobType_t
_TILES = {0: (128, 128), 1: (128, 64), 2: (128, 32), 3: (256, 128), 4: (256, 64), 5: (64, 64), 6: (128, 256)}
_TILES |= {7: (64, 128), 8: (64, 32), 9: (64, 256), 16: (256, 32), 18: (64, 192), 19: (128, 192)}
_TILES |= {20: (256, 96)}
_REGISTERS = (256, 256)  # of 4 bytes in an SM: no tile is larger
_GPC_SMS = 18
# Blocks at once by blocks a cluster; by SMs of the GPU (an H100 SXM).
_SLOTS = {132: {1: 132, 2: 132, 3: 117, 4: 120, 5: 110, 6: 102, 7: 105, 8: 120, 12: 84, 14: 98, 16: 112}}
_ALIGNMENT, _COUNTER, _FLAG, _SPLIT_HEADER = 127, 4, 4, 32
_COPY = 16  # copies of operands are multiples of it
_SURE_SPLITS = 24  # beyond it fewer parts were seen where fewer make the longest part no longer
# Costs in tiles along K, by level of the tree that adds up: through memory, at an H100's clocks, and besides
# by 4,096 elements of a tile; of the odd kernel; once a tile, in the last wave, and in the odd kernel's last
# wave with one level and with more.
_BY_MEMORY, _BY_TILE = 5.649, 7.857
_ODD_BY_MEMORY, _ODD_BESIDES, _ODD_ONCE = 5.1, 3.575, 2.05
_ONCE, _ODD_ONE_LEVEL, _ODD_LEVELS = 4.14, 5.525, 3.85
H100_CLOCKS = 1980 / 2619  # of SMs by that of memory


def by_handle(call: Convolution, plan: Plan, sm_count: int, clocks: float = H100_CLOCKS) -> tuple[int, bool]:
    """Return the bytes of workspace by a handle on a GPU of compute capability 9, and whether exact; if not,
    a bound.

    plan: as a description says it. sm_count: of the GPU; how 132 run clusters is known, of others only that
    an SM runs one block. clocks: the SMs' clock by the memory's, in the description.
    """
    engine, described_bytes, knobs = plan.engine, plan.workspace_bytes, dict(plan.knobs)
    if engine not in ENGINES[call.operation]:
        return described_bytes, True
    tile, cluster = _TILES.get(knobs.get(_TILE, -1)), knobs.get(_CLUSTER_M, 0) * knobs.get(_CLUSTER_N, 0)
    slots = _SLOTS.get(sm_count, {}).get(cluster)
    if (
        tile is None
        or slots is None
        or _TILE_K not in knobs
        or (call.operation == "data" and max(call.stride) > 1)
    ):
        tile_bytes = 4 * math.prod(tile or _REGISTERS)
        splits = 0 if knobs.get(_SPLITS_OFF) else _SPLIT_HEADER + sm_count * (tile_bytes + 2 * _FLAG)
        return described_bytes + _ALIGNMENT + _COUNTER + splits, False
    tile_k, split = 64 if knobs[_TILE_K] else 32, not knobs.get(_SPLITS_OFF)
    odd = tile == (128, 64) and tile_k == 32 and (call.dtype != "float32" or engine == 68)
    kernel = (math.prod(tile), tile_k, call.dtype == "bfloat16", odd, clocks / H100_CLOCKS)
    one_gpc = _GPC_SMS // cluster * cluster
    product = _product(call, knobs)
    here, sure = _scheduler_bytes(*product, slots, kernel, split)
    there, known = _scheduler_bytes(*product, one_gpc, kernel, split)
    if known and described_bytes >= there and (described_bytes - there) % _COPY == 0:
        return described_bytes - there + here, sure
    if call.groups > 1:
        apart = _product(_one_group(call), knobs)
        (each_here, sure), (each_there, known) = (
            _scheduler_bytes(*apart, blocks, kernel, split) for blocks in (slots, one_gpc)
        )
        copies = described_bytes - call.groups * _aligned(each_there)
        nbytes = copies + call.groups * _aligned(each_here)
        if known and copies in _copies(call):
            return nbytes, sure
        here = max(here, nbytes - copies)
    least = _scheduler_bytes(*product, one_gpc, kernel, False)[0]
    return described_bytes - (least if (described_bytes - least) % _COPY == 0 else 0) + here, False


def _one_group(call: Convolution) -> Convolution:
    """Return the convolution that each group is."""
    (batch, inputs, *spatial), (outputs, *rest), groups = call.x_shape, call.w_shape, call.groups
    x_shape, w_shape = (batch, inputs // groups, *spatial), (outputs // groups, *rest)
    return call._replace(x_shape=x_shape, w_shape=w_shape)


def _aligned(nbytes: int) -> int:
    """Return the bytes of one group of several: a multiple of a copy's alignment, and that once more."""
    return up(nbytes, _COPY) + _COPY


def _copies(call: Convolution) -> set[int]:
    """Return the bytes of every choice of copies of input, weights and output."""
    element_bytes, shapes = ELEMENT_BYTES[call.dtype], (call.x_shape, call.w_shape, call.y_shape)
    sizes = [element_bytes * math.prod(shape) for shape in shapes]
    return {sum(chosen) for count in range(len(sizes) + 1) for chosen in combinations(sizes, count)}


def _product(call: Convolution, knobs: Mapping[int, int]) -> tuple[int, int]:
    """Output tiles of the implicit matrix product, whole clusters, and tiles along K."""
    (out, each), taps, groups = call.w_shape[:2], math.prod(call.w_shape[2:]), call.groups
    out //= groups
    positions = call.x_shape[0] * math.prod(call.y_shape[2:])
    tile_k, (tile_m, tile_n) = 64 if knobs[_TILE_K] else 32, _TILES[knobs[_TILE]]
    # Groups are padded to squares of channels, a power of two, 16 bytes or more; 128 bytes share a tile.
    line = 32 if call.dtype == "float32" else 64
    square = max(line // 8, 1 << (max(out, each) - 1).bit_length())
    packed = max(1, min(groups, line // square))
    if call.operation == "weight":
        rows, columns = packed * out, taps * -(-packed * each // tile_n)
        k_tiles = -(-positions // tile_k)
    else:
        forward = call.operation == "forward"
        rows = positions if forward else call.x_shape[0] * math.prod(call.x_shape[2:])
        columns = -(-packed * (square if packed > 1 else out if forward else each) // tile_n)
        depth = max(square, min(packed * square, tile_n)) if groups > 1 else each if forward else out
        k_tiles = taps * -(-depth // tile_k)
    m, n = knobs[_CLUSTER_M], knobs[_CLUSTER_N]
    tiles = -(-rows // (tile_m * m)) * m * -(-columns // n) * n
    return tiles * -(-groups // packed), k_tiles


_Kernel = tuple[int, int, bool, bool, float]


@lru_cache(4096)
def _scheduler_bytes(tiles: int, k_tiles: int, slots: int, kernel: _Kernel, split: bool) -> tuple[int, bool]:
    """Bytes beyond copies of operands, and whether they are sure.

    kernel: elements of an output tile, of a tile along K, whether bfloat16, whether of odd costs, and how
    many times an H100's cycles a step through memory takes.
    """
    counter = _COUNTER if tiles > 2 * slots else 0
    last_wave = tiles % slots if tiles > slots else tiles
    parts, sure = 1, True
    if split and last_wave and slots // last_wave > 1:
        rule = _parts_of_all if tiles <= slots else _parts_of_last_wave
        parts, sure = rule(k_tiles, slots // last_wave, kernel)
        # The odd kernel splits where that saves some 9 % of all waves; where exactly was not found.
        if kernel[3] and tiles >= 12 * slots:
            parts = 1
        elif kernel[3] and tiles >= 2 * slots:
            sure = False
    if parts == 1:
        return (_ALIGNMENT + counter if counter else 0), sure
    nodes, level = 0, parts
    while level > 1:
        level = -(-level // 2)
        nodes += level
    partial = last_wave * (4 * parts * kernel[0] + _FLAG * nodes)
    return partial + _SPLIT_HEADER + counter + _ALIGNMENT, sure


def _cost(kernel: _Kernel, levels: int, last_wave: bool) -> float:
    """Return the cost of a reduction tree with this many levels, in tiles along K."""
    elements, tile_k, bfloat16, odd, cycles = kernel
    unit = 64 / tile_k * (8 if bfloat16 else 1)
    if levels == 0:
        return 0
    if odd:
        once = (_ODD_ONE_LEVEL if levels == 1 else _ODD_LEVELS) if last_wave else _ODD_ONCE
        return unit * (_ODD_BESIDES * levels + cycles * (_ODD_BY_MEMORY * levels + once))
    besides = _BY_TILE * 4096 / elements * levels
    return unit * (besides + cycles * (_BY_MEMORY * levels + (_ONCE if last_wave else 0)))


def _parts_of_all(k_tiles: int, most: int, kernel: _Kernel) -> tuple[int, bool]:
    """Return the parts along K, and whether that is sure: as many as have over 1,024 elements each, if those
    are more than 8; else the number whose longest part with its reduction costs least."""
    many = min(most, k_tiles // (1024 // kernel[1] + 1), 128)
    if many > 8:
        fewer = -(-k_tiles // -(-k_tiles // many))
        return many, many <= _SURE_SPLITS or fewer == many
    costs = ((-(-k_tiles // s) + _cost(kernel, (s - 1).bit_length(), False), s) for s in range(1, most + 1))
    return min(costs)[1], True


def _parts_of_last_wave(k_tiles: int, most: int, kernel: _Kernel) -> tuple[int, bool]:
    """Fewest parts that make the longest one shortest, of those worth it and of 128 elements along K."""
    best = (k_tiles, 1)
    for s in range(2, min(most, k_tiles * kernel[1] // 128) + 1):
        levels, longest = (s - 1).bit_length(), -(-k_tiles // s)
        if k_tiles - (-k_tiles >> levels - 1) >= longest + _cost(kernel, levels, True):
            best = min(best, (longest, s))
    return best[1], True
