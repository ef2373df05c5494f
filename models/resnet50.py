"""ResNet-50 on ImageNet (document 000), operator for operator as torchvision has it: 25,557,032 parameters.

The stride of a downsampling block sits on its 3x3 convolution ("v1.5"), ReLU works in place, and the residual
sum is in place too. Parameter names are torchvision's, so its checkpoints load.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1 reduce, 3x3, 1x1 expand, each with batch norm, around a shortcut."""

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * EXPANSION
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        # One name, rebound: each result is dropped as soon as the next exists, as in torchvision.
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        out = self.relu(out)
        out = self.conv3(out)
        out = self.bn3(out)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet50(nn.Module):
    """[batch, 3, 224, 224] float32 to [batch, class_count] scores."""

    def __init__(self, class_count: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, 3, stride=1)
        self.layer2 = _stage(256, 128, 4, stride=2)
        self.layer3 = _stage(512, 256, 6, stride=2)
        self.layer4 = _stage(1024, 512, 3, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * EXPANSION, class_count)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        x = self.bn1(x)
        x = self.relu(x)
        x = self.maxpool(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.fc(x)


def _stage(in_channels: int, width: int, block_count: int, stride: int) -> nn.Sequential:
    first = Bottleneck(in_channels, width, stride)
    return nn.Sequential(first, *(Bottleneck(width * EXPANSION, width, 1) for _ in range(block_count - 1)))


def make_model() -> nn.Module:
    return ResNet50()


def make_batch(batch: int) -> tuple[tuple[Tensor], tuple[Tensor]]:
    return (torch.randn(batch, 3, 224, 224),), (torch.randint(0, 1000, (batch,)),)


def loss(output: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(output, labels)
