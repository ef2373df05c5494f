"""A small transformer and the process group, for the programs beside this file."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Pre-norm attention and a gated feed-forward layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        joined = self.qkv(self.norm1(x))
        b, t, d = joined.shape
        q, k, v = joined.view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d // 3))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Language(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self, layers: int = 6, width: int = 768, heads: int = 12, vocabulary: int = 16000) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def join(backend: str = "nccl") -> int:
    """This process joins the others; its local rank."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group(backend, device_id=torch.device("cuda", rank))
    return rank


def ids(batch: int, length: int, vocabulary: int = 16000) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(0, vocabulary, (batch, length), device="cuda")


def loss_of(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Next-token cross entropy."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
