"""GPT-2 small (124,439,808 parameters), operator for operator as Hugging Face transformers has it.

Twelve pre-norm blocks of width 768, fused query/key/value projection, causal `scaled_dot_product_attention`,
the tanh GELU written out, dropout 0.1, output weights tied to the token embedding. Parameter names are
transformers'. The sequence length is GPT-2's full context, 1024 tokens, or the environment variable
GPT2_SEQUENCE_LENGTH.
"""

import math
import os

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SEQUENCE_LENGTH = int(os.environ.get("GPT2_SEQUENCE_LENGTH", "1024"))
VOCABULARY_SIZE = 50257


class Projection(nn.Module):
    """A linear layer with its weight stored input-first."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:-1], self.weight.shape[1])
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return x.view(shape)


class TanhGELU(nn.Module):
    """GELU by its tanh approximation, one operator at a time."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width: int, head_count: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        self.head_size = width // head_count
        self.dropout = dropout
        self.c_attn = Projection(width, 3 * width)
        self.c_proj = Projection(width, width)
        self.resid_dropout = nn.Dropout(dropout)

    def heads(self, x: Tensor) -> Tensor:
        """[batch, tokens, width] to [batch, heads, tokens, head size]."""
        return x.view(*x.shape[:-1], -1, self.head_size).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.c_attn(x).split(self.width, dim=2)
        key = self.heads(key)
        value = self.heads(value)
        query = self.heads(query)
        output = F.scaled_dot_product_attention(
            query,
            key,
            value,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=True,
            scale=self.head_size**-0.5,
        )
        output = output.transpose(1, 2).contiguous()
        output = output.reshape(*output.shape[:-2], -1).contiguous()
        output = self.c_proj(output)
        return self.resid_dropout(output)


class Perceptron(nn.Module):
    """Expand four times, GELU, contract."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.c_fc = Projection(width, 4 * width)
        self.c_proj = Projection(4 * width, width)
        self.act = TanhGELU()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.c_fc(x)
        x = self.act(x)
        x = self.c_proj(x)
        return self.dropout(x)


class Block(nn.Module):
    """Attention and perceptron, each behind a layer norm and inside a residual sum."""

    def __init__(self, width: int, head_count: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-5)
        self.attn = Attention(width, head_count, dropout)
        self.ln_2 = nn.LayerNorm(width, eps=1e-5)
        self.mlp = Perceptron(width, dropout)

    def forward(self, x: Tensor) -> Tensor:
        residual = x
        x = self.ln_1(x)
        attended = self.attn(x)
        x = attended + residual
        residual = x
        x = self.ln_2(x)
        return residual + self.mlp(x)


class Transformer(nn.Module):
    """Embeddings, blocks, final norm."""

    def __init__(self, depth: int, width: int, head_count: int, context: int, dropout: float) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY_SIZE, width)
        self.wpe = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList(Block(width, head_count, dropout) for _ in range(depth))
        self.ln_f = nn.LayerNorm(width, eps=1e-5)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.wte(tokens)
        positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        embedded_positions = self.wpe(positions)
        x = embedded + embedded_positions
        x = self.drop(x)
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class GPT2(nn.Module):
    """[batch, tokens] int64 to [batch, tokens, vocabulary] float32 scores."""

    def __init__(
        self,
        depth: int = 12,
        width: int = 768,
        head_count: int = 12,
        context: int = 1024,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.transformer = Transformer(depth, width, head_count, context, dropout)
        self.lm_head = nn.Linear(width, VOCABULARY_SIZE, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.transformer(tokens)
        return self.lm_head(x)


def make_model() -> nn.Module:
    return GPT2()


def make_batch(batch: int, sequence_length: int = SEQUENCE_LENGTH) -> tuple[tuple[Tensor], tuple[Tensor]]:
    """Tokens, and for each position the token that follows."""
    shape = (batch, sequence_length)
    return (torch.randint(0, VOCABULARY_SIZE, shape),), (torch.randint(0, VOCABULARY_SIZE, shape),)


def loss(output: Tensor, following: Tensor) -> Tensor:
    return F.cross_entropy(output.reshape(-1, output.size(-1)), following.reshape(-1))
