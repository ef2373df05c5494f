"""What a serving engine has room for (`pipeline/serving.py` follows it)."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.recipes.serving import Budget, Cache


@dataclass(frozen=True, slots=True)
class Serving:
    """What an engine would have room for. length: tokens of a request. bounded: which terms of the budget are upper bounds."""

    name: str
    device: str
    device_note: str
    length: int
    budget: Budget
    cache: Cache
    bounded: tuple[str, ...] = ()

    @property
    def blocks(self) -> int:
        """Blocks of the cache."""
        return self.cache.blocks(self.budget.cache_bytes)

    @property
    def tokens(self) -> int:
        """Tokens the cache holds."""
        return self.blocks * self.cache.block_tokens

    @property
    def requests(self) -> float:
        """Requests of `length` tokens that run at a time, as vLLM logs its maximum concurrency."""
        return self.tokens / self.length
