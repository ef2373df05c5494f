"""Optimizers and losses by name, as a training script would make them.

1. Every class of `torch.optim` by its name in lower case; `sgdm` and `momentum` are SGD with momentum 0.9.
2. The suffix `_fused`, `_foreach` or `_forloop` chooses the implementation (`adamw_fused`); without one
   PyTorch chooses, as it would on CUDA. `_8bit` is bitsandbytes' optimizer of that name, whose state has 8
   bits an element (`adamw_8bit`; the library keeps tensors of fewer than 4,096 elements in 32 bits).
3. `cross_entropy` takes class scores in the last dimension of sequence outputs, or in dimension 1 of image
   outputs; outputs with `logits` (Hugging Face) are scores.
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
_EIGHT_BITS = "_8bit"
LOSSES = ("cross_entropy", "mse", "sum")


def optimizer_names() -> tuple[str, ...]:
    """Return the names `optimizer` accepts, without suffixes."""
    return tuple(sorted({*_CLASSES, "sgdm", "momentum"}))


def optimizer(name: str) -> Callable[..., torch.optim.Optimizer]:
    """Return a function from parameters to the named optimizer. Raises OptionError for an unknown name."""
    wanted, options = name.lower(), dict[str, Any]()
    if wanted.endswith(_EIGHT_BITS):
        return _of_8_bits(name, wanted.removesuffix(_EIGHT_BITS))
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


def _of_8_bits(name: str, wanted: str) -> Callable[..., torch.optim.Optimizer]:
    """bitsandbytes' optimizer of that name, which is imported here. Raises OptionError."""
    try:
        from bitsandbytes import optim
    except ImportError as error:
        raise OptionError(f"{name} needs bitsandbytes: {error}", "pip install bitsandbytes") from error
    known = {
        key.lower().removesuffix("8bit"): cls for key, cls in vars(optim).items() if key.endswith("8bit")
    }
    known = {key: cls for key, cls in known.items() if not key.startswith("paged")}
    options = {"momentum": 0.9} if wanted in ("sgdm", "momentum", "sgd") else {}
    chosen = known.get("sgd" if options else wanted)
    if chosen is None:
        names = ", ".join(f"{key}{_EIGHT_BITS}" for key in sorted(known))
        raise OptionError(f"unknown optimizer {name!r}", f"bitsandbytes has {names}")
    made: Callable[..., torch.optim.Optimizer] = chosen
    return lambda parameters: made(parameters, lr=1e-3, **options)


def loss(name: str) -> Callable[..., Any]:
    """Return the named loss as `loss(output, *targets)`. Raises OptionError for an unknown name."""
    functions: dict[str, Callable[..., Any]] = {"cross_entropy": _cross_entropy, "mse": _mse, "sum": _sum}
    if name not in functions:
        raise OptionError(f"unknown loss {name!r}", f"one of {', '.join(LOSSES)}, or file.py:function")
    return functions[name]


def _logits(output: Any) -> Any:
    for attribute in ("logits", "last_hidden_state"):
        if getattr(output, attribute, None) is not None:
            return getattr(output, attribute)
    if isinstance(output, dict):
        return next(iter(output.values()))
    return output[0] if isinstance(output, (tuple, list)) else output


def _cross_entropy(output: Any, target: Any) -> Any:
    scores = _logits(output)
    if scores.dim() == 3 and not target.is_floating_point() and target.dim() == 2:
        return F.cross_entropy(scores.reshape(-1, scores.size(-1)), target.reshape(-1))
    return F.cross_entropy(scores, target)


def _mse(output: Any, target: Any) -> Any:
    return F.mse_loss(_logits(output), target)


def _sum(output: Any, *_: Any) -> Any:
    return _logits(output).sum()
