"""The peaks of a program's requests on PyTorch's caching allocator, for those who play it hundreds of times.

The same rules as `caching.py` with its default settings, on one stream and without a limit: rounding, two pools, best fit,
splitting, joining, new segments at the driver's addresses. Blocks are no objects here but whole numbers:

1. Sizes and addresses count units of 512 bytes. A free block is its size and address in one number, so that a sorted list of
   them is in the order of the search.
2. A free block is found by its beginning and by its end. A unit that belongs to nobody lies behind every page of 2 MiB that
   the driver gives, so no two segments touch, and what is found next to a block lies in the same segment. Only the order of
   addresses counts, and that stays.

`caching.py` is what the allocator does, and everything else is played on it; a property test holds this one to it.

Not modelled: settings, limits, streams, an emptied cache: `plain` says whether an allocator knows none of these.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from analyzer.allocators.driver import ORIGIN, PAGE_BYTES, AddressSpace
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.settings import PyTorchSettings

UNIT_BYTES = 512
FREE = -1
_SMALL, _SMALL_SEGMENT = 2**20 // UNIT_BYTES, 2 * 2**20 // UNIT_BYTES
_ROUND = 2 * 2**20 // UNIT_BYTES
_LARGE = 10 * 2**20 // UNIT_BYTES
_PAGE = PAGE_BYTES // UNIT_BYTES
# An address is counted from far below any the driver gives, and takes the lower bits of a free block's number.
_BITS = 40
_ADDRESS = (1 << _BITS) - 1
_FIRST_PAGE = ORIGIN // PAGE_BYTES - (1 << 26)
# What a free block's number loses for each unit cut off at its beginning.
_CUT = (1 << _BITS) - 1


def peaks(
    events: Sequence[tuple[int, int]], units: Sequence[int], setup_count: int, settings: PyTorchSettings
) -> tuple[int, int]:
    """Peak allocated and peak reserved in bytes, from event `setup_count` on.

    events: (key, which size) for a request, (key, FREE) for what gives it back; keys are whole numbers from 0, each
        requested once before it is given back. units: the sizes in whole units; a request of none takes no block.
    settings: of `caching.py`, of which only the size of a large segment matters here.
    """
    large_segment = settings.large_segment_bytes // UNIT_BYTES
    large: list[int] = []
    small: list[int] = []
    beginning: dict[int, int] = {}
    ending: dict[int, int] = {}
    space = AddressSpace()
    # Of each key the block it has: address and size.
    blocks: dict[int, tuple[int, int]] = {}
    allocated = reserved = peak_allocated = peak_reserved = 0
    for part in (events[:setup_count], events[setup_count:]):
        peak_allocated, peak_reserved = allocated, reserved
        for key, number in part:
            if number >= 0:
                size = units[number]
                if not size:
                    continue
                pool, not_split = (small, 0) if size <= _SMALL else (large, _SMALL)
                at = bisect_left(pool, size << _BITS)
                if at < len(pool):
                    block = pool[at]
                    address, found = block & _ADDRESS, block >> _BITS
                    del beginning[address]
                    if found - size > not_split:
                        block -= size * _CUT
                        if at and pool[at - 1] > block:
                            del pool[at]
                            insort(pool, block, 0, at)
                        else:
                            pool[at] = block
                        beginning[address + size] = ending[address + found] = block
                    else:
                        del pool[at]
                        del ending[address + found]
                        size = found
                else:
                    if size <= _SMALL:
                        found = _SMALL_SEGMENT
                    elif size < _LARGE:
                        found = large_segment
                    else:
                        found = -(-size // _ROUND) * _ROUND
                    page = space.take(found * UNIT_BYTES) // PAGE_BYTES - _FIRST_PAGE
                    address = page * (_PAGE + 1)
                    reserved += found
                    peak_reserved = max(peak_reserved, reserved)
                    if found - size > not_split:
                        block = (found - size) << _BITS | address + size
                        insort(pool, block)
                        beginning[address + size] = ending[address + found] = block
                    else:
                        size = found
                blocks[key] = (address, size)
                allocated += size
                if allocated > peak_allocated:  # noqa: PLR1730 (a call more for every request)
                    peak_allocated = allocated
            elif key in blocks:
                address, size = blocks.pop(key)
                allocated -= size
                pool = small if size <= _SMALL else large
                end = address + size
                block = beginning.pop(end, 0)
                if block:
                    del pool[bisect_left(pool, block)]
                    end += block >> _BITS
                block = ending.pop(address, 0)
                if block:
                    del pool[bisect_left(pool, block)]
                    address = block & _ADDRESS
                block = (end - address) << _BITS | address
                insort(pool, block)
                beginning[address] = ending[end] = block
    return peak_allocated * UNIT_BYTES, peak_reserved * UNIT_BYTES


def plain(allocator: PyTorchAllocator) -> bool:
    """Whether an allocator does what `peaks` does, and has done nothing yet."""
    large = allocator.settings.large_segment_size_mb
    return allocator.settings == PyTorchSettings(large_segment_size_mb=large) and not allocator.reserved
