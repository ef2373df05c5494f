"""A Llama of 6 blocks with grouped queries, written with transformers' names of its layers, on sequences of 384 tokens."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HIDDEN, HEADS, GROUPS, DEPTH, LENGTH = 16_000, 768, 2048, 12, 4, 6, 384


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head_dim = WIDTH // HEADS
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj = nn.Linear(WIDTH, GROUPS * self.head_dim, bias=False)
        self.v_proj = nn.Linear(WIDTH, GROUPS * self.head_dim, bias=False)
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            layer(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = rotated(query, cos, sin), rotated(key, cos, sin)
        repeat = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o_proj(seen.transpose(1, 2).reshape(batch, length, -1))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.self_attn, self.mlp = Attention(), FeedForward()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm, self.lm_head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        head = WIDTH // HEADS
        angles = torch.outer(
            torch.arange(LENGTH).float(), 10_000.0 ** -(torch.arange(0, head, 2).float() / head)
        )
        self.register_buffer("cos", torch.cat((angles.cos(), angles.cos()), -1), persistent=False)
        self.register_buffer("sin", torch.cat((angles.sin(), angles.sin()), -1), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]])
        return self.lm_head(self.norm(x))


def make_model() -> nn.Module:
    return Llama()


def make_batch(batch: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    tokens = torch.randint(0, VOCABULARY, (batch, LENGTH))
    return (tokens,), (tokens,)
