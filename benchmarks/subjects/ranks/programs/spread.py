"""What `analyze TARGET --parallel` predicts, really run by one rank: python spread.py TARGET OPTIONS.json-text

The model is spread by the function the prediction uses (`analyzer/capture/pytorch/module/wrapping.py`), and the step is the
one it follows.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from analyzer.capture.pytorch.module.step import run
from analyzer.capture.pytorch.module.wrapping import joined, placing
from analyzer.options import Options
from analyzer.parallelism import parse
from analyzer_verify.runs.program import build

ROOT = Path(__file__).resolve().parents[4]


class Unwatched:
    """Nobody is told where the step is."""

    phase, step = None, 0

    def mark(self, name: str) -> None: ...

    def label(self, tensor: object, name: str, category: object) -> None: ...


options = Options(**json.loads(sys.argv[2]))
parallel = parse(options.parallel or "")
parallel = replace(parallel, settings={**parallel.settings, "rank": int(os.environ["RANK"])})
with joined(parallel.rank):
    run(replace(build(str(ROOT / sys.argv[1]), options), place=placing(parallel, print)), Unwatched())
