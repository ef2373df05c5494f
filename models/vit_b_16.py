"""ViT-B/16 on ImageNet (document 000's Vision Transformer), as torchvision has it: 86,567,656 parameters.

Twelve pre-norm encoder blocks of width 768 around `nn.MultiheadAttention`, a class token, learned positions.
Dropout modules are there with probability 0, as in torchvision. Parameter names are torchvision's.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class EncoderBlock(nn.Module):
    """Attention, then a GELU perceptron, each behind a layer norm and inside a residual sum."""

    def __init__(self, width: int, head_count: int, hidden: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, head_count, dropout=0.0, batch_first=True)
        self.dropout = nn.Dropout(0.0)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(), nn.Dropout(0.0), nn.Linear(hidden, width), nn.Dropout(0.0)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.ln_1(tokens)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x)
        x = x + tokens
        y = self.ln_2(x)
        y = self.mlp(y)
        return x + y


class Encoder(nn.Module):
    """Adds positions, runs the blocks, normalises."""

    def __init__(self, token_count: int, depth: int, width: int, head_count: int, hidden: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, token_count, width).normal_(std=0.02))
        self.dropout = nn.Dropout(0.0)
        self.layers = nn.Sequential(
            OrderedDict((f"encoder_layer_{i}", EncoderBlock(width, head_count, hidden)) for i in range(depth))
        )
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.pos_embedding
        return self.ln(self.layers(self.dropout(tokens)))


class VisionTransformer(nn.Module):
    """[batch, 3, image_size, image_size] float32 to [batch, class_count] scores."""

    def __init__(
        self,
        *,
        image_size: int = 224,
        patch_size: int = 16,
        depth: int = 12,
        width: int = 768,
        head_count: int = 12,
        hidden: int = 3072,
        class_count: int = 1000,
    ) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch_size, stride=patch_size)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.encoder = Encoder((image_size // patch_size) ** 2 + 1, depth, width, head_count, hidden)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(width, class_count)))

    def patches(self, x: Tensor) -> Tensor:
        """[batch, 3, h, w] to [batch, patch_count, width]."""
        x = self.conv_proj(x)
        x = x.reshape(x.shape[0], x.shape[1], -1)
        return x.permute(0, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x)
        class_token = self.class_token.expand(x.shape[0], -1, -1)
        x = torch.cat([class_token, x], dim=1)
        x = self.encoder(x)
        x = x[:, 0]
        return self.heads(x)


def make_model() -> nn.Module:
    return VisionTransformer()


def make_batch(batch: int) -> tuple[tuple[Tensor], tuple[Tensor]]:
    return (torch.randn(batch, 3, 224, 224),), (torch.randint(0, 1000, (batch,)),)


def loss(output: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(output, labels)
