"""The peaks of a program's requests on PyTorch's caching allocator, for those who play it hundreds of times.

`caching.py` is what the allocator does, and everything else is played on it; this is the same in plain numbers (`played.py`),
compiled where the package could be. Only the order of addresses counts, so a unit that belongs to nobody lies behind every
page of the driver: no two segments touch.

Not modelled: settings, limits, streams, an emptied cache: `plain` says whether an allocator knows none of these.
"""

from __future__ import annotations

from analyzer.allocators.driver import ORIGIN, PAGE_BYTES, AddressSpace
from analyzer.allocators.played import Integers
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.settings import PyTorchSettings

try:
    from analyzer.allocators import _played as played
except ImportError:
    from analyzer.allocators import played  # type: ignore[no-redef]

UNIT_BYTES = 512
_PAGE = PAGE_BYTES // UNIT_BYTES
# An address is counted from far below any the driver gives.
_FIRST_PAGE = ORIGIN // PAGE_BYTES - (1 << 26)


class Ascending(AddressSpace):
    """Every segment above the one before: the lowest of two equal blocks is then that of the segment held longest."""

    def take(self, size: int) -> int:
        self._lowest += size
        return self._lowest - size


def peaks(events: Integers, units: Integers, setup_count: int, settings: PyTorchSettings) -> tuple[int, int]:
    """Peak allocated and peak reserved in bytes, from event `setup_count` on.

    events, units: as `played.peaks` takes them. settings: of `caching.py`, of which only the size of a large segment matters.
    Raises OverflowError for sizes no device has.
    """
    space = Ascending() if settings.oldest_first else AddressSpace()

    def take(count: int) -> int:
        page = space.take(count * UNIT_BYTES) // PAGE_BYTES - _FIRST_PAGE
        if page < 0:
            raise OverflowError("more memory than there are addresses")
        return page * (_PAGE + 1)

    large_segment = settings.large_segment_bytes // UNIT_BYTES
    allocated, reserved = played.peaks(events, units, setup_count, large_segment, take)
    return allocated * UNIT_BYTES, reserved * UNIT_BYTES


def plain(allocator: PyTorchAllocator) -> bool:
    """Whether an allocator does what `peaks` does, and has done nothing yet."""
    found = allocator.settings
    same = PyTorchSettings(large_segment_size_mb=found.large_segment_size_mb, oldest_first=found.oldest_first)
    return found == same and not allocator.reserved
