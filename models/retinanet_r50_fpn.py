"""Document 002: RetinaNet with ResNet-50 and FPN on PASCAL VOC, batch 2, as MMDetection 2.17 trains it.

Backbone: stem and first stage frozen, batch norm in evaluation mode throughout (MMDetection's
`frozen_stages=1`,
`norm_eval=True`). Neck: three laterals, two extra levels from the last stage's output. Head: four 3x3
convolutions a branch, shared by five levels, 9 anchors a position, 20 classes. Loss: sigmoid focal loss and
L1 on every anchor.

The document's three strategies and where they are switched:
1. AMP: `--amp fp16`. The losses are computed in float32, as MMDetection's `force_fp32` does.
2. Gradient accumulation: `--grad-accumulation 2`.
3. Checkpointing: `make_model_checkpointed`, MMCV's `with_cp` in the backbone: a block whose input requires a
   gradient runs without recording and again in the backward pass, its last ReLU outside. The first trainable
   block is exempt.

Images are 608x1024: VOC at MMDetection's scale (1000, 600), padded to multiples of 32, at its widest, which
sets the peak that MMDetection logs. Targets arrive dense and finished (a label, a weight, four offsets and
their weights an anchor), so that the step does not depend on values.

Not modelled: assigning anchors to boxes on the GPU, and the transients of MMCV's focal-loss kernel (one
kernel there, a few operators here; what is saved for the backward pass is the same).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

EXPANSION = 4
HEIGHT, WIDTH = 608, 1024
ANCHORS_PER_POSITION = 9
CLASS_COUNT = 20
STRIDES = (8, 16, 32, 64, 128)
# Anchors that match an object, which both losses are divided by; its value decides nothing about memory.
POSITIVE_COUNT = 64


class Bottleneck(nn.Module):
    """ResNet's block; with `checkpointed`, all of it but the last ReLU is recomputed in the backward pass."""

    def __init__(self, in_channels: int, width: int, stride: int, checkpointed: bool) -> None:
        super().__init__()
        out_channels = width * EXPANSION
        self.checkpointed = checkpointed
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

    def body(self, x: Tensor) -> Tensor:
        """Everything but the last ReLU."""
        identity = x
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
        return out

    def forward(self, x: Tensor) -> Tensor:
        # A checkpoint whose inputs require no gradient would cut the graph (document 002, first note).
        if self.checkpointed and x.requires_grad:
            out = checkpoint(self.body, x, use_reentrant=True)
        else:
            out = self.body(x)
        return self.relu(out)


class Backbone(nn.Module):
    """ResNet-50 without its classifier: the outputs of its four stages."""

    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, 3, 1, checkpointed)
        self.layer2 = _stage(256, 128, 4, 2, checkpointed)
        self.layer3 = _stage(512, 256, 6, 2, checkpointed)
        self.layer4 = _stage(1024, 512, 3, 2, checkpointed)
        for module in (self.conv1, self.bn1, self.layer1):
            module.requires_grad_(False)

    def train(self, mode: bool = True) -> "Backbone":
        """Training mode for everything but batch norm and the frozen stage."""
        super().train(mode)
        for module in (self.layer1, *(m for m in self.modules() if isinstance(m, nn.BatchNorm2d))):
            module.eval()
        return self

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.conv1(x)
        x = self.bn1(x)
        x = self.relu(x)
        x = self.maxpool(x)
        outputs = []
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
            outputs.append(x)
        return outputs


def _stage(in_channels: int, width: int, block_count: int, stride: int, checkpointed: bool) -> nn.Sequential:
    first = Bottleneck(in_channels, width, stride, checkpointed)
    rest = (Bottleneck(width * EXPANSION, width, 1, checkpointed) for _ in range(block_count - 1))
    return nn.Sequential(first, *rest)


class FeaturePyramid(nn.Module):
    """Five levels of 256 channels from the last three stages of the backbone."""

    def __init__(self, in_channels: tuple[int, ...] = (512, 1024, 2048), channels: int = 256) -> None:
        super().__init__()
        self.lateral_convs = nn.ModuleList(nn.Conv2d(count, channels, 1) for count in in_channels)
        self.fpn_convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in in_channels)
        for count in (in_channels[-1], channels):
            self.fpn_convs.append(nn.Conv2d(count, channels, 3, stride=2, padding=1))

    def forward(self, stages: list[Tensor]) -> list[Tensor]:
        inputs = stages[1:]
        laterals = [conv(x) for conv, x in zip(self.lateral_convs, inputs, strict=True)]
        for i in range(len(laterals) - 1, 0, -1):
            laterals[i - 1] += F.interpolate(laterals[i], size=laterals[i - 1].shape[2:], mode="nearest")
        outputs = [self.fpn_convs[i](lateral) for i, lateral in enumerate(laterals)]
        outputs.append(self.fpn_convs[3](inputs[-1]))
        outputs.append(self.fpn_convs[4](outputs[-1]))
        return outputs


class Head(nn.Module):
    """A classification and a regression branch, the same for every level."""

    def __init__(self, class_count: int, channels: int = 256, depth: int = 4) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.cls_convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(depth))
        self.reg_convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(depth))
        self.retina_cls = nn.Conv2d(channels, ANCHORS_PER_POSITION * class_count, 3, padding=1)
        self.retina_reg = nn.Conv2d(channels, ANCHORS_PER_POSITION * 4, 3, padding=1)

    def forward(self, level: Tensor) -> tuple[Tensor, Tensor]:
        classes = boxes = level
        for conv in self.cls_convs:
            classes = self.relu(conv(classes))
        for conv in self.reg_convs:
            boxes = self.relu(conv(boxes))
        return self.retina_cls(classes), self.retina_reg(boxes)


class RetinaNet(nn.Module):
    """[batch, 3, height, width] float32 to {"scores": [...], "boxes": [...]}, five levels each."""

    def __init__(self, class_count: int = CLASS_COUNT, checkpointed: bool = False) -> None:
        super().__init__()
        self.backbone = Backbone(checkpointed)
        self.neck = FeaturePyramid()
        self.bbox_head = Head(class_count)

    def forward(self, images: Tensor) -> dict[str, list[Tensor]]:
        levels = self.neck(self.backbone(images))
        results = [self.bbox_head(level) for level in levels]
        return {"scores": [scores for scores, _ in results], "boxes": [boxes for _, boxes in results]}


class SigmoidFocalLoss(torch.autograd.Function):
    """Focal loss an element: scores [n, classes] float32, labels [n] int64 (`classes` means background).

    Saves what MMCV's kernel saves: scores and labels.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, labels: Tensor, gamma: float, alpha: float) -> Tensor:
        ctx.save_for_backward(scores, labels)
        ctx.gamma, ctx.alpha = gamma, alpha
        sign, weight = _sides(scores, labels, alpha)
        signed = scores * sign
        # -weight * (1 - p)^gamma * log p, with p = sigmoid(signed).
        return torch.sigmoid(-signed).pow_(gamma).mul_(F.softplus(-signed)).mul_(weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        scores, labels = ctx.saved_tensors
        sign, weight = _sides(scores, labels, ctx.alpha)
        signed = scores * sign
        p = torch.sigmoid(signed)
        slope = F.softplus(-signed).mul_(p).mul_(-ctx.gamma).sub_(1 - p)
        slope.mul_((1 - p).pow_(ctx.gamma)).mul_(weight).mul_(sign).mul_(gradient)
        return slope, None, None, None


def _sides(scores: Tensor, labels: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """+1 and `alpha` where the element is the anchor's class, -1 and 1 - `alpha` elsewhere."""
    positive = labels.unsqueeze(1) == torch.arange(scores.shape[1], device=scores.device)
    sign = positive.to(scores.dtype).mul_(2).sub_(1)
    return sign, sign.mul(alpha - 0.5).add_(0.5)


def make_model(checkpointed: bool = False, class_count: int = CLASS_COUNT) -> nn.Module:
    return RetinaNet(class_count, checkpointed)


def make_model_checkpointed() -> nn.Module:
    return make_model(checkpointed=True)


def make_batch(
    batch: int, height: int = HEIGHT, width: int = WIDTH
) -> tuple[tuple[Tensor], tuple[Tensor, ...]]:
    """Images, and for every anchor its label and weight [batch, n], its box offsets and weights [batch, n,
    4]."""
    positions = sum(-(-height // stride) * -(-width // stride) for stride in STRIDES)
    anchors = positions * ANCHORS_PER_POSITION
    labels = torch.randint(0, CLASS_COUNT + 1, (batch, anchors))
    targets = (
        labels,
        torch.ones(batch, anchors),
        torch.randn(batch, anchors, 4),
        torch.ones(batch, anchors, 4),
    )
    return (torch.randn(batch, 3, height, width),), targets


def loss(
    output: dict[str, list[Tensor]],
    labels: Tensor,
    label_weights: Tensor,
    offsets: Tensor,
    offset_weights: Tensor,
) -> Tensor:
    """Sum over the levels of both losses, in float32 whatever the scores are in."""
    class_losses, box_losses = [], []
    start = 0
    for level_scores, level_boxes in zip(output["scores"], output["boxes"], strict=True):
        _, channels, height, width = level_scores.shape
        end = start + height * width * ANCHORS_PER_POSITION
        scores = level_scores.float().permute(0, 2, 3, 1).reshape(-1, channels // ANCHORS_PER_POSITION)
        boxes = level_boxes.float().permute(0, 2, 3, 1).reshape(-1, 4)
        focal = SigmoidFocalLoss.apply(scores, labels[:, start:end].reshape(-1), 2.0, 0.25)
        focal = focal * label_weights[:, start:end].reshape(-1, 1)
        class_losses.append(focal.sum() / POSITIVE_COUNT)
        distance = torch.abs(boxes - offsets[:, start:end].reshape(-1, 4))
        distance = distance * offset_weights[:, start:end].reshape(-1, 4)
        box_losses.append(distance.sum() / POSITIVE_COUNT)
        start = end
    return sum(class_losses) + sum(box_losses)
