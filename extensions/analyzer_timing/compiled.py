"""The host's time for a compiled program.

1. A compiled graph is called: guards are checked, its results are wrapped ("call"). Each argument is
   checked, too; with a backward pass the saved tensors are kept, and each gradient is added to its
   parameter's: so much for each argument and each result ("value"). A pass without gradients (`INFERENCE`)
   takes far less.
2. Its own code hands over Inductor's kernels and library calls one by one, convolutions too, about as fast in
   either pass: "launch".
3. A CUDA graph is one launch ("replay"), of which each node takes some ("node"); what it replays takes
   nothing more of the host, and kernels follow each other sooner.

Seconds are those of the host of `host.py`, and lie in its range.

Source: `compiled.json`, which `python -m benchmarks timing compiled_host` writes out of what was recorded on
an H100 (`tests/data/h100/timing/compiled.json.gz`). Of 1, chains of 4 and of 64 products and layers, each
replayed as a CUDA graph, so that little but calls and their values is left, over the factor by which that
machine's host was the faster (0.81, by `host.LOOPS`); a backward pass's, less the empty one's of
`host.json.gz`. A launch is the least squares of the compiled development cases' host time, less all the
others. Of a graph, graphs of 1 and of 1,000 kernels.
Not modelled: graph breaks, of which each is a call; the time of a program's own code around them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from analyzer.graph.model import Operator, Phase

DOMAIN = "inductor"
CALL, RETURN, REPLAY = "inductor::call", "inductor::return", "cuda::graph"
COMPILED, REPLAYED, INFERENCE = "compiled", "replayed", "inference"
GRAPH_GAP = 0.23e-6
_FILE = Path(__file__).with_suffix(".json")
_MICRO = 1e-6


@cache
def _recorded() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return table


def is_launch(operator: Operator) -> bool:
    """Return whether compiled code hands the operator over by itself: a kernel, or a library call."""
    if REPLAYED in operator.settings or operator.name in (CALL, RETURN, REPLAY):
        return False
    return operator.domain == DOMAIN or COMPILED in operator.settings


def seconds_of(operator: Operator, figures: Mapping[str, Any] | None = None) -> float | None:
    """Return the host's seconds for an operator of compiled code; None for one of other code. figures:
    microseconds, the recorded ones by default."""
    if REPLAYED in operator.settings:
        return 0.0
    recorded = _recorded() if figures is None else figures
    numbers = [value for value in operator.arguments if isinstance(value, int)]
    if operator.name in (CALL, RETURN):
        backward = operator.phase is Phase.BACKWARD
        which = "inference" if INFERENCE in operator.settings else "backward" if backward else "forward"
        called = recorded["call"][which] if operator.name == CALL else 0.0
        return float(called + recorded["value"][which] * sum(numbers)) * _MICRO
    if operator.name == REPLAY:
        return float(recorded["replay"] + recorded["node"] * sum(numbers)) * _MICRO
    if is_launch(operator):
        return float(recorded["launch"]) * _MICRO
    return None
