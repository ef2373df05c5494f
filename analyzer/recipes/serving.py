"""How many tokens a serving engine has room for: vLLM's arithmetic, from its budget to blocks of its cache.

1. It may take ceil(memory of the device x `gpu_memory_utilization`).
2. What is left of that is the cache's: less the weights, the most that the profile run had in use beyond them, what the process
   took outside PyTorch, and what the CUDA graphs were estimated at.
3. A layer has a page for every block of tokens: kv heads (of this rank) x tokens x (size of a key + of a value) x element. With
   latent attention (`kv_lora_rank`) that is one latent and one rotated key a token, for all heads.
4. Blocks are whole, the same for every layer: bytes // page // layers. So many requests of a length run at a time as fit in.

Source: vLLM 0.33, `v1/worker/gpu_worker.py` (`determine_available_memory`), `v1/kv_cache_interface.py` (`page_size_bytes`),
`v1/core/kv_cache_utils.py`; numbers it logged, `tests/recipes/test_serving.py`.
Not modelled: models whose layers keep different things (windows, recurrent states), which are refused; LoRA's buffers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analyzer.errors import OptionError
from analyzer.recipes.config import Config

# vLLM 0.33's own (`config/cache.py`, `config/scheduler.py`).
UTILIZATION, BLOCK_TOKENS, BATCHED_TOKENS = 0.92, 16, 2048
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}
KV_DTYPES = ("auto", *_BYTES)
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
class Cache:
    """What a layer keeps of a token on one rank. sizes: elements of a key, and of a value."""

    layers: int
    heads: int
    sizes: tuple[int, int]
    element_bytes: int
    block_tokens: int

    @property
    def page_bytes(self) -> int:
        """A block of tokens in one layer."""
        return self.heads * self.block_tokens * sum(self.sizes) * self.element_bytes

    @property
    def token_bytes(self) -> int:
        """A token in all layers."""
        return self.layers * self.page_bytes // self.block_tokens

    def blocks(self, nbytes: int) -> int:
        """Blocks that fit into so many bytes."""
        return max(nbytes, 0) // self.page_bytes // self.layers


@dataclass(frozen=True, slots=True)
class Budget:
    """All in bytes; utilization is a fraction of `device_bytes`."""

    device_bytes: int
    utilization: float
    weights: int
    activations: int
    outside: int
    graphs: int = 0

    @property
    def allowed(self) -> int:
        """What the engine may take in all."""
        return math.ceil(self.device_bytes * self.utilization)

    @property
    def cache_bytes(self) -> int:
        """What is left for the cache; negative where the rest does not fit."""
        return self.allowed - self.weights - self.activations - self.outside - self.graphs


def request_length(config: Config, said: int | None) -> int:
    """Tokens of a request: what was said, or as many as the model has positions for. Raises OptionError where neither is known."""
    length = said or config.number("max_position_embeddings") or config.number("n_positions")
    if length is None:
        raise OptionError(f"{config.name} does not say how many positions it has", "add --length 8192")
    return length


def cache_of(
    config: Config, kv_dtype: str = "auto", block_tokens: int = BLOCK_TOKENS, ranks: int = 1
) -> Cache:
    """The cache of a configuration, split over so many ranks (tensor parallel). Raises OptionError, TargetError."""
    text = config.text
    kinds = set(text.get("layer_types") or ("full_attention",))
    window = text.get("sliding_window") if text.get("use_sliding_window", True) else None
    if kinds != {"full_attention"} or window or str(config.document["model_type"]) in _OTHER_STATES:
        raise OptionError(
            f"{config.name}: its layers keep different things of a token (windows, states), which vLLM groups",
            "only models whose every layer has full attention are counted",
        )
    layers, heads = config.number("num_hidden_layers"), config.number("num_attention_heads")
    if layers is None or heads is None:
        raise OptionError(
            f"{config.name} has no num_hidden_layers or no num_attention_heads", "give a language model"
        )
    element = _BYTES[config.dtype if kv_dtype == "auto" else kv_dtype]
    latent = config.number("kv_lora_rank")
    if latent is not None:
        return Cache(layers, 1, (latent + (config.number("qk_rope_head_dim") or 0), 0), element, block_tokens)
    kv = config.number("num_key_value_heads", heads) or heads
    size = config.number("head_dim", (config.number("hidden_size") or heads) // heads) or 1
    if ranks > 1 and kv % ranks and ranks % kv:
        raise OptionError(f"{kv} kv heads are not split over {ranks} ranks", "give a divisor of them")
    return Cache(layers, max(1, kv // ranks), (size, size), element, block_tokens)
