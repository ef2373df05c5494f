"""The peaks of a program's requests on PyTorch's caching allocator, for those who simulate it hundreds of
times.

`caching.py` is what the allocator does, and everything else goes through it; this is the same in plain
numbers (`allocators/compiled.py`). Only the order of addresses counts, so a unit that belongs to nobody lies
behind every page of the driver: no two segments touch.

Not modelled: settings, streams, a cache emptied by the program: `has_fast_path` says whether an allocator
knows none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, TypeAlias

from analyzer.allocators.compiled import AVAILABLE, Integers
from analyzer.allocators.driver import ORIGIN, PAGE_BYTES, AddressSpace
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.settings import PyTorchSettings

UNIT_BYTES = 512
_PAGE = PAGE_BYTES // UNIT_BYTES
_NO_LIMIT = 1 << 62  # more units than as many sizes as are taken can sum to
_PLACES, APART_BYTES = 1 << 20, 1 << 38  # of segments that are scattered
# An address is counted from far below any the driver gives.
_FIRST_PAGE = ORIGIN // PAGE_BYTES - (1 << 26)


# Asked with the number of a size without room, and the row of the request: the bytes to go on with, and the
# numbers of the sizes that are as many from now on; None if there are none.
Refused: TypeAlias = Callable[[int, int], "tuple[int, Sequence[int]] | None"]


class Ascending(AddressSpace):
    """Address space that places each segment above all earlier ones: of two equal blocks the lower address
    then belongs to the older segment."""

    def take(self, size: int) -> int:
        self._lowest += size
        return self._lowest - size

    def give(self, address: int, size: int) -> None:
        """Do nothing: an address is never used again."""


class Scattered(Ascending):
    """Address space that places each segment anywhere: one of the orders another process may have them in."""

    def __init__(self, drawn: Random) -> None:
        super().__init__()
        self._drawn, self._places = drawn, set[int]()

    def take(self, size: int) -> int:  # noqa: ARG002  (places lie further apart than segments are large)
        place = next(
            place for _ in range(_PLACES) if (place := self._drawn.randrange(_PLACES)) not in self._places
        )
        self._places.add(place)
        return ORIGIN + place * APART_BYTES


class Peaks(NamedTuple):
    """Peak allocated and peak reserved in bytes; whether every request was served, and whether cached
    segments were given back for that. row: after which most was allocated for the first time, the setup's
    last if that was it, -1 if there is none. refused: rows of requests that were asked for less."""

    allocated: int
    reserved: int
    served: bool
    returned: bool
    row: int
    refused: tuple[int, ...] = ()


def peaks(
    events: Integers,
    units: Integers,
    setup_count: int,
    settings: PyTorchSettings,
    limit_bytes: int | None = None,
    space: AddressSpace | None = None,
    refused: Refused | None = None,
    held: Integers | None = None,
) -> Peaks:
    """Return the peaks from event `setup_count` on; if a request fails, the peaks until then.

    events, units: as `compiled.py` has them. settings: of `caching.py`, of which only the size of a large
    segment matters.
    limit_bytes: what segments may take together: then wholly free ones are given back before a request fails.
    space: where segments go, unused so far; by default as in `caching.py`.
    refused: who is asked where a request has no room; then `units` is changed. held: becomes the units
    of each key's block in the end.
    Raises OverflowError for sizes no device has.
    """
    from analyzer.allocators import _best_fit

    if space is None:
        space = Ascending() if settings.ties == "segment" else AddressSpace()
    given_back = []

    def take(count: int, _stream: int) -> int:
        page = space.take(count * UNIT_BYTES) // PAGE_BYTES - _FIRST_PAGE
        if page < 0:
            raise OverflowError("more memory than there are addresses")
        return page * (_PAGE + 1)

    def give(address: int, count: int) -> None:
        given_back.append(address)
        space.give((address // (_PAGE + 1) + _FIRST_PAGE) * PAGE_BYTES, count * UNIT_BYTES)

    def less(number: int, event: int) -> int | None:
        fallback = None if refused is None else refused(number, event)
        if fallback is None:
            return None
        count = -(-fallback[0] // UNIT_BYTES)
        for same in fallback[1]:
            units[same] = count
        return count

    limit = _NO_LIMIT if limit_bytes is None else limit_bytes // UNIT_BYTES
    large_segment = settings.large_segment_bytes // UNIT_BYTES
    allocated, reserved, served, row = _best_fit.peaks(
        events, units, setup_count, large_segment, limit, take, give, refused and less, held
    )
    return Peaks(allocated * UNIT_BYTES, reserved * UNIT_BYTES, served, bool(given_back), row)


def has_fast_path(allocator: PyTorchAllocator) -> bool:
    """Return whether `peaks` can simulate the allocator, which is unused so far."""
    has_defaults = allocator.settings.default_but_for("large_segment_size_mb", "ties")
    return AVAILABLE and has_defaults and allocator.settings.ties != "block" and not allocator.reserved
