"""Small PyTorch targets for planning: one that is the same program at any batch, one that is not, one that fails."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Small(nn.Module):
    """Convolution, normalisation and a matrix of similarities between samples (quadratic in the batch)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.head = nn.Linear(16 * 32 * 32, 64)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.head(torch.relu(self.norm(self.conv(x))).flatten(1))
        return features @ features.t()


class Stepped(nn.Module):
    """Another program from batch 20 on, and none at all at batch 31."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(256, 256), nn.Linear(256, 256)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 31:
            raise ValueError("31 samples are bad luck")
        x = self.first(x)
        return self.second(torch.relu(x)) if x.shape[0] >= 20 else x


def small_batch(batch: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """(image,), ()."""
    return (torch.randn(batch, 3, 32, 32),), ()


def stepped_batch(batch: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """(vector,), ()."""
    return (torch.randn(batch, 256),), ()
