"""A rank's memory over the number of ranks: python -m benchmarks ranks worlds

Predicted for `targets/llama.py` under FSDP2; worlds two GPUs cannot check, so beside the sharding's own arithmetic
(`torch/distributed/fsdp/_fully_shard/_fsdp_param.py`: the first dimension is cut into equal chunks, the last ones shorter or empty).
"""

from __future__ import annotations

import click
import torch

from analyzer import analyze
from benchmarks import ROOT
from benchmarks.harness.pages import MIB, prose, table
from benchmarks.subjects.ranks.targets import llama

_TEXT = prose(__file__)

PAGE = ROOT / "docs/evidence/WORLDS.md"
TARGET = ROOT / "benchmarks/subjects/ranks/targets/llama.py"
WORLDS = (2, 8, 64, 512, 4096)


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
    PAGE.write_text(
        _TEXT["head"] + table(("ranks", "shards", "allocated", "reserved", "device"), rows) + _TEXT["tail"]
    )
