"""Llama-2-7B from its configuration (6,738,415,616 parameters), operator for operator as transformers has it.

RMS norm in float32, rotary positions, causal `scaled_dot_product_attention`, SwiGLU, untied output weights;
weights in bfloat16 (`make_model(dtype=torch.float32)` for single precision), sequences of 2,048 tokens.
Parameter names are transformers'. Seven billion weights are best never made: under `torch.device("meta")` the
model takes no memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SEQUENCE_LENGTH = 2048


@dataclass(frozen=True)
class Config:
    """Llama-2-7B's published configuration."""

    vocabulary_size: int = 32_000
    width: int = 4096
    hidden: int = 11_008
    depth: int = 32
    head_count: int = 32
    key_value_head_count: int = 32
    epsilon: float = 1e-5
    rope_base: float = 10_000.0

    @property
    def head_size(self) -> int:
        return self.width // self.head_count


class RMSNorm(nn.Module):
    """x / rms(x) in float32, scaled in the dtype of the input."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.epsilon)
        return self.weight * x.to(dtype)


class RotaryPositions(nn.Module):
    """Cosines and sines of every position, [1, tokens, head size] each."""

    def __init__(self, head_size: int, base: float) -> None:
        super().__init__()
        frequencies = 1.0 / (base ** (torch.arange(0, head_size, 2, dtype=torch.float) / head_size))
        self.register_buffer("inv_freq", frequencies, persistent=False)
        self.register_buffer("original_inv_freq", frequencies.clone(), persistent=False)

    @torch.no_grad()
    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[..., None].float() * self.inv_freq
        angles = torch.cat((angles, angles), dim=-1)
        cos = angles.cos() * 1.0
        sin = angles.sin() * 1.0
        return cos.to(x.dtype), sin.to(x.dtype)


def _rotate_half(x: Tensor) -> Tensor:
    left = x[..., : x.shape[-1] // 2]
    right = x[..., x.shape[-1] // 2 :]
    return torch.cat((-right, left), dim=-1)


def _rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    cos = cos.unsqueeze(1)
    sin = sin.unsqueeze(1)
    rotated_query = (query * cos) + (_rotate_half(query) * sin)
    rotated_key = (key * cos) + (_rotate_half(key) * sin)
    return rotated_query, rotated_key


class Attention(nn.Module):
    """Causal self-attention; key and value heads may be fewer than query heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.grouped = config.key_value_head_count != config.head_count
        key_value_width = config.key_value_head_count * config.head_size
        self.q_proj = nn.Linear(config.width, config.width, bias=False)
        self.k_proj = nn.Linear(config.width, key_value_width, bias=False)
        self.v_proj = nn.Linear(config.width, key_value_width, bias=False)
        self.o_proj = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        shape = (*x.shape[:-1], -1, self.head_size)
        query = self.q_proj(x).view(shape).transpose(1, 2)
        key = self.k_proj(x).view(shape).transpose(1, 2)
        value = self.v_proj(x).view(shape).transpose(1, 2)
        cos, sin = rotary
        query, key = _rotate(query, key, cos, sin)
        output = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=self.head_size**-0.5, enable_gqa=self.grouped
        )
        output = output.transpose(1, 2).contiguous()
        output = output.reshape(*x.shape[:-1], -1).contiguous()
        return self.o_proj(output)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.hidden, bias=False)
        self.up_proj = nn.Linear(config.width, config.hidden, bias=False)
        self.down_proj = nn.Linear(config.hidden, config.width, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """Attention and SwiGLU, each behind an RMS norm and inside a residual sum."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = SwiGLU(config)
        self.input_layernorm = RMSNorm(config.width, config.epsilon)
        self.post_attention_layernorm = RMSNorm(config.width, config.epsilon)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        residual = x
        x = self.input_layernorm(x)
        x = self.self_attn(x, rotary)
        x = residual + x
        residual = x
        x = self.post_attention_layernorm(x)
        x = self.mlp(x)
        return residual + x


class Decoder(nn.Module):
    """Embedding, layers, final norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocabulary_size, config.width)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.depth))
        self.norm = RMSNorm(config.width, config.epsilon)
        self.rotary_emb = RotaryPositions(config.head_size, config.rope_base)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.embed_tokens(tokens)
        positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        x = embedded
        rotary = self.rotary_emb(x, positions)
        for layer in self.layers:
            x = layer(x, rotary)
        return self.norm(x)


class Llama(nn.Module):
    """[batch, tokens] int64 to [batch, tokens, vocabulary] scores."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.width, config.vocabulary_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.model(tokens)
        return self.lm_head(x)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """New floating-point tensors are of `dtype`, so that no float32 copy of the weights is ever made."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def make_model(config: Config | None = None, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    with _default_dtype(dtype):
        return Llama(config or Config())


def make_batch(batch: int, sequence_length: int = SEQUENCE_LENGTH) -> tuple[tuple[Tensor], tuple[Tensor]]:
    """Tokens, and for each position the token that follows."""
    vocabulary_size = Config().vocabulary_size
    shape = (batch, sequence_length)
    return (torch.randint(0, vocabulary_size, shape),), (torch.randint(0, vocabulary_size, shape),)


def loss(output: Tensor, following: Tensor) -> Tensor:
    """Cross entropy in float32, as transformers computes it."""
    return F.cross_entropy(output.float().view(-1, output.size(-1)), following.view(-1))
