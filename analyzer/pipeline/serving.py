"""A configuration under a serving engine: the terms of vLLM's budget that nobody says are followed, then its
arithmetic is done."""

from __future__ import annotations

from collections.abc import Callable

from analyzer.devices import resolve
from analyzer.errors import DoesNotFit, OptionError
from analyzer.options import Options
from analyzer.pipeline.workload import analysis
from analyzer.recipes.config import opened
from analyzer.recipes.serving import (
    BATCHED_TOKENS,
    BLOCK_TOKENS,
    ServingMemory,
    cache_of,
    request_length,
)
from analyzer.recordings.serving_messages import UTILIZATION
from analyzer.results.serving import Serving


def serving(
    name: str,
    *,
    device: str | int | None = None,
    length: int | None = None,
    utilization: float = UTILIZATION,
    block_tokens: int = BLOCK_TOKENS,
    kv_dtype: str = "auto",
    batched_tokens: int = BATCHED_TOKENS,
    ranks: int = 1,
    prefixes: bool = True,
    available: int | None = None,
    weights: int | None = None,
    activations: int | None = None,
    outside: int | None = None,
    graphs: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Serving:
    """Return what vLLM would have room for. weights, activations, outside, graphs: bytes, as it logs them;
    None takes them from transformers' own forward pass of `batched_tokens` tokens. available: cache bytes as
    it logs them, instead of the budget. ranks: GPUs that share each layer, which are not followed. Raises
    AnalyzerError."""
    config = opened(name)
    profile, device_note = resolve(device)
    cache = cache_of(config, kv_dtype, block_tokens, ranks, prefixes)
    length = request_length(config, length)
    if available is not None:
        return Serving(name, profile.name, device_note, length, batched_tokens, cache, available)
    bounded: tuple[str, ...] = ()
    if weights is None or activations is None or outside is None:
        if ranks > 1:
            raise OptionError(
                f"what one of {ranks} GPUs holds of the model is not followed",
                "say --weights, --activations and --outside, or --available, as vLLM logs them for a rank",
            )
        estimate = analysis(name, Options(length=batched_tokens, device=device), progress).estimate
        if estimate.out_of_memory is not None:
            raise DoesNotFit(
                f"{name} ends without memory on {profile.name} in a forward pass of {batched_tokens:,}"
                " tokens",
                "take fewer --max-num-batched-tokens, or say --weights, --activations and --outside",
            )
        followed = estimate.naive.weights
        weights = followed if weights is None else weights
        if activations is None:
            activations, bounded = max(estimate.peak_allocated - followed, 0), ("activations",)
        if outside is None:
            loaded = estimate.device_used - estimate.peak_reserved - profile.context_bytes
            outside = max(loaded, 0)
    budget = ServingMemory(profile.capacity_bytes, utilization, weights, activations, outside, graphs)
    return Serving(
        name, profile.name, device_note, length, batched_tokens, cache, budget.cache_bytes, budget, bounded
    )
