"""The host's time to launch an operator in eager PyTorch, by kind and phase.

1. Every operator goes through PyTorch's dispatcher; a view costs that alone, others also make a result and
   launch. Where the module changes, Python has called it. Backward, autograd's thread calls operators: a
   node's own work is part of theirs.
2. A list's operator (`_foreach_add_`) costs each tensor something. A phase costs something to begin.
3. `_KINDS` has the time of an operator in a loop of its own, in microseconds, forward and backward: a whole
   step's operators take `_FORWARD` and `_BACKWARD` times that, because a loop finds all of its code in the
   processor's caches.
4. A checkpointed block is two regions, forward and again: each keeps or sets the random state (`_REGION`).
   Its hooks are called for each tensor saved there, saved again, and used (`_HOOK`), which is most of what
   checkpointing takes of the host. Both were timed in loops of their own: `_FORWARD` times that in a step.
5. Seconds are of one host (an H100 server's Xeon, 16 cores, Python 3.12, torch 2.11). On another they are
   `DeviceProfile.host_factor` times as many, which `analyze calibrate` measures by `LOOPS`; without it that
   host's are taken. `RANGE` is the deviation of a step from its estimate on a measured host (95 % of 96
   development steps, eager and compiled, on two machines), `UNMEASURED` that on another.

Source: of 3's loops, `tests/data/h100/timing/host.json.gz` (`benchmarks/timing` of commit cf817472); of 4's,
`checkpoint.json.gz` beside it, and `torch/utils/checkpoint.py`;
all other figures are the least squares of the 32 development cases' host time
(`benchmarks/timing/cases.json`), held near the loops' figures; `_LEVEL` times that meets them in the
geometric mean.
Not modelled: checkpoints with reentry (`use_reentrant=True`), which have no hooks; the time of a program's
own Python code between operators; data loading; the garbage collector.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log

from analyzer.graph.model import Operator, Phase

# Seconds of a call on that host, with `analyzer_verify/runs/probes.py`'s tensors ("host").
LOOPS = {"relu": 8.03e-6, "add": 7.47e-6, "linear, no gradient": 24.1e-6, "adamw 100": 1.728e-3}
RANGE = (0.68, 1.45)
# Besides, where nobody measured the host: of three H100 servers one took 0.78 times as long as another, the
# third, by the drawn cases' steps, some 1.2 times.
UNMEASURED = (0.64, 1.57)
_MICRO = 1e-6
# Microseconds of an operator that launches something, and of one that does not: forward, backward, in the
# optimizer.
_PLAIN = (15.3, 29.0, 16.2)
_VIEW = (5.0, 9.2, 5.4)
_FORWARD, _BACKWARD = 1.4, 1.8
_MODULE, _PHASE = 6.8, 156.0
_LIST, _LIST_EACH = 27.0, 2.8
_REGION, _HOOK = 169.8, 9.7
_LEVEL = 1.04
_LAUNCH = 6.5  # a kernel of a recurrent layer, which launches many
_KINDS = {
    "mm": (16.0, 20.0),
    "addmm": (18.0, 20.0),
    "bmm": (18.0, 20.0),
    "baddbmm": (18.0, 20.0),
    "_grouped_mm": (25.0, 30.0),
    "convolution": (30.0, 30.0),
    "convolution_backward": (50.0, 52.0),
    "native_layer_norm": (20.0, 20.0),
    "native_layer_norm_backward": (38.0, 38.0),
    "native_group_norm": (40.0, 40.0),
    "native_group_norm_backward": (85.0, 85.0),
    "cudnn_batch_norm": (42.0, 42.0),
    "cudnn_batch_norm_backward": (46.0, 46.0),
    "native_batch_norm": (35.0, 35.0),
    "native_batch_norm_backward": (40.0, 40.0),
    "native_dropout": (18.0, 18.0),
    "_softmax": (11.0, 11.0),
    "_log_softmax": (12.0, 12.0),
    "_softmax_backward_data": (20.0, 25.0),
    "cat": (14.0, 18.0),
    "stack": (16.0, 18.0),
    "embedding_dense_backward": (50.0, 50.0),
    "_index_put_impl_": (60.0, 60.0),
    "index": (20.0, 20.0),
    "sort": (40.0, 40.0),
    "topk": (25.0, 25.0),
    "select_backward": (20.0, 28.0),
    "slice_backward": (20.0, 28.0),
}
_ATTENTION = (25.0, 45.0)


def seconds_of(
    operator: Operator, name: str, launches: float, tensors: int, before: Operator | None
) -> float:
    """Return the host's seconds to launch one operator. name: without namespace and overload. launches:
    kernels of the device. tensors: of a list's operator, 0 for others. before: the previous operator, None
    for the first."""
    backward = operator.phase is Phase.BACKWARD
    place = 1 if backward else 2 if operator.phase is Phase.OPTIMIZER else 0
    more = _BACKWARD if backward else _FORWARD
    if tensors:
        seconds = _LIST + _LIST_EACH * tensors
    elif name.startswith("_cudnn_rnn"):
        seconds = _LAUNCH * launches
    elif name.startswith("_scaled_dot_product"):
        seconds = _ATTENTION[backward] * more
    elif name in _KINDS:
        seconds = _KINDS[name][backward] * more
    else:
        seconds = (_PLAIN if launches else _VIEW)[place]
    if before is None or before.phase is not operator.phase:
        seconds += _PHASE
    elif place == 0 and operator.module != before.module:
        seconds += _MODULE
    return seconds * _LEVEL * _MICRO + checkpointing(*operator.checkpointing)


def factor_of(seconds: Mapping[str, float]) -> float:
    """Return how many times as long as the measured host another takes, by its seconds of `LOOPS`."""
    return exp(sum(log(seconds[name] / own_seconds) for name, own_seconds in LOOPS.items()) / len(LOOPS))


def checkpointing(regions: int, calls: int) -> float:
    """Seconds of so many regions of checkpointing and calls of its hooks."""
    return (_REGION * regions + _HOOK * calls) * _FORWARD * _MICRO
