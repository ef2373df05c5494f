"""`torch.compile` in a program that is followed: what was to be compiled runs as the eager code it is, which is said.

1. A module becomes one that wraps it, as `torch._dynamo.eval_frame.OptimizedModule` does: `_orig_mod` in its state's names,
   everything else asked of it is the module's own. A function stays itself.
2. No compiler is imported for it.
3. The estimate carries a caveat, for the verdict: compiled code takes other amounts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recorder import Recorder

CAVEAT = (
    "torch.compile is not followed: these figures are of the program run as eager code. Compiled code usually keeps fewer "
    "activations; tuning, CUDA graphs and padding take memory of their own"
)
_OWN = frozenset({"_orig_mod", "__dict__", "_ready"})


class CompiledModule(torch.nn.Module):
    """A module that was to be compiled."""

    _orig_mod: torch.nn.Module

    def __init__(self, module: torch.nn.Module) -> None:
        object.__setattr__(self, "_ready", False)
        super().__init__()
        object.__setattr__(self, "_ready", True)
        self._orig_mod = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the module's."""
        return self._orig_mod(*args, **kwargs)

    @property
    def training(self) -> bool:
        """As the module's."""
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:
        if self._ready:  # `Module.__init__` sets it before there is a module
            self._orig_mod.training = value

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not self._ready or name in _OWN or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __reduce__(self) -> Any:
        return type(self), (self._orig_mod,)

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]


def compiling(recorder: Recorder) -> Callable[..., Any]:
    """What stands for `torch.compile`."""

    def compile(model: Any = None, *, disable: bool = False, **options: Any) -> Any:
        if model is None:
            return lambda function: compile(function, disable=disable, **options)
        if disable:
            return model
        recorder.caveat(CAVEAT)
        wrapped = isinstance(model, torch.nn.Module) and not isinstance(model, CompiledModule)
        return CompiledModule(model) if wrapped else model

    return compile
