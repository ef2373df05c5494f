"""Which convolutions module targets run, as training and inference, in every precision and layout.

Run: `python -m benchmarks cudnn targets --output CALLS.npz TARGET.py... [--batch 2]`. Listed are those nobody
asked cuDNN about, at each of `_BATCHES` (what a largest batch is looked for among). `ask.py` takes the list to a GPU.
"""

from __future__ import annotations

import itertools
import sys
from functools import partial
from typing import Any

import analyzer
from benchmarks.cudnn.programs import Met, command_line, met_while, write

_BATCHES = (*range(1, 9), 10, 12, 14, 16, 20, 24, 32, 48, 64)
_PRECISIONS: tuple[dict[str, Any], ...] = ({}, {"amp": "fp16"}, {"amp": "bf16"})


def main() -> None:
    """The command line."""
    parser = command_line(__doc__)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("target", nargs="+")
    given = parser.parse_args()
    seen: set[Met] = set()
    for target, mode, precision, channels_last in itertools.product(
        given.target, ("train", "infer"), _PRECISIONS, (False, True)
    ):
        options = {"mode": mode, "channels_last": channels_last, **precision}
        if mode == "train":
            options["optimizer"] = "sgd"
        follow = partial(analyzer.analyze, target, batch=given.batch, device="h200", **options)
        try:
            seen |= met_while(follow, known=True)
        except analyzer.AnalyzerError as error:
            print(f"{target} {options}: {error}", file=sys.stderr)
        print(f"{target} {options}: {len(seen)} convolutions", file=sys.stderr)
    write(seen, _BATCHES, given.output)


if __name__ == "__main__":
    main()
