"""A rank's memory over the number of ranks: python -m benchmarks ranks worlds

Predicted for `targets/llama.py` under FSDP2; worlds two GPUs cannot check, so beside the sharding's own arithmetic
(`torch/distributed/fsdp/_fully_shard/_fsdp_param.py`: the first dimension is cut into equal chunks, the last ones shorter or empty).
"""

from __future__ import annotations

import click
import torch

from analyzer import analyze
from benchmarks import ROOT
from benchmarks.harness.pages import MIB, table
from benchmarks.ranks.targets import llama

PAGE = ROOT / "docs/evidence/WORLDS.md"
TARGET = ROOT / "benchmarks/ranks/targets/llama.py"
WORLDS = (2, 8, 64, 512, 4096)
_HEAD = """# A rank over the number of ranks

`benchmarks/ranks/targets/llama.py` under `--parallel fsdp2:N`, AdamW, batch 4 on each rank, in MiB. Made by
`python -m benchmarks ranks worlds`; predicted, since nobody here has more than two GPUs: what two took stands on
the [page of several GPUs](../PARALLEL.md). *Shards* is the sharding's own arithmetic, not the analysis: parameters, gradients and
Adam's two moments of this rank, float32.

"""
_TAIL = """
Why the course has this shape: shards fall as 1/N, and they are all that falls. What stays is what a rank computes with whatever
the world's size: activations of its own batch, and the gathered parameters and whole gradients of the blocks that are at
work. From a few ranks on these are all there is, and more ranks save nothing. In the end it rises again: every parameter is padded to a
whole row for each rank before it is gathered and after its gradient is reduced, so that one with fewer rows than there are ranks
(here all but the embedding and the head at 4,096) takes as many rows as ranks. The device's figure adds the context and NCCL, which is measured for two ranks
on NVLink and bounded for other worlds, as the output says.
"""


def shard_bytes(model: torch.nn.Module, world: int) -> int:
    """Bytes of parameters, gradients and two moments on the first rank, whose shards are the largest."""
    return sum(4 * 4 * -(-p.shape[0] // world) * (p.numel() // p.shape[0]) for p in model.parameters())


@click.command()
def worlds() -> None:
    """Predict a rank of every world, and write the page."""
    with torch.device("meta"):
        model = llama.make_model()
    rows = []
    for world in WORLDS:
        found = analyze(
            TARGET, batch=4, mode="train", optimizer="adamw", device="h200", parallel=f"fsdp2:{world}"
        )
        figures = (shard_bytes(model, world), found.peak_allocated, found.peak_reserved, found.device_used)
        rows.append([f"{world:,}", *(f"{figure / MIB:,.1f}" for figure in figures)])
    PAGE.write_text(_HEAD + table(("ranks", "shards", "allocated", "reserved", "device"), rows) + _TAIL)
