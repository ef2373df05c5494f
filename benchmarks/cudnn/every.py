"""Which calls cuDNN is asked about at every batch: the convolutions of networks whose largest batch people look for.

Run: `python -m benchmarks cudnn every --output CALLS.npz [--limit 150000]`. A largest batch may be any number, and near an
allocator's limit a workspace that is off by a few megabytes decides; so what `analyze fit` is asked about most is not
inferred. Listed are the convolutions of `_NETWORKS` (torchvision) at 224 x 224 in float32 and NCHW, as training finders run
them, at every batch up to the one that fills `_MOST_BYTES`; the best-known networks first, of each the small batches first.
Left out is what the table has. `ask.py` takes the list to a GPU.
"""

from __future__ import annotations

import math
from pathlib import Path

import click
import numpy as np

from analyzer.libraries.cudnn.table import MODELLED_ON, measurements
from benchmarks.cudnn.calls import GROUPS, Calls, asked_calls, call_of, two
from benchmarks.cudnn.networks import Network
from benchmarks.cudnn.shapes import trace
from benchmarks.networks import torchvision_cpu

_NETWORKS = (
    "resnet18", "resnet50", "densenet169", "densenet121", "vgg16", "mobilenet_v2", "alexnet", "googlenet", "efficientnet_b0",
    "resnet34", "squeezenet1_1", "regnet_x_1_6gf", "vgg11", "vgg13", "vgg19", "shufflenet_v2_x1_0", "mobilenet_v3_large", "resnext50_32x4d",
    "wide_resnet50_2", "mnasnet1_0", "convnext_tiny", "efficientnet_v2_s", "resnet101", "regnet_y_400mf", "squeezenet1_0",
    "mobilenet_v3_small", "efficientnet_b1", "regnet_y_800mf", "densenet201", "inception_v3", "efficientnet_b2", "regnet_x_400mf",
    "shufflenet_v2_x0_5", "mnasnet0_5", "regnet_y_1_6gf",
)  # fmt: skip
_SIZE, _SHAPES_BATCH = 224, 2
# What training at the largest batch asked about takes, of which a convolution's results are about a third.
_MOST_BYTES, _SHARE = 12 * 2**30, 3
_MOST_BATCH = 640


@click.command("every")
@click.option("--output", type=Path, required=True)
@click.option("--limit", default=150_000)
def main(output: Path, limit: int) -> None:
    """List the convolutions of well-known networks at every batch."""
    torchvision_cpu.enable()
    import torch
    from torchvision import models

    asked = asked_calls(measurements(MODELLED_ON), None)
    group = GROUPS.index("float32.nchw")
    rows: dict[tuple[int, ...], int] = {}
    entries: dict[tuple[int, int, int], None] = {}
    for name in _NETWORKS:
        builder = models.get_model_builder(name)
        size = 299 if name == "inception_v3" else _SIZE

        def inputs(size: int = size) -> tuple[torch.Tensor]:
            return (torch.empty(_SHAPES_BATCH, 3, size, size),)

        found = trace(Network(name, lambda builder=builder: builder(weights=None), inputs))["convolutions"]
        families = {call_of(each["x"], each).family: each for each in found if not each["channels_last"]}
        sample_bytes = 4 * sum(math.prod(each["y"]) // _SHAPES_BATCH for each in found)
        most = min(_MOST_BATCH, _MOST_BYTES // (_SHARE * sample_bytes))
        for batch in range(1, most + 1):
            for family, each in families.items():
                depthwise = two(each["w"])[1] == 1 < each["x"][1]  # PyTorch runs it itself
                if not depthwise and ("float32.nchw", family, batch) not in asked:
                    entries[rows.setdefault(family, len(rows)), group, batch] = None
        print(f"{name}: up to {most}, {len(entries):,} calls of {len(rows):,} convolutions")
    Calls(np.array(list(rows)), np.array(list(entries)[:limit])).write(output)
