"""timm's ViT-S/16 with fewer blocks, trained on images of 224 x 224."""

import timm
import torch


def make_model() -> torch.nn.Module:
    return timm.create_model("vit_small_patch16_224", depth=8)


def make_batch(batch: int) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    return (torch.randn(batch, 3, 224, 224),), (torch.randint(0, 1000, (batch,)),)
