"""Document 000: the smallest image classifier, on 3x224x224 images with one-hot targets.

Convolution 3x3 to 8 channels with bias, average pool 2x2, linear to 10 classes. The document's targets are
random floats of shape [batch, 10], which cross entropy reads as class probabilities.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CNN(nn.Module):
    """[batch, 3, height, width] float32 to [batch, 10] scores."""

    def __init__(self, height: int = 224, width: int = 224) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels=3, out_channels=8, kernel_size=3)
        self.pool = nn.AvgPool2d(kernel_size=2, stride=2)
        self.fc = nn.Linear(8 * ((height - 2) // 2) * ((width - 2) // 2), 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = self.pool(x)
        x = x.view(x.size(0), -1)
        return self.fc(x)


def make_model() -> nn.Module:
    return CNN()


def make_batch(batch: int) -> tuple[tuple[Tensor], tuple[Tensor]]:
    return (torch.randn(batch, 3, 224, 224),), (torch.randn(batch, 10),)


def loss(output: Tensor, probabilities: Tensor) -> Tensor:
    return F.cross_entropy(output, probabilities)
