"""A serving engine's capacity: by its arithmetic (`analyzer_serving/serving.py`), or as the started engine
itself reports it (`analyzer_serving/engines/serving.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyzer_serving.arithmetic import Cache, ServingMemory

# The memory of a kernel in an instantiated graph depends on the driver: 2.5 KiB of 580.159.04, as
# `analyzer_emulation/native/memory.c` counts it; 64 KiB of 470 (graphs of 500, 1,000 and 2,000 kernels:
# forums.developer.nvidia.com/t/244901); and of CUDA 12.4's (550) 1.1367/3.8086 of what 12.2's and 12.3's
# take (vLLM issue 5517: one engine, whose driver alone was replaced), at most, since a part of both is no
# driver's. "Around 10KB" is what NVIDIA says in February 2025 (CCCL pull request 3768).
_NODE = 2560
_MOST_TOKENS = 1 << 24  # of a request, where a configuration says nothing
_MOST_OF_A_NODE = 64 * 1024 * 11367 // 38086


@dataclass(frozen=True, slots=True)
class Serving:
    """An engine's capacity. length: tokens of a request; batched_tokens: of a batch; available: cache bytes,
    those its budget leaves if there is one. bounded: terms of the budget that are upper bounds. formula: a
    sentence on terms that are by formula, "" where transformers' own forward pass is followed. positions:
    tokens of the model's longest request, None where its configuration does not say."""

    name: str
    device: str
    device_note: str
    length: int
    batched_tokens: int
    cache: Cache
    available: int
    budget: ServingMemory | None = None
    bounded: tuple[str, ...] = ()
    formula: str = ""
    positions: int | None = None

    @property
    def blocks(self) -> int:
        """Number of cache blocks."""
        return self.cache.blocks(self.available)

    @property
    def blocks_of_request(self) -> int:
        """Blocks that a request of `length` tokens takes."""
        return self.cache.blocks_of_request(self.length, self.batched_tokens)

    @property
    def longest(self) -> int:
        """Tokens of the longest request that has room, at most the model's positions."""
        low, high = 0, (self.positions or _MOST_TOKENS) + 1
        while high - low > 1:
            middle = (low + high) // 2
            has_room = self.cache.blocks_of_request(middle, self.batched_tokens) <= self.blocks
            low, high = (middle, high) if has_room else (low, middle)
        return low

    @property
    def tokens(self) -> int:
        """Tokens of requests of `length` that the cache holds, as vLLM logs its size."""
        return self.blocks * self.length // self.blocks_of_request

    @property
    def requests(self) -> float:
        """Number of requests of `length` tokens at a time, vLLM's maximum concurrency."""
        return self.blocks / self.blocks_of_request


@dataclass(frozen=True, slots=True)
class RankMemory:
    """One rank's memory budget in a serving engine, in bytes, as its worker measured it. total, free: of the
    device, before the model was loaded; requested: what the engine may take; cache: what is left of that for
    keys and values; graphs, graph_nodes: bytes and nodes of its CUDA graphs; pools: what its pools take
    besides keys and values; left: free when it could serve, where activations are not in what it may take.
    None: a term this release of the engine does not have, or did not come to."""

    total: int
    free: int
    requested: int
    weights: int
    cache: int
    activations: int | None = None
    outside: int | None = None
    graphs_estimated: int | None = None
    graphs: int | None = None
    graph_nodes: int | None = None
    pools: int | None = None
    left: int | None = None

    @property
    def graphs_most(self) -> int | None:
        """Bytes of the CUDA graphs under another driver since CUDA 12.4, at most; None: not known."""
        if self.graphs is None or self.graph_nodes is None:
            return None
        return self.graphs + self.graph_nodes * (_MOST_OF_A_NODE - _NODE)


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """A serving engine that was started where no GPU is (`analyzer_serving/engines/serving.py`).

    engine, torch: its name with its release, and torch's; settings: the engine's own, by its names. blocks,
    block_tokens, tokens, length, concurrency: of the cache, as it logs them; 0 where it did not come to that.
    error: kind and message of what it ended in, or None. needed: bytes of weights on each GPU where they did
    not fit, or 0. peak_reserved: bytes the allocator held at most. notes: what the emulated runtime does not
    know. changes: what would give more tokens, or let it start (`analyzer_serving/engines/changes.py`).
    """

    name: str
    device: str
    device_note: str
    engine: str
    torch: str
    ranks: tuple[RankMemory, ...]
    settings: Mapping[str, Any]
    blocks: int = 0
    block_tokens: int = 0
    tokens: int = 0
    length: int = 0
    concurrency: float = 0.0
    error: tuple[str, str] | None = None
    needed: int = 0
    peak_reserved: int = 0
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether a request of the given length has room."""
        return self.error is None and self.concurrency >= 1

    @property
    def rank(self) -> RankMemory | None:
        """The rank with the smallest cache, which decides."""
        return min(self.ranks, key=lambda rank: rank.cache, default=None)

    @property
    def token_bytes(self) -> float:
        """Bytes of the cache that a token takes on the rank that decides; 0 where that is not known."""
        return self.rank.cache / self.tokens if self.rank is not None and self.tokens else 0.0
