"""Cases that nobody chose: models that no case has, drawn by lot with a batch, an optimizer, a type and a format.

`python -m benchmarks timing lot` prints them; they were put into `cases.json` before any was predicted or measured ("fresh").
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import click

from benchmarks.accuracy.sets import zoo
from benchmarks.timing.cases import COMPILED, SETS, Case

ZOOS = ("development", "held_out", "held_out_3")
SEED, EACH = 20261128, 10
DRAWN = "fresh"
_OPTIMIZERS = ("sgdm", "adam", "adamw", "adamw_fused")
_BATCHES = (2, 4, 8, 16, 32, 48)
# Models of packages that the measuring machine does not have.
_ELSEWHERE = "medical"


def _models() -> Iterator[tuple[str, str]]:
    """The models of the zoos that no other case has, and that need PyTorch, torchvision, timm and transformers alone."""
    used = {
        case["model"]
        for groups in (SETS, COMPILED)
        for name, cases in groups.items()
        for case in cases
        if name != DRAWN
    }
    for name in ZOOS:
        for model, (make, _, _) in zoo(name).M.items():
            if model not in used and _ELSEWHERE not in getattr(make, "__qualname__", ""):
                yield name, model


def drawn() -> dict[str, list[Case]]:
    """So many eager and so many compiled cases, of as many models."""
    lot = random.Random(SEED)
    chosen = lot.sample(sorted(_models()), 2 * EACH)
    found: dict[str, list[Case]] = {"eager": [], "compiled": []}
    for number, (name, model) in enumerate(chosen):
        case: dict[str, Any] = {
            "zoo": name,
            "model": model,
            "batch": lot.choice(_BATCHES),
            "opt": lot.choice(_OPTIMIZERS),
            "mode": lot.choice(("train", "train", "train", "infer")),
        }
        case |= lot.choice(({}, {"amp": "bf16"}, {"tf32": True}))
        case |= lot.choice(({}, {}, {"channels_last": True})) if name == "development" else {}
        if number >= EACH:
            case["compile"] = lot.choice(("default", "default", "reduce-overhead"))
        found["eager" if number < EACH else "compiled"].append(case)
    return found


@click.command("lot")
def main() -> None:
    """Print the cases that are drawn."""
    for kind, cases in drawn().items():
        print(kind, *(json.dumps(case) for case in cases), sep="\n")
