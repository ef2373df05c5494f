"""A configuration under a serving engine: the terms of vLLM's budget that nobody says are followed, or taken
from a formula where transformers is not installed, then its arithmetic is done."""

from __future__ import annotations

from collections.abc import Callable

from analyzer.devices import resolve
from analyzer.devices.profile import DeviceProfile
from analyzer.errors import DoesNotFit, MissingDependencyError, OptionError
from analyzer.options import Options
from analyzer.pipeline.workload import analysis
from analyzer.recipes.config import ModelConfig, opened
from analyzer.recipes.formula import formula_of
from analyzer.recordings.serving_messages import UTILIZATION
from analyzer.runtimes.pytorch.outside import device_used
from analyzer_serving.arithmetic import (
    BATCHED_TOKENS,
    BLOCK_TOKENS,
    ServingMemory,
    cache_of,
    positions_of,
    request_length,
)
from analyzer_serving.results import Serving


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
    length, positions = request_length(config, length), positions_of(config)
    if available is not None:
        return Serving(
            name, profile.name, device_note, length, batched_tokens, cache, available, positions=positions
        )
    bounded: tuple[str, ...] = ()
    formula = ""
    if weights is None or activations is None or outside is None:
        if ranks > 1:
            raise OptionError(
                f"what one of {ranks} GPUs holds of the model is not followed",
                "say --weights, --activations and --outside, or --available, as vLLM logs them for a rank",
            )
        try:
            whole, passing, loaded = _followed(name, profile, batched_tokens, device, progress)
        except MissingDependencyError as error:
            whole, passing, loaded, formula = _by_formula(config, profile, batched_tokens, weights, error)
        weights = whole if weights is None else weights
        if activations is None:
            activations, bounded = passing, ("activations",)
        outside = loaded if outside is None else outside
    budget = ServingMemory(profile.capacity_bytes, utilization, weights, activations, outside, graphs)
    return Serving(
        name,
        profile.name,
        device_note,
        length,
        batched_tokens,
        cache,
        budget.cache_bytes,
        budget,
        bounded,
        formula,
        positions,
    )


def _followed(
    name: str,
    profile: DeviceProfile,
    tokens: int,
    device: str | int | None,
    progress: Callable[[str], None] | None,
) -> tuple[int, int, int]:
    """Return the bytes of weights, activations and libraries in transformers' own forward pass. Raises
    AnalyzerError."""
    estimate = analysis(name, Options(length=tokens, device=device), progress).estimate
    if estimate.out_of_memory is not None:
        raise DoesNotFit(
            f"{name} ends without memory on {profile.name} in a forward pass of {tokens:,} tokens",
            "take fewer --max-num-batched-tokens, or say --weights, --activations and --outside",
        )
    loaded = estimate.device_used - estimate.peak_reserved - profile.context_bytes
    weights = estimate.naive.weights
    return weights, max(estimate.peak_allocated - weights, 0), max(loaded, 0)


def _by_formula(
    config: ModelConfig,
    profile: DeviceProfile,
    tokens: int,
    weights: int | None,
    error: MissingDependencyError,
) -> tuple[int, int, int, str]:
    """Return the same by formula, and a sentence on it. weights: their bytes, where the user says them.
    error: why the forward pass is not followed. Raises it where there is no formula."""
    formula = formula_of(config)
    if formula is None:
        model = config.document["model_type"]
        raise MissingDependencyError(
            f"{error.message}; without them there is no formula for the weights of this {model}",
            f"{error.hint}, or --available SIZE takes the cache that vLLM logs",
        ) from error
    sentence = (
        f"{formula.parameters:,} parameters of {formula.family} in {formula.dtype} by formula, and"
        f" activations bounded by one; its own forward pass takes transformers ({error.hint})"
    )
    if weights is not None:
        sentence = (
            f"activations are bounded by a formula; its own forward pass takes transformers ({error.hint})"
        )
    loaded = device_used(0, ("cublas", "cudnn"), profile) - profile.context_bytes
    passing = formula.activations(tokens) + profile.cublas_workspace_bytes
    return formula.weights, passing, loaded, sentence
