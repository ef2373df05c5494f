"""Cases that nobody chose: models that no case has, drawn by lot with a batch, an optimizer, a type and a format.

`python -m benchmarks timing lot DRAW` prints them; they were put into `cases.json` before any was predicted or measured.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from benchmarks.accuracy.sets import zoo
from benchmarks.timing.cases import COMPILED, SETS, Case

ZOOS = ("development", "held_out", "held_out_3")


@dataclass(frozen=True)
class Draw:
    """seed: of the lot; eager, compiled: how many cases; gpu: what they are measured on."""

    seed: int
    eager: int
    compiled: int
    gpu: str


DRAWS = {"fresh": Draw(20261128, 10, 10, "h100"), "fresh_2": Draw(20261129, 30, 6, "h200")}
_OPTIMIZERS = ("sgdm", "adam", "adamw", "adamw_fused")
_BATCHES = (2, 4, 8, 16, 32, 48)
# Models of packages that the measuring machine does not have.
_ELSEWHERE = "medical"


def _models(draw: str) -> Iterator[tuple[str, str]]:
    """The models of the zoos that no case has but this draw's and later ones', and that need PyTorch, torchvision, timm and
    transformers alone."""
    later = list(DRAWS)[list(DRAWS).index(draw) :]
    used = {
        case["model"]
        for groups in (SETS, COMPILED)
        for name, cases in groups.items()
        for case in cases
        if name not in later
    }
    for name in ZOOS:
        for model, (make, _, _) in zoo(name).M.items():
            if model not in used and _ELSEWHERE not in getattr(make, "__qualname__", ""):
                yield name, model


def drawn(draw: str) -> dict[str, list[Case]]:
    """The eager and the compiled cases of a draw, of as many models."""
    of = DRAWS[draw]
    lot = random.Random(of.seed)
    chosen = lot.sample(sorted(_models(draw)), of.eager + of.compiled)
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
        if number >= of.eager:
            case["compile"] = lot.choice(("default", "default", "reduce-overhead"))
        found["eager" if number < of.eager else "compiled"].append(case)
    return found


@click.command("lot")
@click.argument("draw", type=click.Choice(list(DRAWS)))
def main(draw: str) -> None:
    """Print the cases that are drawn."""
    for kind, cases in drawn(draw).items():
        print(kind, *(json.dumps(case) for case in cases), sep="\n")
