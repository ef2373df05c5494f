"""`torch.compile` in a program that is followed: what was to be compiled runs as the eager code it is, which
is said.

1. A module becomes one that wraps it, as `torch._dynamo.eval_frame.OptimizedModule` does: `_orig_mod` in its
   state's names, everything else asked of it is the module's own. A function is called as it is.
2. No compiler is imported for it.
3. Where such a module or function is called the estimate carries a caveat, for the verdict: compiled code
   takes other amounts. (Libraries have many functions compiled that no program calls.)
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from analyzer.capture.pytorch.kernels.flex import compiled_call

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

CAVEAT = (
    "torch.compile is not followed: these figures are of the program run as eager code. Compiled code usually"
    " keeps fewer activations and takes less time; tuning, CUDA graphs and padding take memory of their own"
)
# A function of PyTorch's own that it compiles with a backend that compiles nothing, where a program did not
# (`flex_attention`).
_AS_IT_IS = "_flex_attention_hop_wrapper"
_OWN = frozenset({"_orig_mod", "__dict__", "_ready"})
# Whose program runs: what a library had compiled while one was followed is still there when the next one is.
_followed: weakref.WeakSet[Recorder] = weakref.WeakSet()


class CompiledModule(torch.nn.Module):
    """A module that was to be compiled."""

    _orig_mod: torch.nn.Module

    def __init__(self, module: torch.nn.Module) -> None:
        object.__setattr__(self, "_ready", False)
        super().__init__()
        object.__setattr__(self, "_ready", True)
        self._orig_mod = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the original module."""
        with _noted():
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


@contextlib.contextmanager
def _noted() -> Iterator[None]:
    """While open, code that was to be compiled runs eagerly; the estimate gets a caveat about it."""
    for recorder in _followed:
        recorder.caveat(CAVEAT)
    with compiled_call():
        yield


def _eager(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that was to be compiled: it runs eagerly, and the estimate gets a caveat."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _noted():
            return function(*args, **kwargs)

    return call


def compiling(recorder: Recorder) -> Callable[..., Any]:
    """Return the replacement of `torch.compile`, which returns the function or module uncompiled."""
    _followed.clear()
    _followed.add(recorder)

    def compile(model: Any = None, *, disable: bool = False, **options: Any) -> Any:
        if model is None:
            return lambda function: compile(function, disable=disable, **options)
        if disable or getattr(model, "__name__", "") == _AS_IT_IS:
            return model
        if isinstance(model, CompiledModule):
            return model
        return CompiledModule(model) if isinstance(model, torch.nn.Module) else _eager(model)

    return compile
