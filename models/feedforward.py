"""Document 001: blocks of Linear, ReLU, Linear, Sigmoid (200 to 100 to 200), with the sum of the output as
the loss.

The document uses one block and batch 5: in training each Linear keeps its input, in inference nothing is
kept.
"""

import torch
from torch import Tensor, nn


class FeedForward(nn.Module):
    """[batch, width] float32 to the same shape, through `block_count` blocks."""

    def __init__(self, block_count: int = 1, width: int = 200, hidden: int = 100) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.Sigmoid())
                for _ in range(block_count)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


def make_model() -> nn.Module:
    return FeedForward()


def make_batch(batch: int) -> tuple[tuple[Tensor], tuple[()]]:
    return (torch.randn(batch, 200),), ()


def loss(output: Tensor) -> Tensor:
    return output.sum()
