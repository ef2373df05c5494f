"""What a compiled program takes of the host.

1. A compiled graph is called: guards of its arguments are checked, results are wrapped for autograd, each
   gradient is added to its parameter's. That is so much for each argument and each result (`_VALUE`).
2. Its own code hands over Inductor's kernels and library calls one by one, about as fast: `_LAUNCH`, forward
   and backward. A convolution takes longer (`_CONVOLUTION`): PyTorch looks up cuDNN's plan for it, by all it
   was called with (`aten/src/ATen/native/cudnn/Conv_v8.cpp`).
3. A CUDA graph is one launch (`_REPLAY`, with what is checked before it), of which each node takes `_NODE`;
   what it replays takes nothing more of the host, and kernels follow each other sooner.

Seconds are those of the host of `host.py`, and lie in its range.

Source: the least squares of 14 compiled development cases' host time, less what `host.py` says of their
uncompiled operators, over the factor by which that machine's host was the faster (0.778, by `host.LOOPS`;
`tests/data/h100/timing/compiled.json.gz`); a node's and a gap's, graphs of 1 to 1,000 kernels
("graph" there).
Not modelled: graph breaks, of which each is a call.
"""

from __future__ import annotations

from analyzer.graph.model import Operator, Phase

DOMAIN = "inductor"
CALL, RETURN, REPLAY = "inductor::call", "inductor::return", "cuda::graph"
COMPILED, REPLAYED = "compiled", "replayed"
GRAPH_GAP = 0.23e-6
_MICRO = 1e-6
_LAUNCH = (23.8, 42.7)
_CONVOLUTION = 70.7
_VALUE = 6.1
_REPLAY, _NODE = 325.0, 0.33


def seconds_of(operator: Operator) -> float | None:
    """Return the host's seconds of what compiled code does; None for an operator of other code."""
    if REPLAYED in operator.settings:
        return 0.0
    numbers = [value for value in operator.arguments if isinstance(value, int)]
    if operator.name in (CALL, RETURN):
        return _VALUE * sum(numbers) * _MICRO
    if operator.name == REPLAY:
        return (_REPLAY + _NODE * sum(numbers)) * _MICRO
    if operator.domain == DOMAIN or COMPILED in operator.settings:
        taken = _LAUNCH[operator.phase is Phase.BACKWARD]
        return (_CONVOLUTION if "convolution" in operator.name else taken) * _MICRO
    return None
