"""Networks for video, volumes, sound, series and control that people write by hand (`handwritten.py`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn

from benchmarks.networks.handwritten_parts import Each, Made, UNet, chain


def _video() -> Iterator[Made]:
    for frames, size in ((16, 112), (8, 112), (16, 64), (32, 112), (16, 128), (8, 224), (16, 224), (32, 224)):
        at, time = size, frames
        forms = ((3, 64), (64, 128), (128, 256), (256, 256), (256, 512), (512, 512))
        for level, (c, k) in enumerate(forms):
            yield f"c3d {c}-{k}@{time}x{at}", partial(nn.Conv3d, c, k, 3, padding=1), (c, time, at, at)
            if level in (0, 1, 3):
                at, time = at // 2, time if level == 0 else max(1, time // 2)
        yield f"i3d {frames}x{size}", partial(nn.Conv3d, 3, 64, 7, 2, 3), (3, frames, size, size)
        yield (
            f"slow {frames}x{size}",
            partial(nn.Conv3d, 3, 64, (1, 7, 7), (1, 2, 2), (0, 3, 3)),
            (3, frames, size, size),
        )
        yield (
            f"fast {frames}x{size}",
            partial(nn.Conv3d, 3, 8, (5, 7, 7), (1, 2, 2), (2, 3, 3)),
            (3, frames, size, size),
        )
        for level, c in enumerate((64, 256, 512, 1024)):
            there = size >> (2 + level)
            inner = c if c == 64 else c // 2
            layers = (
                nn.Conv3d(c, inner, 1),
                nn.Conv3d(c, inner, (3, 1, 1), padding=(1, 0, 0)),
                nn.Conv3d(c, 4 * inner, 1),
            )
            yield f"bottleneck {c}@{frames}x{there}", partial(Each, *layers), (c, frames, there, there)
            yield f"spatial {inner}@{frames}x{there}", partial(Each, nn.Conv3d(inner, inner, (1, 3, 3), padding=(0, 1, 1)), nn.Conv3d(inner, 4 * inner, 1)), (inner, frames, there, there)  # fmt: skip
    for at, c, hidden, kernel in itertools.product((16, 32, 64), (1, 3, 16, 64), (32, 64, 128), (3, 5)):
        yield (
            f"convlstm {c} {hidden} {kernel}@{at}",
            partial(nn.Conv2d, c + hidden, 4 * hidden, kernel, padding=kernel // 2),
            (c + hidden, at, at),
        )
    for size, width in itertools.product((32, 48, 64, 80, 96, 128), (8, 16, 24, 32)):
        for c, k in ((1, 1), (1, 2), (4, 3), (4, 4), (1, 14)):
            widths = tuple(width << level for level in range(4))
            yield (
                f"unet3d {width} {c}-{k}@{size}",
                partial(UNet, c, k, widths, dimensions=3),
                (c, size, size, size),
            )


def _sound() -> Iterator[Made]:
    line: Any = partial(nn.Conv1d)
    for frames, width in itertools.product((32, 64, 128), (128, 256, 512)):  # HiFi-GAN and MelGAN
        yield f"vocoder first {width}@{frames}", partial(line, 80, width, 7, padding=3), (80, frames)
        at, c = frames, width
        for stride in (8, 8, 2, 2):
            yield (
                f"vocoder up {c}@{at}",
                partial(nn.ConvTranspose1d, c, c // 2, 2 * stride, stride, stride // 2),
                (c, at),
            )
            at, c = at * stride, c // 2
            for kernel, rate in itertools.product((3, 7, 11), (1, 3, 5)):
                yield (
                    f"vocoder {c} {kernel} {rate}@{at}",
                    partial(line, c, c, kernel, padding=rate * (kernel // 2), dilation=rate),
                    (c, at),
                )
        yield f"vocoder last {c}@{at}", partial(line, c, 1, 7, padding=3), (c, at)
    for length in (8192, 16000, 16384, 24000, 32000, 48000, 65536):
        for c in (1, 2):
            yield f"raw {c}@{length}", partial(Each, line(c, 32, 7, padding=3), line(c, 64, 8, 4), line(c, 64, 16, 8), line(c, 512, 16, 8, bias=False), line(c, 24, 15, padding=7), line(c, 128, 80, 16), line(c, 16, 15, 1, 7)), (c, length)  # fmt: skip
        at, c = length, 32
        for stride in (2, 4, 5, 8):  # Encodec, SoundStream
            yield (
                f"codec {c}@{at}",
                partial(Each, line(c, c // 2, 3, padding=1), line(c, 2 * c, 2 * stride, stride, stride // 2)),
                (c, at),
            )
            at, c = at // stride, 2 * c
        at, c = length // 4, 64
        for _ in range(4):  # Demucs
            yield (
                f"demucs {c}@{at}",
                partial(Each, line(c, 2 * c, 1), line(c, 2 * c, 8, 4), line(c, c, 3, padding=1)),
                (c, at),
            )
            at, c = at // 4, 2 * c
        for rate in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):  # WaveNet
            yield (
                f"wavenet {rate}@{length}",
                partial(
                    Each, *(line(c, k, 2, padding=rate, dilation=rate) for c, k in ((32, 64), (64, 128))[:1])
                ),
                (32, length),
            )
        yield f"wavenet 1x1@{length}", partial(Each, line(32, 32, 1), line(32, 256, 1)), (32, length)
    for frames in (200, 400, 500, 800, 1000):
        for c, k, kernel in ((80, 512, 5), (512, 512, 5), (512, 80, 5), (80, 256, 3), (256, 256, 3), (256, 1024, 9), (1024, 256, 1), (384, 1536, 9), (40, 512, 5), (512, 1536, 1)):  # fmt: skip
            yield (
                f"speech {c}-{k} {kernel}@{frames}",
                partial(line, c, k, kernel, padding=kernel // 2),
                (c, frames),
            )
        for c in (144, 256, 512):  # Conformer
            yield (
                f"conformer {c}@{frames}",
                partial(Each, line(c, 2 * c, 1), line(c, c, 1), line(c, c, 31, padding=15, groups=c)),
                (c, frames),
            )
    for bins, frames in itertools.product(
        (40, 64, 80, 128), (100, 101, 128, 256, 312, 500, 1001)
    ):  # spectrograms as images
        at, along, before = frames, bins, 1
        for k in (64, 128, 256, 512):
            if min(at, along) < 3:
                break
            yield (
                f"panns {before}-{k}@{at}x{along}",
                partial(chain, before, (k, 3, 1, 1), (k, 3, 1, 1)),
                (before, at, along),
            )
            at, along, before = at // 2, along // 2, k
        for k, kernel in ((16, 3), (32, 3), (32, 5)):
            yield (
                f"spectrogram {k} {kernel}@{bins}x{frames}",
                partial(nn.Conv2d, 1, k, kernel, padding=kernel // 2),
                (1, bins, frames),
            )
    for leads, length in itertools.product(
        (1, 2, 8, 12), (187, 250, 500, 1000, 2500, 5000)
    ):  # heart and other series
        yield f"series first {leads}@{length}", partial(Each, line(leads, 64, 15, 2, 7), line(leads, 64, 16, padding=8), line(leads, 128, 8, padding=4), line(leads, 32, 7, padding=3), line(leads, 32, 5, padding=2), line(leads, 64, 7, 2, 3)), (leads, length)  # fmt: skip
        for level, c in enumerate((64, 128, 256, 512)):
            at = length >> (2 + level)
            yield f"series {c}@{at}", partial(Each, line(c, c, 3, padding=1), line(c, 2 * c, 3, 2, 1), line(c, c, 7, padding=3), line(c, 2 * c, 1, 2), line(c, c, 16, padding=8)), (c, at)  # fmt: skip
        for c in (25, 32, 64):
            for rate in (1, 2, 4, 8, 16):
                yield (
                    f"tcn {c} {rate}@{length}",
                    partial(line, c, c, 3, padding=2 * rate, dilation=rate),
                    (c, length),
                )


def _control() -> Iterator[Made]:
    for size, c in itertools.product((64, 84, 96), (1, 3, 4, 9, 12)):
        yield (
            f"atari {c}@{size}",
            partial(chain, c, (32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)),
            (c, size, size),
        )
        yield (
            f"pixels {c}@{size}",
            partial(chain, c, (32, 3, 2, 0), (32, 3, 1, 0), (32, 3, 1, 0), (32, 3, 1, 0)),
            (c, size, size),
        )
        for width in (1, 2, 4):
            at, before = size, c
            for k in (16 * width, 32 * width, 32 * width):
                yield (
                    f"impala {before}-{k}@{at}",
                    partial(nn.Conv2d, before, k, 3, padding=1),
                    (before, at, at),
                )
                at, before = (at + 1) // 2, k
                yield f"impala {k}@{at}", partial(nn.Conv2d, k, k, 3, padding=1), (k, at, at)
        for width in (24, 32, 48, 64, 96):
            yield (
                f"dreamer {width} {c}@{size}",
                partial(chain, c, *((width << level, 4, 2, 1) for level in range(4))),
                (c, size, size),
            )
    for board, width in itertools.product((9, 15, 19), (64, 128, 256)):
        yield (
            f"board {width}@{board}",
            partial(Each, nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, 2, 1)),
            (width, board, board),
        )
        yield f"board first {width}@{board}", partial(nn.Conv2d, 17, width, 3, padding=1), (17, board, board)


OTHERS = (_video, _sound, _control)
