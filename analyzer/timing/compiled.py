"""What a compiled program takes of the host.

1. A compiled graph is called: guards are checked, its results are wrapped (`_CALL`). Each argument is
   checked, too; with a backward pass what that needs is kept, and each gradient is added to its parameter's:
   so much for each argument and each result (`_VALUE`). A pass without gradients (`INFERENCE`) takes far
   less.
2. Its own code hands over Inductor's kernels and library calls one by one, convolutions too, about as fast in
   either pass: `_LAUNCH`.
3. A CUDA graph is one launch (`_REPLAY`), of which each node takes `_NODE`; what it replays takes nothing
   more of the host, and kernels follow each other sooner.

Seconds are those of the host of `host.py`, and lie in its range.

Source: of 1, chains of 4 and of 64 products and layers, each replayed as a CUDA graph, so that little but
calls and their arguments is left ("loops" in `tests/data/h100/timing/compiled.json.gz`), over the factor by
which that machine's host was the faster (0.81, by `host.LOOPS`); a backward pass's, less the empty one's of
`host.json.gz`. `_LAUNCH` is the least squares of the compiled development cases' host time, less all the
others. Of a graph, graphs of 1 to 1,000 kernels ("graph" there).
Not modelled: graph breaks, of which each is a call; what a program's own code takes around them.
"""

from __future__ import annotations

from analyzer.graph.model import Operator, Phase

DOMAIN = "inductor"
CALL, RETURN, REPLAY = "inductor::call", "inductor::return", "cuda::graph"
COMPILED, REPLAYED, INFERENCE = "compiled", "replayed", "inference"
GRAPH_GAP = 0.23e-6
_MICRO = 1e-6
# Forward with gradients, backward, without gradients.
_CALL = (228.0, 390.0, 99.0)
_VALUE = (2.7, 7.4, 1.9)
_LAUNCH = 33.4
_REPLAY, _NODE = 7.0, 0.33


def seconds_of(operator: Operator) -> float | None:
    """Return the host's seconds of what compiled code does; None for an operator of other code."""
    if REPLAYED in operator.settings:
        return 0.0
    numbers = [value for value in operator.arguments if isinstance(value, int)]
    if operator.name in (CALL, RETURN):
        kind = 2 if INFERENCE in operator.settings else int(operator.phase is Phase.BACKWARD)
        called = _CALL[kind] if operator.name == CALL else 0.0
        return (called + _VALUE[kind] * sum(numbers)) * _MICRO
    if operator.name == REPLAY:
        return (_REPLAY + _NODE * sum(numbers)) * _MICRO
    if operator.domain == DOMAIN or COMPILED in operator.settings:
        return _LAUNCH * _MICRO
    return None
