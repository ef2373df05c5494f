"""Which convolutions module targets run, as training and inference, in every precision and layout.

Run: `python -m benchmarks cudnn targets --output CALLS.npz TARGET.py... [--batch 2]`. Listed are those nobody
asked cuDNN about, at each of `_BATCHES` (what a largest batch is looked for among). `ask.py` takes the list to a GPU.
"""

from __future__ import annotations

import itertools
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

import analyzer
from benchmarks.cudnn.programs import Met, met_while, write

_BATCHES = (*range(1, 9), 10, 12, 14, 16, 20, 24, 32, 48, 64)
_PRECISIONS: tuple[dict[str, Any], ...] = ({}, {"amp": "fp16"}, {"amp": "bf16"})


@click.command("targets")
@click.option("--output", type=Path, required=True, help="the list (.npz)")
@click.option("--batch", default=2)
@click.argument("targets", nargs=-1, required=True)
def main(output: Path, batch: int, targets: tuple[str, ...]) -> None:
    """List what these targets run, in every precision and layout."""
    seen: set[Met] = set()
    for target, mode, precision, channels_last in itertools.product(
        targets, ("train", "infer"), _PRECISIONS, (False, True)
    ):
        options = {"mode": mode, "channels_last": channels_last, **precision}
        if mode == "train":
            options["optimizer"] = "sgd"
        follow = partial(analyzer.analyze, target, batch=batch, device="h200", **options)
        try:
            seen |= met_while(follow, known=True)
        except analyzer.AnalyzerError as error:
            print(f"{target} {options}: {error}", file=sys.stderr)
        print(f"{target} {options}: {len(seen)} convolutions", file=sys.stderr)
    write(seen, _BATCHES, output)
