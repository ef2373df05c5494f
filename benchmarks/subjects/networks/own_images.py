"""Networks of the third held-out set that nobody ships: images and volumes, as people write them themselves.

Segmentation, generation, super-resolution, detection heads, capsules. Written before any of them was predicted or measured.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def double(c_in: int, c_out: int, three: bool = False) -> nn.Sequential:
    """Two convolutions, each with its normalisation and activation."""
    convolution, norm = (nn.Conv3d, nn.InstanceNorm3d) if three else (nn.Conv2d, nn.BatchNorm2d)
    layers: list[nn.Module] = []
    for c in (c_in, c_out):
        layers += [
            convolution(c, c_out, 3, padding=1, bias=False),
            norm(c_out, affine=True),
            nn.LeakyReLU(0.01, inplace=True),
        ]
    return nn.Sequential(*layers)


class ResidualBlock(nn.Module):
    """Group normalisation, two convolutions and a shift by an embedding of time."""

    def __init__(self, c_in: int, c_out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, c_in), nn.Conv2d(c_in, c_out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, c_out), nn.Conv2d(c_out, c_out, 3, padding=1)
        self.time = nn.Linear(time, c_out)
        self.skip = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(t)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class PixelAttention(nn.Module):
    """Attention among pixels, its products written out."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(8, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, c, h * w).unbind(1)
        weights = torch.softmax(q.transpose(1, 2) @ k / math.sqrt(c), -1)
        return x + self.out((v @ weights.transpose(1, 2)).reshape(b, c, h, w))


class NoisePredictor(nn.Module):
    """A diffusion model's U-Net: sinusoids of the time step, three levels, attention at the lowest."""

    def __init__(self, c: int = 64) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(c, 4 * c), nn.SiLU(), nn.Linear(4 * c, 4 * c))
        self.first, self.c = nn.Conv2d(3, c, 3, padding=1), c
        self.down = nn.ModuleList(
            [ResidualBlock(c, c, 4 * c), ResidualBlock(c, 2 * c, 4 * c), ResidualBlock(2 * c, 4 * c, 4 * c)]
        )
        self.smaller = nn.ModuleList([nn.Conv2d(each * c, each * c, 3, 2, 1) for each in (1, 2)])
        self.attention, self.middle = PixelAttention(4 * c), ResidualBlock(4 * c, 4 * c, 4 * c)
        self.up = nn.ModuleList(
            [
                ResidualBlock(8 * c, 2 * c, 4 * c),
                ResidualBlock(4 * c, c, 4 * c),
                ResidualBlock(2 * c, c, 4 * c),
            ]
        )
        self.larger = nn.ModuleList([nn.Conv2d(each * c, each * c, 3, padding=1) for each in (2, 1)])
        self.last = nn.Sequential(nn.GroupNorm(8, c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1))

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(-math.log(10000) * torch.arange(self.c // 2, device=t.device) / (self.c // 2))
        angles = t[:, None] * rates[None]
        e = self.embed(torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype))
        x = self.first(x)
        kept = []
        for level, block in enumerate(self.down):
            x = block(x, e)
            kept.append(x)
            if level < 2:
                x = self.smaller[level](x)
        x = self.middle(self.attention(x), e)
        for level, block in enumerate(self.up):
            x = block(torch.cat([x, kept.pop()], 1), e)
            if level < 2:
                x = self.larger[level](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.last(x)


class VolumeUNet(nn.Module):
    """3-D U-Net with strided and transposed convolutions."""

    def __init__(self, c: int = 24, classes: int = 4) -> None:
        super().__init__()
        self.enter, self.down1, self.down2 = (
            double(1, c, True),
            double(c, 2 * c, True),
            double(2 * c, 4 * c, True),
        )
        self.pool1, self.pool2 = nn.Conv3d(c, c, 2, 2), nn.MaxPool3d(2)
        self.grow2, self.grow1 = nn.ConvTranspose3d(4 * c, 2 * c, 2, 2), nn.ConvTranspose3d(2 * c, c, 2, 2)
        self.up2, self.up1, self.out = (
            double(4 * c, 2 * c, True),
            double(2 * c, c, True),
            nn.Conv3d(c, classes, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.enter(x)
        b = self.down1(self.pool1(a))
        y = self.down2(self.pool2(b))
        y = self.up2(torch.cat([self.grow2(y), b], 1))
        return self.out(self.up1(torch.cat([self.grow1(y), a], 1)))


class Gate(nn.Module):
    """An attention gate of a skip connection."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.x, self.g, self.psi = nn.Conv2d(c, c // 2, 1), nn.Conv2d(c, c // 2, 1), nn.Conv2d(c // 2, 1, 1)

    def forward(self, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.psi(F.relu(self.x(x) + self.g(g))))


class GatedUNet(nn.Module):
    """2-D U-Net of four levels with gated skips and bilinear upsampling; each level may be checkpointed."""

    def __init__(self, c: int = 40, classes: int = 6, checkpointed: bool = False) -> None:
        super().__init__()
        widths = [c, 2 * c, 4 * c, 8 * c]
        self.down = nn.ModuleList([double(i, o) for i, o in zip([3, *widths], widths, strict=False)])
        self.fit = nn.ModuleList([nn.Conv2d(2 * w, w, 3, padding=1) for w in widths[:-1]])
        self.gates = nn.ModuleList([Gate(w) for w in widths[:-1]])
        self.up = nn.ModuleList([double(2 * w, w) for w in widths[:-1]])
        self.out, self.checkpointed = nn.Conv2d(c, classes, 1), checkpointed

    def level(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for number, block in enumerate(self.down):
            x = self.level(block, x if number == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for number in (2, 1, 0):
            x = self.fit[number](F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True))
            x = self.level(self.up[number], torch.cat([self.gates[number](kept.pop(), x), x], 1))
        return self.out(x)


class VariationalAutoencoder(nn.Module):
    """Convolutional encoder to means and variances, a sample, a transposed decoder; gives everything its loss needs."""

    def __init__(self, latent: int = 96) -> None:
        super().__init__()
        widths = (32, 64, 128, 256)
        encoder = [
            nn.Sequential(nn.Conv2d(i, o, 4, 2, 1), nn.BatchNorm2d(o), nn.SiLU())
            for i, o in zip((3, *widths), widths, strict=False)
        ]
        back = widths[::-1]
        decoder = [
            nn.Sequential(nn.ConvTranspose2d(i, o, 4, 2, 1), nn.BatchNorm2d(o), nn.SiLU())
            for i, o in itertools.pairwise(back)
        ]
        self.encoder, self.decoder = (
            nn.Sequential(*encoder),
            nn.Sequential(*decoder, nn.ConvTranspose2d(32, 3, 4, 2, 1)),
        )
        self.moments, self.enter = nn.Linear(256 * 36, 2 * latent), nn.Linear(latent, 256 * 36)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        mean, log_variance = self.moments(self.encoder(x).flatten(1)).chunk(2, -1)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        image = torch.sigmoid(self.decoder(self.enter(z).view(-1, 256, 6, 6)))
        return {"image": image, "mean": mean, "log_variance": log_variance}


def evidence(output: Any, target: torch.Tensor) -> torch.Tensor:
    """The VAE's loss."""
    mean, log_variance = output["mean"], output["log_variance"]
    divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1).mean()
    return F.mse_loss(output["image"], target, reduction="sum") / len(target) + divergence


class SuperResolution(nn.Module):
    """Residual channel attention and a pixel shuffle."""

    def __init__(self, c: int = 64, blocks: int = 8) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, c, 3, padding=1)
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.ReLU(True), nn.Conv2d(c, c, 3, padding=1))
                for _ in range(blocks)
            ]
        )
        self.gates = nn.ModuleList(
            [
                nn.Sequential(
                    nn.AdaptiveAvgPool2d(1),
                    nn.Conv2d(c, c // 16, 1),
                    nn.ReLU(True),
                    nn.Conv2d(c // 16, c, 1),
                    nn.Sigmoid(),
                )
                for _ in range(blocks)
            ]
        )
        self.out = nn.Sequential(nn.Conv2d(c, 9 * 3, 3, padding=1), nn.PixelShuffle(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        base = x
        x = self.enter(x)
        for block, gate in zip(self.blocks, self.gates, strict=True):
            y = block(x)
            x = x + y * gate(y)
        return self.out(x) + F.interpolate(base, scale_factor=3, mode="bicubic", align_corners=False)


class Detector(nn.Module):
    """A small residual trunk, a feature pyramid and heads for classes, boxes and objectness at three scales."""

    def __init__(self, classes: int = 20) -> None:
        super().__init__()

        def stage(i: int, o: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(i, o, 3, 2, 1, bias=False),
                nn.BatchNorm2d(o),
                nn.SiLU(True),
                nn.Conv2d(o, o, 3, 1, 1, bias=False),
                nn.BatchNorm2d(o),
                nn.SiLU(True),
            )

        self.stem, self.s3, self.s4, self.s5 = (
            nn.Sequential(stage(3, 32), stage(32, 64)),
            stage(64, 128),
            stage(128, 256),
            stage(256, 512),
        )
        self.lateral = nn.ModuleList([nn.Conv2d(c, 96, 1) for c in (128, 256, 512)])
        self.smooth = nn.ModuleList([nn.Conv2d(96, 96, 3, padding=1) for _ in range(3)])
        self.heads = nn.ModuleList([nn.Conv2d(96, 3 * (classes + 5), 1) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        c3 = self.s3(self.stem(x))
        c4 = self.s4(c3)
        c5 = self.s5(c4)
        p5 = self.lateral[2](c5)
        p4 = self.lateral[1](c4) + F.interpolate(p5, size=c4.shape[-2:], mode="nearest")
        p3 = self.lateral[0](c3) + F.interpolate(p4, size=c3.shape[-2:], mode="nearest")
        maps = [
            head(F.silu(smooth(p)))
            for head, smooth, p in zip(self.heads, self.smooth, (p3, p4, p5), strict=True)
        ]
        return torch.cat([m.flatten(2) for m in maps], 2).transpose(1, 2)


def detection(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Objectness by focal loss, boxes by smooth L1, a class for each place."""
    rows = output.reshape(output.shape[0], -1, 25)
    objectness, boxes, classes = rows[..., 0], rows[..., 1:5], rows[..., 5:]
    wanted = target[:, :1].expand(-1, rows.shape[1]).float() % 2
    raw = F.binary_cross_entropy_with_logits(objectness, wanted, reduction="none")
    p = torch.sigmoid(objectness)
    focal = ((1 - (p * wanted + (1 - p) * (1 - wanted))) ** 2 * raw).mean()
    labels = target[:, 1:2].expand(-1, rows.shape[1]).reshape(-1)
    return (
        focal
        + F.smooth_l1_loss(boxes, torch.zeros_like(boxes))
        + F.cross_entropy(classes.reshape(-1, 20), labels, label_smoothing=0.1)
    )


class Capsules(nn.Module):
    """Capsules with three rounds of routing by agreement."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.primary = nn.Conv2d(1, 128, 9), nn.Conv2d(128, 128, 9, 2)
        self.votes = nn.Parameter(0.01 * torch.randn(10, 16 * 36, 8, 16))

    @staticmethod
    def squash(x: torch.Tensor) -> torch.Tensor:
        norm = (x**2).sum(-1, keepdim=True)
        return norm / (1 + norm) * x / torch.sqrt(norm + 1e-8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u = self.primary(F.relu(self.first(x)))
        u = self.squash(u.view(x.shape[0], 16, 8, -1).permute(0, 1, 3, 2).reshape(x.shape[0], -1, 8))
        predicted = torch.einsum("bid,kide->bkie", u, self.votes)
        logits = torch.zeros(predicted.shape[:3], device=x.device, dtype=predicted.dtype)
        for _ in range(3):
            c = torch.softmax(logits, 1)
            v = self.squash((c[..., None] * predicted).sum(2))
            logits = logits + (predicted * v[:, :, None]).sum(-1)
        return v.norm(dim=-1)


class Generator(nn.Module):
    """A style generator: a mapping network, modulated convolutions as one grouped convolution, noise."""

    def __init__(self, d: int = 256) -> None:
        super().__init__()
        self.mapping = nn.Sequential(
            *[layer for _ in range(4) for layer in (nn.Linear(d, d), nn.LeakyReLU(0.2))]
        )
        self.start = nn.Parameter(torch.randn(1, d, 4, 4))
        widths = [(256, 256), (256, 128), (128, 64), (64, 32)]
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.randn(o, i, 3, 3) / math.sqrt(9 * i)) for i, o in widths]
        )
        self.styles, self.noise = (
            nn.ModuleList([nn.Linear(d, i) for i, _ in widths]),
            nn.Parameter(torch.zeros(len(widths))),
        )
        self.image = nn.Conv2d(32, 3, 1)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        w, b = self.mapping(z), z.shape[0]
        x = self.start.expand(b, -1, -1, -1)
        for number, (weight, style) in enumerate(zip(self.weights, self.styles, strict=True)):
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            scaled = weight[None] * (style(w) + 1)[:, None, :, None, None]
            scaled = scaled * torch.rsqrt(scaled.pow(2).sum((2, 3, 4), keepdim=True) + 1e-8)
            _, c, height, width = x.shape
            y = F.conv2d(x.reshape(1, b * c, height, width), scaled.reshape(-1, c, 3, 3), padding=1, groups=b)
            y = y.view(b, -1, height, width)
            x = F.leaky_relu(y + self.noise[number] * torch.randn(b, 1, height, width, device=x.device), 0.2)
        return torch.tanh(self.image(x))
