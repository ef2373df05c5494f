"""Document 004: MNIST digits through one linear layer (784 to 10), cross entropy on int64 labels, batch 100.

The document flattens 28x28 images with a view, which takes no memory: the input here is flat already.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LinearClassifier(nn.Module):
    """[batch, 784] float32 to [batch, 10] scores."""

    def __init__(self, input_count: int = 28 * 28, class_count: int = 10) -> None:
        super().__init__()
        self.fc = nn.Linear(input_count, class_count)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(images)


def make_model() -> nn.Module:
    return LinearClassifier()


def make_batch(batch: int) -> tuple[tuple[Tensor], tuple[Tensor]]:
    return (torch.randn(batch, 28 * 28),), (torch.randint(0, 10, (batch,)),)


def loss(output: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(output, labels)
