"""What a checkpointed block takes of the host besides running its operators twice.

1. `torch.utils.checkpoint` without reentry (`torch/utils/checkpoint.py`, `_checkpoint_hook`, `_recomputation_hook`) keeps and sets the
   random state of a block, and calls a function of Python's for each tensor that a block saves for its backward pass: when it is saved,
   when it is saved again, and when it is used.
2. A chain of blocks, each of so many products that save one tensor each, is run plain, under hooks that do nothing, and checkpointed:
   seconds of the host for a block's forward and backward pass. Tensors are so small that the device is never behind.
3. `fitted`: what checkpointing adds is so much a **region** (a block's forward pass, and it again), and so much a **hook's call** there,
   the running of the operators again taken off.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from benchmarks import ROOT
from benchmarks.harness.files import write
from benchmarks.timing.measure import versions

RECORD = ROOT / "tests/data/h100/timing/checkpoint.json.gz"
_BLOCKS, _SAVED, _ROUNDS, _STEPS = 20, (1, 2, 4, 8, 16, 32), 5, 9


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def _ways() -> dict[str, Callable[[Callable[[torch.Tensor], torch.Tensor], torch.Tensor], torch.Tensor]]:
    """How a block is called."""

    def hooked(block: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(_same, _same):
            return block(x)

    def checkpointed(**more: Any) -> Callable[..., torch.Tensor]:
        return lambda block, x: checkpoint(block, x, **more)

    return {
        "plain": lambda block, x: block(x),
        "hooks": hooked,
        "checkpoint": checkpointed(use_reentrant=False),
        "without random state": checkpointed(use_reentrant=False, preserve_rng_state=False),
        "reentrant": checkpointed(use_reentrant=True),
    }


def _seconds(call: Callable[..., torch.Tensor], saved: int, device: str) -> list[tuple[float, float]]:
    """Of a block, forward and backward: each step's."""
    leaf = torch.randn(4, 64, device=device).requires_grad_()
    factor = torch.randn(4, 64, device=device)

    def block(x: torch.Tensor) -> torch.Tensor:
        for _ in range(saved):
            x = x * factor
        return x

    found = []
    for _ in range(_STEPS + 3):
        if device == "cuda":
            torch.cuda.synchronize()
        x, begin = leaf, time.perf_counter()
        for _ in range(_BLOCKS):
            x = call(block, x)
        middle = time.perf_counter()
        x.sum().backward()
        end = time.perf_counter()
        found.append(((middle - begin) / _BLOCKS, (end - middle) / _BLOCKS))
    return found[3:]


def measured(device: str = "cuda") -> dict[str, dict[str, list[float]]]:
    """Seconds of the host for a block, [forward, backward], by way and by how many tensors it saves: medians."""
    times: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for _ in range(_ROUNDS):
        for saved in _SAVED:
            for name, call in _ways().items():
                times[name, saved] += _seconds(call, saved, device)
    found: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for (name, saved), rows in times.items():
        found[name][str(saved)] = [statistics.median(row[i] for row in rows) for i in range(2)]
    return dict(found)


def fitted(rows: Mapping[str, Mapping[str, list[float]]], way: str = "checkpoint") -> dict[str, float]:
    """What a way adds, in seconds: `region` and `call`, least squares of relative errors. A checkpointed block has two regions, and
    three calls for each tensor it saves; one under hooks one, and two."""
    left, right = [], []
    again = way != "hooks"
    for saved, (forward, backward) in rows[way].items():
        plain = rows["plain"][saved]
        more = forward + backward - sum(plain) - (plain[0] if again else 0.0)
        left.append([2.0 if again else 1.0, (3.0 if again else 2.0) * int(saved)])
        right.append(more)
    scale = 1 / np.maximum(np.array(right), 1e-6)
    region, call = np.linalg.lstsq(np.array(left) * scale[:, None], np.ones(len(right)), rcond=None)[0]
    return {"region": float(region), "call": float(call)}


@click.command("checkpoint")
@click.argument("file", type=Path)
def main(file: Path) -> None:
    """Time checkpointed blocks on this machine."""
    rows = measured("cuda" if torch.cuda.is_available() else "cpu")
    write(file, {"versions": versions(), "seconds": rows})
    for way in rows:
        if way != "plain":
            found = fitted(rows, way)
            print(f"{way}: {1e6 * found['region']:.0f} us a region, {1e6 * found['call']:.1f} us a call")


if __name__ == "__main__":
    main()
