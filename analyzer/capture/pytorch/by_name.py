"""Optimizers and losses by name, as a training script would make them.

1. Every class of `torch.optim` by its name in lower case; `sgdm` and `momentum` are SGD with momentum 0.9.
2. The suffix `_fused`, `_foreach` or `_forloop` chooses the implementation (`adamw_fused`); without one PyTorch
   chooses, as it would on CUDA.
3. `cross_entropy` takes class scores in the last dimension of sequence outputs, or in dimension 1 of image outputs;
   outputs with `logits` (Hugging Face) are scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from analyzer.errors import OptionError, did_you_mean

_SUFFIXES: dict[str, dict[str, bool]] = {
    "_fused": {"fused": True},
    "_foreach": {"foreach": True},
    "_forloop": {"foreach": False},
}
_CLASSES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    name.lower(): cls
    for name, cls in vars(torch.optim).items()
    if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer
}
LOSSES = ("cross_entropy", "mse", "sum")


def optimizer_names() -> tuple[str, ...]:
    """The names `optimizer` knows, without suffixes."""
    return tuple(sorted({*_CLASSES, "sgdm", "momentum"}))


def optimizer(name: str) -> Callable[..., torch.optim.Optimizer]:
    """A function from parameters to the named optimizer. Raises OptionError for an unknown name."""
    wanted, options = name.lower(), dict[str, Any]()
    for suffix, extra in _SUFFIXES.items():
        if wanted.endswith(suffix):
            wanted, options = wanted.removesuffix(suffix), dict(extra)
    if wanted in ("sgdm", "momentum", "sgd_momentum"):
        wanted, options = "sgd", {**options, "momentum": 0.9}
    if wanted not in _CLASSES:
        known = optimizer_names()
        raise OptionError(
            f"unknown optimizer {name!r}", f"{did_you_mean(wanted, known)}known: {', '.join(known)}"
        )
    return lambda parameters: _CLASSES[wanted](parameters, lr=1e-3, **options)


def loss(name: str) -> Callable[..., Any]:
    """The named loss as `loss(output, *targets)`. Raises OptionError for an unknown name."""
    functions: dict[str, Callable[..., Any]] = {"cross_entropy": _cross_entropy, "mse": _mse, "sum": _sum}
    if name not in functions:
        raise OptionError(f"unknown loss {name!r}", f"one of {', '.join(LOSSES)}, or file.py:function")
    return functions[name]


def _scores(output: Any) -> Any:
    for attribute in ("logits", "last_hidden_state"):
        if getattr(output, attribute, None) is not None:
            return getattr(output, attribute)
    if isinstance(output, dict):
        return next(iter(output.values()))
    return output[0] if isinstance(output, (tuple, list)) else output


def _cross_entropy(output: Any, target: Any) -> Any:
    scores = _scores(output)
    if scores.dim() == 3 and not target.is_floating_point() and target.dim() == 2:
        return F.cross_entropy(scores.reshape(-1, scores.size(-1)), target.reshape(-1))
    return F.cross_entropy(scores, target)


def _mse(output: Any, target: Any) -> Any:
    return F.mse_loss(_scores(output), target)


def _sum(output: Any, *_: Any) -> Any:
    return _scores(output).sum()
