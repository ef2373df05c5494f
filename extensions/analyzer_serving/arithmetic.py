"""A serving engine's capacity in tokens: vLLM's arithmetic, from its budget to blocks of its cache.

1. It may take ceil(memory of the device x `gpu_memory_utilization`).
2. The cache gets this budget less the weights, the profile run's peak beyond them, the process's memory
   outside PyTorch, and the estimate of the CUDA graphs.
3. A layer has a page for every block of tokens: kv heads (of this rank) x tokens x (size of a key + of a
   value) x element. With latent attention (`kv_lora_rank`) that is one latent and one rotated key a token,
   for all heads.
4. Layers that keep different things (every token, a window or a chunk of them, a recurrent state) form groups
   of as many layers each: as many as the kind with the fewest has, or as the one with the most where that has
   less than half as many again. A block is a page in each layer of a group, so blocks are whole: bytes //
   page // layers of a group.
5. A request takes of each group as many blocks as it keeps tokens there: all; window - 1 + the tokens in
   flight, and a block; a chunk + the tokens in flight; a state takes one, or two where prefixes are cached.
   As many requests run at a time as fit, and the cache's tokens are theirs. (Until 0.20 vLLM logged blocks
   // groups x tokens of a block instead.)
6. Where there are states, a block has so many tokens that a page of keys and values has room for one, in
   steps of the block size.

Source: vLLM 0.33, `v1/worker/gpu_worker.py` (`determine_available_memory`), `v1/kv_cache_interface.py`
(`page_size_bytes`, `max_memory_usage_bytes`), `v1/core/kv_cache_planning.py`
(`_get_kv_cache_groups_uniform_page_size`), `v1/core/kv_cache_utils.py` (`get_kv_cache_capacity`),
`platforms/interface.py` (the block size beside states), `model_executor/layers/mamba/mamba_utils.py`
(`gated_delta_net_state_shape`); numbers it logged, `benchmarks/published/vllm_logs.py`. Not modelled: states
other than gated delta nets', layers of different heads, which are refused; LoRA's buffers; connectors for
which the groups are switched off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from analyzer.errors import OptionError
from analyzer.recipes.config import ModelConfig

# vLLM 0.33's own (`config/cache.py`, `config/scheduler.py`).
BLOCK_TOKENS, BATCHED_TOKENS = 16, 2048
# Batches that may be in flight: the next is scheduled while one runs (`config/vllm.py`,
# `max_concurrent_batches`).
CONCURRENT_BATCHES = 2
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}
KV_DTYPES = ("auto", *_BYTES)
# Every so many layers one attends to everything, where the configuration does not say which (transformers'
# own defaults).
_PATTERNS = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}
_KINDS: Mapping[str, Literal["all", "window", "chunk", "state"]] = {
    "full_attention": "all",
    "sliding_attention": "window",
    "chunked_attention": "chunk",
    "linear_attention": "state",
}
_OTHER_STATES = (
    "mamba",
    "rwkv",
    "jamba",
    "bamba",
    "falcon_h1",
    "zamba",
    "zamba2",
    "nemotron_h",
    "granitemoehybrid",
)


@dataclass(frozen=True, slots=True)
class Kept:
    """Cache of one kind of layers for a request. reach: tokens of a window or chunk, blocks of a state."""

    kind: Literal["all", "window", "chunk", "state"]
    layers: int
    reach: int = 0

    def blocks(self, length: int, in_flight: int, block_tokens: int) -> int:
        """Blocks that a request of `length` tokens takes of a group of these layers."""
        match self.kind:
            case "all":
                return -(-length // block_tokens)
            case "window":  # which need not begin where a block does
                return -(-min(self.reach - 1 + in_flight, length) // block_tokens) + 1
            case "chunk":
                return -(-min(self.reach + in_flight, length) // block_tokens)
            case "state":
                return self.reach


@dataclass(frozen=True, slots=True)
class Cache:
    """Cache of the layers on one rank. sizes: elements of a key and of a value."""

    kept: tuple[Kept, ...]
    heads: int
    sizes: tuple[int, int]
    element_bytes: int
    block_tokens: int

    @property
    def page_bytes(self) -> int:
        """A block of tokens in one layer."""
        return self.heads * self.block_tokens * sum(self.sizes) * self.element_bytes

    @property
    def group_layers(self) -> int:
        """Largest number of layers in a group."""
        counts = [part.layers for part in self.kept]
        return max(counts) if max(counts) < 1.5 * min(counts) else min(counts)

    def groups(self, part: Kept) -> int:
        """Return the number of groups of a kind of layers."""
        return -(-part.layers // self.group_layers)

    @property
    def block_bytes(self) -> int:
        """A block: a page in each layer of the largest group."""
        return self.page_bytes * max(-(-part.layers // self.groups(part)) for part in self.kept)

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in all layers that keep every token."""
        return (
            self.page_bytes
            // self.block_tokens
            * sum(part.layers for part in self.kept if part.kind == "all")
        )

    def blocks(self, nbytes: int) -> int:
        """Blocks that fit into so many bytes."""
        return max(nbytes, 0) // self.block_bytes

    def blocks_of_request(self, length: int, batched_tokens: int) -> int:
        """Blocks of a request of `length` tokens, while so many are in a batch."""
        in_flight = CONCURRENT_BATCHES * batched_tokens
        return sum(
            self.groups(part) * part.blocks(length, in_flight, self.block_tokens) for part in self.kept
        )

    @property
    def group_count(self) -> int:
        """Number of groups of all kinds."""
        return sum(map(self.groups, self.kept))

    def tokens_until_0_20(self, blocks: int) -> int:
        """Return the cache's tokens as vLLM logged them until 0.20."""
        return blocks // self.group_count * self.block_tokens


@dataclass(frozen=True, slots=True)
class ServingMemory:
    """Terms of the budget in bytes; utilization is a fraction of `device_bytes`."""

    device_bytes: int
    utilization: float
    weights: int
    activations: int
    outside: int
    graphs: int = 0

    @property
    def allowed(self) -> int:
        """Bytes the engine may use in all."""
        return math.ceil(self.device_bytes * self.utilization)

    @property
    def cache_bytes(self) -> int:
        """Bytes left for the cache; negative where the other terms do not fit."""
        return self.allowed - self.weights - self.activations - self.outside - self.graphs


def positions_of(config: ModelConfig) -> int | None:
    """Return the tokens of the model's longest request, None where its configuration does not say."""
    return config.number("max_position_embeddings") or config.number("n_positions")


def request_length(config: ModelConfig, wanted: int | None) -> int:
    """Return tokens of a request, default the model's positions. Raises OptionError if unknown."""
    length = wanted or positions_of(config)
    if length is None:
        raise OptionError(f"{config.name} does not say how many positions it has", "add --length 8192")
    return length


def cache_of(
    config: ModelConfig,
    kv_dtype: str = "auto",
    block_tokens: int = BLOCK_TOKENS,
    ranks: int = 1,
    prefixes: bool = True,
) -> Cache:
    """Return the cache of a configuration, split over so many ranks (tensor parallel). prefixes: whether
    prefixes are cached. Raises OptionError, TargetError."""
    layers, heads = config.number("num_hidden_layers"), config.number("num_attention_heads")
    if layers is None or heads is None:
        raise OptionError(
            f"{config.name} has no num_hidden_layers or no num_attention_heads", "give a language model"
        )
    element = _BYTES[config.dtype if kv_dtype == "auto" else kv_dtype]
    latent = config.number("kv_lora_rank")
    if latent is not None:
        size = latent + (config.number("qk_rope_head_dim") or 0)
        return Cache((Kept("all", layers),), 1, (size, 0), element, block_tokens)
    kept = _kept(config, layers, prefixes)
    kv = config.number("num_key_value_heads", heads) or heads
    size = config.number("head_dim", (config.number("hidden_size") or heads) // heads) or 1
    if ranks > 1 and kv % ranks and ranks % kv:
        raise OptionError(f"{kv} kv heads are not split over {ranks} ranks", "give a divisor of them")
    cache = Cache(kept, max(1, kv // ranks), (size, size), element, block_tokens)
    if any(part.kind == "state" for part in kept):
        a_token = cache.page_bytes // block_tokens
        steps = -(-_state_bytes(config, ranks) // (a_token * block_tokens))
        cache = Cache(kept, cache.heads, cache.sizes, element, block_tokens * steps)
    return cache


def _kept(config: ModelConfig, layers: int, prefixes: bool) -> tuple[Kept, ...]:
    """Return the kinds of a model's layers, in the order in which they first stand in it."""
    text = config.text
    window = text.get("sliding_window") if text.get("use_sliding_window", True) else None
    names: list[str] = list(text.get("layer_types") or ())
    model = str(text.get("model_type") or config.document["model_type"])
    if not names:
        every, other = config.number("full_attention_interval"), "linear_attention"
        if every is None and window:
            every, other = config.number("sliding_window_pattern", _PATTERNS.get(model)), "sliding_attention"
        if every is None:  # all alike
            every = layers + 1 if window else 1
        names = ["full_attention" if (at + 1) % every == 0 else other for at in range(layers)]
    strange = sorted(set(names) - set(_KINDS)) or [model] * (model in _OTHER_STATES)
    if strange or len(names) != layers:
        raise OptionError(
            f"{config.name}: {', '.join(strange) or 'its layers'}: what they keep of a token is not modelled",
            "full attention, windows, chunks and gated delta nets are counted",
        )
    reach: dict[str, Any] = {
        "all": 0,
        "window": window,
        "chunk": text.get("attention_chunk_size"),
        "state": 2 if prefixes else 1,
    }
    kinds = [_KINDS[name] for name in names]
    if missing := [kind for kind in dict.fromkeys(kinds) if not isinstance(reach[kind], int)]:
        raise OptionError(
            f"{config.name} does not say how long a {missing[0]} is", "give its whole config.json"
        )
    return tuple(Kept(kind, kinds.count(kind), reach[kind]) for kind in dict.fromkeys(kinds))


def _state_bytes(config: ModelConfig, ranks: int) -> int:
    """Return a gated delta net's state of one request in one layer: the convolution's last inputs, and a
    matrix for each head of values."""
    names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
    keys, values, key, value, kernel = (config.number(f"linear_{name}") for name in names)
    if keys is None or values is None or key is None or value is None or kernel is None:
        raise OptionError(
            f"{config.name} does not say how large its states are",
            "gated delta nets (linear_...) are counted",
        )
    element = _BYTES[config.dtype]
    matrix = _BYTES.get(str(config.text.get("mamba_ssm_dtype", "auto")), element)
    convolution = (2 * keys * key + values * value) // ranks * (kernel - 1)
    return convolution * element + values // ranks * value * key * matrix
