"""Every operator that PyTorch tests itself, on tensors that lie otherwise: cases for `python -m benchmarks operators measure OUT.json.gz layouts`.

PyTorch's own list of operators (`torch.testing._internal.common_methods_invocations.op_db`, which needs the package expecttest) says
which arguments each takes. Here a few of them are given with their dimensions in another order in memory: transposed, the last two
exchanged, channels last. Where results then lie, and which copies a kernel takes, is seldom what it is for contiguous tensors.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

_SAMPLES, _ORDERS = 8, 2
# Solvers, whose workspaces nobody has recorded; code compiled at run time; sparse tensors; what makes no tensor from tensors.
_LEFT_OUT = ("linalg.", "svd", "lu", "cholesky", "qr", "geqrf", "ormqr", "pinverse", "pca_lowrank", "symeig", "logdet", "eig",
             "triangular_solve", "jiterator", "sparse", "empty", "cov", "corrcoef", "lobpcg", "cdist")  # fmt: skip
_CHANNELS = 4


def layouts(device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(name, what to run: forward, and backward from a gradient that lies otherwise too)."""
    for operator in op_db:
        if operator.name.startswith(_LEFT_OUT) or torch.float32 not in operator.dtypes:
            continue
        try:
            samples = operator.sample_inputs(device, torch.float32, requires_grad=operator.supports_autograd)
            chosen = list(itertools.islice(samples, _SAMPLES))
        except Exception:  # some need more than there is; the others are enough
            continue
        for (number, sample), order in itertools.product(enumerate(chosen), range(_ORDERS)):
            name = f"{operator.name} {operator.variant_test_name} {number} {order}"
            yield name, _both(operator.op, sample, random.Random(name))


def _both(operator: Callable[..., Any], sample: Any, draw: random.Random) -> Callable[[], Any]:
    seed = draw.random()

    def run() -> None:
        again = random.Random(seed)

        def lying(value: Any) -> Any:
            return _lying(value, again)

        args = tree_map(lying, (sample.input, *sample.args))
        out = operator(*args, **tree_map(lying, sample.kwargs))
        results = (out,) if isinstance(out, torch.Tensor) else out
        first = next((one for one in results if isinstance(one, torch.Tensor) and one.requires_grad), None)
        if first is not None:
            first.backward(lying(torch.ones_like(first.detach())))

    return run


def _lying(value: Any, draw: random.Random) -> Any:
    """The tensor with its dimensions in another order in memory, or as it is."""
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or value.layout is not torch.strided:
        return value
    how, plain = draw.random(), value.detach()
    if how < 0.4:
        plain = plain.transpose(0, -1).contiguous().transpose(0, -1)
    elif how < 0.6:
        plain = plain.transpose(-1, -2).contiguous().transpose(-1, -2)
    elif how < 0.8 and plain.dim() == _CHANNELS:
        plain = plain.contiguous(memory_format=torch.channels_last)
    return plain.requires_grad_(value.requires_grad)
