"""Networks for images that people write by hand (`handwritten.py`), at usual sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from torch import nn

from benchmarks.networks.handwritten_parts import (
    Each,
    Form,
    Made,
    Pix2Pix,
    Style,
    Translating,
    UNet,
    Yolo,
    chain,
)


def _halving(width: int, size: int, kernel: int = 4) -> list[Form]:
    """Down to four by four: twice the channels at half the size."""
    return [(width << level, kernel, 2, 1) for level in range((size // 4).bit_length() - 1)]


def _doubling(width: int, size: int, channels: int) -> list[Form]:
    """From one by one, as DCGAN's generator."""
    levels = (size // 4).bit_length() - 1
    return [
        (width << (levels - 1), 4, 1, 0),
        *((width << level, 4, 2, 1) for level in reversed(range(levels - 1))),
        (channels, 4, 2, 1),
    ]


def _adversaries() -> Iterator[Made]:
    for size, width, c in itertools.product((16, 32, 64, 128), (32, 48, 64, 96, 128), (1, 3)):
        for latent in (64, 100, 128, 256):
            yield (
                f"dcgan {width} {c} {latent}@{size}",
                partial(chain, latent, *_doubling(width, size, c), up=True),
                (latent, 1, 1),
            )
        last = (1, 4, 1, 0)
        yield f"critic {width} {c}@{size}", partial(chain, c, *_halving(width, size), last), (c, size, size)
        yield f"critic3 {width} {c}@{size}", partial(chain, c, *_halving(width, size, 3)), (c, size, size)
    for width, c in itertools.product((32, 64, 128), (1, 3)):  # digits: seven by seven, doubled twice
        forms = ((width, 4, 2, 1), (c, 4, 2, 1))
        yield f"digits up {width} {c}", partial(chain, 2 * width, *forms, up=True), (2 * width, 7, 7)
        yield (
            f"digits down {width} {c}",
            partial(chain, c, (width, 4, 2, 1), (2 * width, 4, 2, 1)),
            (c, 28, 28),
        )
    for width, size in itertools.product(
        (64, 128, 256), (32, 48, 64, 128)
    ):  # residual generators and critics (SNGAN)
        for at in (each for each in (4, 8, 16, 32, 64, 128) if each <= size):
            yield f"sngan {width} {at}", partial(_residual, width), (width, at, at)
        yield (
            f"sngan first {width}@{size}",
            partial(Each, nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(3, width, 1)),
            (3, size, size),
        )
        yield f"sngan last {width}@{size}", partial(nn.Conv2d, width, 3, 3, padding=1), (width, size, size)
    for size, (c, k) in itertools.product((128, 256, 512), ((3, 3), (1, 3), (3, 1), (1, 2))):
        levels = size.bit_length() - 1
        yield f"pix2pix {c}-{k}@{size}", partial(Pix2Pix, c, k, 64, levels), (c, size, size)
        for given in (c + k, k):
            forms = ((64, 4, 2, 1), (128, 4, 2, 1), (256, 4, 2, 1), (512, 4, 1, 1), (1, 4, 1, 1))
            yield f"patches {given}@{size}", partial(chain, given, *forms), (given, size, size)
        for width in (32, 64):
            yield f"cyclegan {width} {c}-{k}@{size}", partial(Translating, c, k, width), (c, size, size)
        yield f"style transfer {c}-{k}@{size}", partial(Translating, c, k, 32, 9), (c, size, size)
    for size, base in itertools.product((32, 64, 128, 256), (16384, 32768)):
        yield f"stylegan2 {base}@{size}", partial(Style, size, base=base), (3, 4, 4)


def _residual(width: int) -> nn.Module:
    return Each(
        nn.Conv2d(width, width, 3, padding=1),
        nn.Conv2d(width, width, 1),
        nn.Conv2d(width, 2 * width, 3, padding=1),
    )


def _autoencoders() -> Iterator[Made]:
    for size, c in itertools.product((28, 32, 64, 128), (1, 3)):
        for widths in (
            (32, 32, 64, 64),
            (32, 64, 128, 256),
            (32, 64, 128, 256, 512),
            (16, 32, 64),
            (64, 128, 256, 512),
        ):
            for kernel in (3, 4):
                forms = [(width, kernel, 2, 1) for width in widths if size >> widths.index(width) >= 4]
                yield f"vae {widths} {kernel} {c}@{size}", partial(chain, c, *forms), (c, size, size)
                back = [(width, kernel, 2, 1) for width in reversed((c, *widths[: len(forms) - 1]))]
                at = size >> len(forms)
                yield (
                    f"vae back {widths} {kernel} {c}@{size}",
                    partial(chain, widths[len(forms) - 1], *back, up=True),
                    (widths[len(forms) - 1], at, at),
                )
        for width in (64, 128, 256):  # VQ-VAE
            forms = (
                (width // 2, 4, 2, 1),
                (width, 4, 2, 1),
                (width, 3, 1, 1),
                (width // 4, 3, 1, 1),
                (width, 1, 1, 0),
                (64, 1, 1, 0),
            )
            yield f"vqvae {width} {c}@{size}", partial(chain, c, *forms), (c, size, size)
            yield (
                f"vqvae back {width} {c}@{size}",
                partial(chain, width, (width // 2, 4, 2, 1), (c, 4, 2, 1), up=True),
                (width, size // 4, size // 4),
            )
            yield (
                f"vqvae begin {width} {c}@{size}",
                partial(nn.Conv2d, 64, width, 3, padding=1),
                (64, size // 4, size // 4),
            )


def _diffusion() -> Iterator[Made]:
    for size, c in itertools.product((28, 32, 64, 128), (1, 3, 4)):
        for width in (32, 64, 96, 128, 192):
            for rates in ((1, 2, 4, 8), (1, 2, 2, 2), (1, 2, 4), (1, 2, 3, 4)):
                widths = tuple(width * rate for rate in rates)
                for first in (3, 7):
                    make = partial(
                        UNet,
                        c,
                        c,
                        widths,
                        timed=True,
                        transposed=False,
                        first=first,
                        last_kernel=3 if first == 3 else 1,
                    )
                    yield f"ddpm {widths} {first} {c}@{size}", make, (c, size, size)


def _detectors() -> Iterator[Made]:
    for size, width, stem in itertools.product((640, 416, 320, 512), (0.25, 0.375, 0.5, 0.75, 1.0), (3, 6)):
        yield f"yolo {width} {stem}@{size}", partial(Yolo, width, stem), (3, size, size)
    for size in (416, 608, 320, 256):  # YOLOv3 and tiny
        for level, c in enumerate((32, 64, 128, 256, 512, 1024)):
            at = size >> level
            yield f"darknet {c}@{at}", partial(Each, *(chain(c, (c // 2, 1, 1, 0), (c, 3, 1, 1)), nn.Conv2d(c, 2 * c, 3, 2, 1), nn.Conv2d(c, 255, 1), nn.Conv2d(c, 2 * c, 3, padding=1))), (c, at, at)  # fmt: skip
    for height, width_ in (
        (64, 64),
        (80, 80),
        (100, 152),
        (96, 96),
        (128, 128),
        (40, 40),
    ):  # centres, poses, hourglasses
        for k in (1, 2, 17, 80, 16, 21):
            for c in (64, 256):
                yield (
                    f"heat {c}-{k}@{height}x{width_}",
                    partial(chain, c, (256, 3, 1, 1), (k, 1, 1, 0)),
                    (c, height, width_),
                )
    for c, at in itertools.product((512, 2048), ((8, 6), (7, 7), (8, 8), (12, 9), (16, 16))):
        yield f"pose {c}@{at}", partial(chain, c, *((256, 4, 2, 1),) * 3, up=True), (c, *at)


def _segmentation() -> Iterator[Made]:
    for size, c, k in itertools.product(
        (96, 128, 160, 192, 224, 256, 320, 384, 512), (1, 3, 4), (1, 2, 3, 4, 19, 21)
    ):
        for width in (16, 32, 64):
            widths = tuple(width << level for level in range(5))
            for transposed in (True, False):
                yield (
                    f"unet {width} {transposed} {c}-{k}@{size}",
                    partial(UNet, c, k, widths, transposed=transposed),
                    (c, size, size),
                )
    for size in (224, 256, 320, 384, 512):  # decoders over ResNet's encoders, as segmentation_models has them
        for deep in ((64, 64, 128, 256, 512), (64, 256, 512, 1024, 2048), (32, 24, 40, 112, 320)):
            before = deep[-1]
            for level, (beside, k) in enumerate(
                zip((*reversed(deep[:-1]), 0), (256, 128, 64, 32, 16), strict=True)
            ):
                at = size >> (4 - level)
                yield (
                    f"decoder {before + beside}-{k}@{at}",
                    partial(chain, before + beside, (k, 3, 1, 1), (k, 3, 1, 1)),
                    (before + beside, at, at),
                )
                before = k
            for k in (1, 2, 19, 21):
                yield f"decoder last {k}@{size}", partial(nn.Conv2d, 16, k, 3, padding=1), (16, size, size)
    for at, c in itertools.product((28, 32, 33, 64, 65, 60, 48), (512, 2048, 320, 256)):
        for rates in ((6, 12, 18), (12, 24, 36)):
            layers = [nn.Conv2d(c, 256, 3, padding=rate, dilation=rate) for rate in rates]
            yield f"aspp {c} {rates}@{at}", partial(Each, nn.Conv2d(c, 256, 1), *layers), (c, at, at)
        yield (
            f"pyramid {c}@{at}",
            partial(Each, nn.Conv2d(c, 512, 3, padding=1), nn.Conv2d(c, c // 4, 1)),
            (c, at, at),
        )
        yield f"joined {c}@{at}", partial(nn.Conv2d, 2 * c, 512, 3, padding=1), (2 * c, at, at)
    for at, k in itertools.product((56, 64, 96, 128, 120, 129), (2, 19, 21, 150)):
        yield (
            f"classes {k}@{at}",
            partial(Each, chain(256, (256, 3, 1, 1), (k, 1, 1, 0)), nn.Conv2d(256, 48, 1)),
            (256, at, at),
        )
        yield (
            f"deeplab {k}@{at}",
            partial(chain, 304, (256, 3, 1, 1), (256, 3, 1, 1), (k, 1, 1, 0)),
            (304, at, at),
        )


def _restoration() -> Iterator[Made]:
    for size, width, scale in itertools.product((24, 32, 48, 64, 96, 128), (32, 64, 128, 256), (2, 3, 4)):
        forms = ((width, 3, 1, 1), (width, 3, 1, 1), (scale**2 * width if scale < 4 else 4 * width, 3, 1, 1))
        yield f"upscale {width} x{scale}@{size}", partial(chain, 3, *forms), (3, size, size)
        yield (
            f"upscaled {width} x{scale}@{size}",
            partial(Each, nn.Conv2d(width, 3, 3, padding=1), nn.Conv2d(width, 3, 9, padding=4)),
            (width, size * scale, size * scale),
        )
        yield f"srgan {width} x{scale}@{size}", partial(nn.Conv2d, 3, width, 9, padding=4), (3, size, size)
        yield (
            f"espcn {width} x{scale}@{size}",
            partial(chain, 1, (64, 5, 1, 2), (32, 3, 1, 1), (scale**2, 3, 1, 1)),
            (1, size, size),
        )
        yield (
            f"srcnn x{scale}@{size}",
            partial(chain, 1, (64, 9, 1, 4), (32, 5, 1, 2), (1, 5, 1, 2)),
            (1, size * scale, size * scale),
        )
        dense = [nn.Conv2d(64 + 32 * each, 32 if each < 4 else 64, 3, padding=1) for each in range(5)]
        for layer in dense:
            yield (
                f"esrgan {layer.in_channels}@{size}",
                partial(nn.Conv2d, layer.in_channels, layer.out_channels, 3, padding=1),
                (layer.in_channels, size, size),
            )
    for size, c in itertools.product((40, 50, 64, 128, 180, 256), (1, 3)):
        yield (
            f"dncnn {c}@{size}",
            partial(chain, c, (64, 3, 1, 1), (64, 3, 1, 1), (c, 3, 1, 1)),
            (c, size, size),
        )
    forms = (
        (64, 7, 2, 3),
        (128, 5, 2, 2),
        (256, 5, 2, 2),
        (256, 3, 1, 1),
        (512, 3, 2, 1),
        (512, 3, 1, 1),
        (1024, 3, 2, 1),
    )
    for height, width in ((384, 512), (256, 256), (320, 448), (384, 1280)):
        yield f"flownet@{height}x{width}", partial(chain, 6, *forms), (6, height, width)


def _classifiers() -> Iterator[Made]:
    for size, (first, widths) in itertools.product(
        (28, 32, 64, 224),
        ((16, (16, 32, 64)), (16, (160, 320, 640)), (16, (64, 128, 256)), (64, (64, 128, 256, 512)), (32, (32, 64, 128, 256)),
         (24, (24, 48, 96)), (64, (64, 128, 256)), (128, (128, 256, 512))),
    ):  # fmt: skip
        for c in (1, 3):
            yield (
                f"cifar stem {first} {c}@{size}",
                partial(nn.Conv2d, c, first, 3, padding=1),
                (c, size, size),
            )
        before = first
        for level, k in enumerate(widths):
            at = size >> max(0, level - 1) if level else size
            stride = 2 if level else 1
            yield (
                f"cifar {before}-{k}@{at}",
                partial(
                    Each, chain(before, (k, 3, stride, 1), (k, 3, 1, 1)), nn.Conv2d(before, k, 1, stride)
                ),
                (before, at, at),
            )
            before = k
    for size, c, widths in itertools.product((28, 32, 48, 64, 96, 128, 150, 180, 200, 224, 256), (1, 3), ((16, 32, 64), (32, 64, 128), (32, 64, 128, 256), (64, 128, 256, 512))):  # fmt: skip
        for kernel in (3, 5):
            at, before = size, c
            for k in widths:
                for padding in (0, kernel // 2):
                    yield (
                        f"small {before}-{k} {kernel} {padding}@{at}",
                        partial(nn.Conv2d, before, k, kernel, padding=padding),
                        (before, at, at),
                    )
                at, before = at // 2, k
                if at < kernel:
                    break
    for size, width in itertools.product((28, 32, 64, 84), (32, 64)):  # few-shot learning
        for level in range(4):
            at = size >> level
            yield f"few {width}@{at}", partial(Each, nn.Conv2d(width, width, 3, padding=1)), (width, at, at)
    for c in (1, 3):
        yield f"capsules {c}", partial(chain, c, (256, 9, 1, 0), (256, 9, 2, 0)), (c, 28, 28)
        for width in (100, 160, 200, 320):  # text lines: height 32, halved less along
            yield (
                f"crnn {c}@{width}",
                partial(chain, c, (64, 3, 1, 1), (128, 3, 1, 1), (256, 3, 1, 1), (512, 3, 1, 1)),
                (c, 32, width),
            )
    for words, size, k in itertools.product(
        (50, 64, 100, 128, 200, 256, 400, 512), (100, 128, 200, 256, 300), (100, 128, 256)
    ):
        for kernel in (3, 4, 5):
            yield f"text {size}-{k} {kernel}@{words}", partial(nn.Conv1d, size, k, kernel), (size, words)


IMAGES = (
    _adversaries,
    _autoencoders,
    _diffusion,
    _detectors,
    _segmentation,
    _restoration,
    _classifiers,
)
