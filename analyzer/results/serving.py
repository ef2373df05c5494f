"""What a serving engine has room for (`pipeline/serving.py` follows it)."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.recipes.serving import Cache, ServingMemory


@dataclass(frozen=True, slots=True)
class Serving:
    """What an engine would have room for. length: tokens of a request; batched_tokens: of a batch; available:
    bytes for the cache, those its budget leaves where there is one. bounded: which terms of the budget are
    upper bounds."""

    name: str
    device: str
    device_note: str
    length: int
    batched_tokens: int
    cache: Cache
    available: int
    budget: ServingMemory | None = None
    bounded: tuple[str, ...] = ()

    @property
    def blocks(self) -> int:
        """Blocks of the cache."""
        return self.cache.blocks(self.available)

    @property
    def blocks_of_request(self) -> int:
        """Blocks that a request of `length` tokens takes."""
        return self.cache.blocks_of_request(self.length, self.batched_tokens)

    @property
    def tokens(self) -> int:
        """Tokens of requests of `length` that the cache holds, as vLLM logs its size."""
        return self.blocks * self.length // self.blocks_of_request

    @property
    def requests(self) -> float:
        """Requests of `length` tokens that run at a time, as vLLM logs its maximum concurrency."""
        return self.blocks / self.blocks_of_request
