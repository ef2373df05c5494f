"""Convolutions nobody's network has in particular and many have in general: usual channels, filters and sizes, all combined.

Run: `python -m benchmarks cudnn grids --output CALLS.npz`. Listed are those the table lacks:

1. large filters (5, 7, 9) that keep the size, and dilated ones (as in atrous pyramids), at usual channels and sizes;
2. every level of U-Nets at the sizes of pictures people have, which are seldom square;
3. small pictures (28, 32 and 64, and their halves) at batches that are the rest of a well-known data set: 50,000 and 60,000 samples
   leave 80, 96, 32 and 16 to the last batch of 64, 128 or 256.

`plans.py` takes the list to a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import click

from analyzer.libraries.cudnn.table import Convolution
from benchmarks.cudnn.programs import Met, write

_GROUPS = ("float32.nchw", "float16.nchw", "bfloat16.nchw", "float16.nhwc")
_WIDE = ((3, 64), (64, 3), (1, 64), (64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (256, 256), (256, 512),
         (512, 256), (16, 16), (32, 32), (1, 32), (32, 64), (1, 16), (16, 32))  # fmt: skip
_DEEP = ((64, 64), (128, 128), (256, 256), (512, 512), (512, 256), (1024, 256), (2048, 256), (320, 256))
_PICTURES = ((256, 512), (480, 320), (480, 640), (360, 480), (512, 1024), (240, 320), (640, 640), (384, 384), (320, 320), (96, 96),
             (288, 384), (192, 256))  # fmt: skip
_UNET = (((3, 64), (1, 64), (64, 64), (128, 64)), ((64, 128), (128, 128), (256, 128)), ((128, 256), (256, 256), (512, 256)),
         ((256, 512), (512, 512), (1024, 512)), ((512, 1024), (1024, 1024), (512, 512)))  # fmt: skip
_SMALL = ((1, 16), (1, 32), (3, 16), (3, 32), (3, 64), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128),
          (128, 256), (256, 256), (256, 512), (512, 512))  # fmt: skip
_RESTS = (16, 32, 80, 96, 100, 128, 200, 500, 1000)


def family(
    c: int, k: int, size: tuple[int, int], filter_size: int, stride: int = 1, dilation: int = 1
) -> tuple[int, ...]:
    """That of a two-dimensional convolution whose padding keeps the size, but for its stride."""
    padding = dilation * (filter_size - 1) // 2
    shapes = (1, c, *size), (k, c, filter_size, filter_size)
    return Convolution(
        "forward", "float32", False, *shapes, (padding,) * 2, (stride,) * 2, (dilation,) * 2
    ).family


def grids() -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(family, batches)."""
    for filter_size, (c, k), size in itertools.product(
        (5, 7, 9), _WIDE, (7, 14, 28, 32, 64, 96, 128, 224, 256)
    ):
        yield family(c, k, (size, size), filter_size), (1, 2, 4, 8, 16, 32, 64, 80, 96, 128)
    for dilation, (c, k), size in itertools.product(
        (2, 4, 6, 12, 18, 24), _DEEP, (28, 32, 33, 40, 48, 64, 65, 129)
    ):
        yield family(c, k, (size, size), 3, dilation=dilation), (1, 2, 4, 8, 16)
    for (height, width), (level, pairs) in itertools.product(_PICTURES, enumerate(_UNET)):
        for c, k in pairs:
            yield family(c, k, (height >> level, width >> level), 3), (1, 2, 4, 8, 16)
    for (c, k), size in itertools.product(_SMALL, (28, 14, 7, 32, 16, 8, 4, 64)):
        for filter_size, stride in ((3, 1), (3, 2), (5, 1), (1, 1), (1, 2)):
            yield family(c, k, (size, size), filter_size, stride), _RESTS


@click.command("grids")
@click.option("--output", type=Path, required=True, help="the list (.npz)")
def main(output: Path) -> None:
    """List the usual convolutions of no network in particular."""
    seen = set[Met]()
    for group in _GROUPS:
        seen |= {(group, told, batch) for told, batches in grids() for batch in batches}
    write(seen, (), output)
