"""Segments of PyTorch's allocator, their blocks, and a snapshot's records of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from analyzer.allocators.chunks import Chunk, Region


class Pool(NamedTuple):
    """Key of a pool: small or large requests of one stream."""

    small: bool
    stream: int


class Block(Chunk):
    """A part of a segment.

    freed_at: counts searches, which tells garbage collection its age; it is set whenever the block joins its
    pool.
    users: the other streams that use it. made: the number of the block as PyTorch counts those it makes: what
    is handed out of a larger one is a new block, and the rest the old one.
    """

    __slots__ = ("freed_at", "made", "users")
    freed_at: int
    users: tuple[int, ...]
    region: Segment

    def __init__(self, address: int, size: int, region: Region) -> None:
        super().__init__(address, size, region)
        self.made = 0

    @property
    def fills_segment(self) -> bool:
        """The only block of its segment."""
        return self.previous is None and self.next is None


class Segment(Region):
    """One `cudaMalloc`, or one expandable range, which begins unmapped. number: count of earlier segments."""

    __slots__ = ("expandable", "number", "pool")
    first: Block

    def __init__(
        self, address: int, size: int, pool: Pool, expandable: bool = False, number: int = 0
    ) -> None:
        super().__init__(address, size, Block)
        self.pool, self.expandable, self.number = pool, expandable, number
        self.first.mapped = not expandable


@dataclass(frozen=True, slots=True)
class BlockState:
    """A block in a snapshot: bytes, whether used. pending: freed, but another stream uses it."""

    address: int
    size: int
    requested: int
    allocated: bool
    pending: bool = False


@dataclass(frozen=True, slots=True)
class SegmentState:
    """A segment in a snapshot; `blocks` tile it by address (one per run of mapped pages)."""

    address: int
    size: int
    small: bool
    expandable: bool
    blocks: tuple[BlockState, ...]
    stream: int = 0


SegmentAction = Literal["segment_alloc", "segment_free", "segment_map", "segment_unmap"]


@dataclass(frozen=True, slots=True)
class SegmentEvent:
    """A segment, or pages of one, was taken from or given back to the driver."""

    action: SegmentAction
    address: int
    size: int
