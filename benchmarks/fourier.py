"""What PyTorch's Fourier transforms allocate, request by request: `python -m benchmarks fourier measure OUT.jsonl` on a GPU.

A row: kind (r2c, c2c, c2r), dtype of its real numbers, shape (of the signals), how (the input's layout: null contiguous,
"transposed", or ["frames", hop] for frames that overlap as `stft` makes them), dims, x and y (shape and strides; y's bytes an
element), events ("+" or "-" and bytes, in order), device (bytes the driver gave besides PyTorch's segments).

The rules made of it are `analyzer/libraries/cufft.py`.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import click
import torch

Layout: TypeAlias = "str | tuple[str, int] | None"
Case: TypeAlias = "tuple[str, str, tuple[int, ...], Layout, tuple[int, ...]]"

KINDS = ("r2c", "c2c", "c2r")
DTYPES = {
    "float32": (torch.float32, torch.complex64),
    "float64": (torch.float64, torch.complex128),
    "float16": (torch.float16, torch.complex32),
}
LARGEST_BYTES = 1e9
# fmt: off
LENGTHS = [
    7, 8, 64, 100, 101, 127, 128, 131, 200, 243, 255, 257, 360, 400, 441, 509, 512, 720, 768, 1000, 1009, 1024, 1536, 2048,
    3000, 4096, 4097, 6000, 8192, 10007, 12000, 16384, 22050, 32768, 44100, 65536, 100003, 131072, 262144, 480000, 1048576,
    1000003, 4194304,
]
HALF_LENGTHS = [8, 64, 128, 512, 1024, 4096, 16384, 65536, 1048576]
PLANES = [
    (7, 7), (14, 14), (14, 8), (32, 32), (56, 56), (64, 64), (64, 65), (101, 64), (128, 128), (131, 64), (64, 131), (131, 131),
    (224, 224), (256, 256), (384, 384), (512, 512), (512, 768), (512, 1024), (720, 1440), (721, 1440), (720, 1280), (1000, 1000),
    (1009, 1009), (1024, 1024), (2048, 2048), (4096, 4096),
]
HALF_PLANES = [(64, 64), (256, 256), (1024, 1024)]
VOLUMES = [
    (16, 16, 16), (32, 32, 32), (64, 64, 64), (96, 96, 96), (100, 100, 100), (128, 128, 128), (131, 131, 131), (128, 64, 32),
    (10, 64, 131),
]
WITH_CHANNELS_BEHIND = [
    (14, 14, 384), (14, 8, 384), (64, 64, 32), (256, 256, 3), (131, 64, 16), (720, 1440, 4), (32, 512, 768),
]
INNER = [(64, 32, 16), (512, 16, 64), (1009, 8, 8), (1024, 64, 3)]
FRAMES = [  # length, hop, frames, batch
    (400, 160, 300, 1), (400, 160, 3000, 8), (512, 128, 1000, 4), (1024, 256, 800, 16), (2048, 512, 400, 2), (1009, 100, 100, 4),
]
# fmt: on


def cases() -> Iterator[Case]:
    """One dimension, two, three; dimensions that are not the last; transposed inputs; frames of a sound."""
    for dtype, lengths in (("float32", LENGTHS), ("float64", LENGTHS[::3]), ("float16", HALF_LENGTHS)):
        for length, batch, kind in itertools.product(lengths, (1, 3, 16, 64, 1024), KINDS):
            yield kind, dtype, (batch, length), None, (1,)
    for dtype, planes in (("float32", PLANES), ("float64", PLANES[::4]), ("float16", HALF_PLANES)):
        for plane, batch, kind in itertools.product(planes, (1, 4, 32, 96), KINDS):
            yield kind, dtype, (batch, *plane), None, (1, 2)
    for volume, batch, kind in itertools.product(VOLUMES, (1, 4, 32), KINDS):
        yield kind, "float32", (batch, *volume), None, (1, 2, 3)
    for image, batch, kind in itertools.product(WITH_CHANNELS_BEHIND, (1, 8, 32), KINDS):
        for dims in ((1, 2), (1,), (0, 1, 2)):
            yield kind, "float32", (batch, *image), None, dims
    for shape, kind in itertools.product(INNER, KINDS):
        for dims in ((0,), (1,), (0, 1), (0, 2)):
            yield kind, "float32", shape, None, dims
        for dims in ((1,), (2,)):
            yield kind, "float32", shape, "transposed", dims
    for length, hop, frames, batch in FRAMES:
        yield "r2c", "float32", (batch, frames, length), ("frames", hop), (2,)


def every_length() -> Iterator[Case]:
    """All short lengths, of one dimension and of two that are equal."""
    for length, kind in itertools.product(range(2, 601), KINDS):
        yield kind, "float32", (3, length), None, (1,)
        if length <= 320:
            yield kind, "float32", (2, length, length), None, (1, 2)
        if length <= 256:
            yield kind, "float64", (2, length, length), None, (1, 2)


def made(kind: str, dtype: str, shape: tuple[int, ...], how: Layout, dims: tuple[int, ...]) -> torch.Tensor:
    """The input: zeros."""
    number = DTYPES[dtype][kind != "r2c"]
    if isinstance(how, tuple):
        batch, frames, length = shape
        sound = torch.zeros(batch, frames * how[1] + length, dtype=number, device="cuda")
        return sound.as_strided(shape, (sound.stride(0), how[1], 1))
    sizes = list(shape)
    if kind == "c2r":
        sizes[dims[-1]] = sizes[dims[-1]] // 2 + 1
    zeros = torch.zeros(*sizes, dtype=number, device="cuda")
    return zeros.transpose(0, 2) if how == "transposed" else zeros


def transformed(
    kind: str, x: torch.Tensor, shape: tuple[int, ...], how: Layout, dims: tuple[int, ...]
) -> torch.Tensor:
    if kind == "r2c":
        return torch.ops.aten._fft_r2c(x, list(dims), 0, True)
    if kind == "c2c":
        return torch.ops.aten._fft_c2c(x, list(dims), 0, True)
    last = x.shape[dims[-1]] * 2 - 2 if how == "transposed" else shape[dims[-1]]
    return torch.ops.aten._fft_c2r(x, list(dims), 2, last)


def recorded(case: Case) -> dict[str, Any]:
    """One row."""
    kind, dtype, shape, how, dims = case
    x = made(kind, dtype, shape, how, dims)
    torch.cuda.synchronize()
    free_bytes = torch.cuda.mem_get_info()[0]
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=10000)
    y = transformed(kind, x, shape, how, dims)
    torch.cuda.synchronize()
    trace = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(None)
    signs = {"alloc": "+", "free_completed": "-"}
    segments_bytes = sum(event["size"] for event in trace if event["action"] == "segment_alloc")
    return {
        **dict(zip(("kind", "dtype", "shape", "how", "dims"), case, strict=True)),
        "x": [list(x.shape), list(x.stride())],
        "y": [list(y.shape), list(y.stride()), y.element_size()],
        "events": [(signs[event["action"]], event["size"]) for event in trace if event["action"] in signs],
        "device": free_bytes - torch.cuda.mem_get_info()[0] - segments_bytes,
    }


@click.command("measure")
@click.argument("out", type=Path)
@click.option("--every", is_flag=True, help="Every short length, instead of those people use.")
def main(out: Path, every: bool) -> None:
    """Record every transform, a row a line."""
    with out.open("w") as file:
        for number, case in enumerate(every_length() if every else cases()):
            if math.prod(case[2]) * (16 if case[1] == "float64" else 8) <= LARGEST_BYTES:
                file.write(json.dumps(recorded(case)) + "\n")
            if number % 200 == 0:
                torch.cuda.empty_cache()
