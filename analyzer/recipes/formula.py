"""A decoder's parameters, and a bound of the memory of its forward pass, by formula: from its config.json
alone, without transformers.

1. Parameters: an embedding and, if not tied, a head; in each layer the four projections of attention, the
   gated feed-forward part (or experts with their router), norms; a norm at the end. Families differ in the
   biases of their projections and in their norms.
2. Activations of a forward pass of so many tokens are bounded by the sum of its two largest stages, which are
   not alive together: each token's logits in the weights' type and in float32; ten hidden states, and gate,
   up, activation and product of the feed-forward part.

Source: transformers 5.17, `models/*/modeling_*.py` of the families in `_FAMILIES`; a test compares both with
its own forward pass. Not modelled: weights stored quantized, layers without experts between layers with them,
models that also see or hear, other families: there is no formula for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.recipes.config import ModelConfig

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_FLOAT32_BYTES = 4
_HIDDEN_STATES, _FEED_FORWARD_TENSORS = 10, 4


@dataclass(frozen=True, slots=True)
class _Family:
    """norms: of a layer, each as wide as a hidden state. head_norms: of queries and keys, "" for none, "each"
    as wide as a head, "all" as wide as all heads. biases: of queries, keys and values. tied: embedding and
    head where the configuration does not say. head_dim: where it does not say, None for the quotient.
    experts: the names of their number and of their width."""

    norms: int = 2
    head_norms: str = ""
    biases: bool = False
    tied: bool = False
    head_dim: int | None = None
    experts: tuple[str, str] | None = None


_FAMILIES: Mapping[str, _Family] = {
    "llama": _Family(),
    "mistral": _Family(),
    "granite": _Family(),
    "phi3": _Family(),
    "qwen2": _Family(biases=True),
    "qwen3": _Family(head_norms="each", head_dim=128),
    "olmo2": _Family(head_norms="all"),
    "gemma": _Family(tied=True, head_dim=256),
    "gemma2": _Family(norms=4, tied=True, head_dim=256),
    "gemma3_text": _Family(norms=4, head_norms="each", tied=True, head_dim=256),
    "mixtral": _Family(experts=("num_local_experts", "intermediate_size")),
    "qwen3_moe": _Family(head_norms="each", experts=("num_experts", "moe_intermediate_size")),
}
_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


@dataclass(frozen=True, slots=True)
class Formula:
    """parameters: their number; element_bytes: of one; token_bytes: most of a token in a forward pass."""

    family: str
    dtype: str
    parameters: int
    token_bytes: int

    @property
    def weights(self) -> int:
        """Bytes of all parameters."""
        return self.parameters * BYTES[self.dtype]

    def activations(self, tokens: int) -> int:
        """Bytes that a forward pass of so many tokens takes beside them, at most."""
        return tokens * self.token_bytes


def formula_of(config: ModelConfig) -> Formula | None:
    """Return the formula of a configuration, None where there is none for it. Raises TargetError."""
    model, document = str(config.document["model_type"]), config.document
    family = _FAMILIES.get(model)
    if family is None or document.get("quantization_config") or config.text is not document:
        return None
    sizes = [config.number(name) for name in _SIZES]
    if None in sizes or document.get("mlp_only_layers") or document.get("decoder_sparse_step", 1) != 1:
        return None
    vocabulary, hidden, inner, layers, heads = (size or 0 for size in sizes)
    size = config.number("head_dim", family.head_dim or hidden // heads) or 1
    queries, keys = heads * size, (config.number("num_key_value_heads", heads) or heads) * size
    biased = bool(document.get("attention_bias"))
    attention = 2 * hidden * (queries + keys) + (queries + 2 * keys) * (family.biases or biased)
    attention += hidden * biased
    attention += {"": 0, "each": 2 * size, "all": queries + keys}[family.head_norms]
    feed_forward = 3 * hidden * inner + (2 * inner + hidden) * bool(document.get("mlp_bias"))
    if family.experts is not None:
        count, inner = (config.number(name) or 0 for name in family.experts)
        feed_forward = count * 3 * hidden * inner + count * hidden
        inner *= config.number("num_experts_per_tok", count) or count
        if not feed_forward:
            return None
    tied = document.get("tie_word_embeddings", family.tied)
    parameters = layers * (attention + feed_forward + family.norms * hidden) + hidden
    parameters += vocabulary * hidden * (1 if tied else 2)
    element = BYTES[config.dtype]
    at_once = _HIDDEN_STATES * max(hidden, queries) + _FEED_FORWARD_TENSORS * inner
    return Formula(
        model, config.dtype, parameters, vocabulary * (element + _FLOAT32_BYTES) + at_once * element
    )
