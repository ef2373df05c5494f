"""No compiler is imported for a program that compiles nothing.

PyTorch's own eager code asks its compiler small things (an optimizer's step, whether to break the compiler's
graph) and imports `torch._dynamo` for that, which takes longer than a capture. While `without_compiler` is
open, a small module stands in its place:

1. It answers what eager code asks as the real one does while nothing is compiled; its settings are the real
   ones.
2. Whatever else is asked of it imports the real module, which takes its place from then on (`torch.compile`
   does).
3. Afterwards it is gone, and what PyTorch remembered of it too.

Sources: `torch/_compile.py`, `torch/optim/optimizer.py` (2.11 to 2.13).
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_NAME = "torch._dynamo"
# How `torch/_compile.py` remembers, in a function, what to call instead of it.
_REMEMBERED = "__dynamo_disable"


class _StandIn(ModuleType):
    """Replaces `torch._dynamo` until `close`, or until an attribute is needed that it does not have."""

    def __init__(self) -> None:
        super().__init__(_NAME)
        self.__spec__ = PathFinder.find_spec(_NAME, torch.__path__)
        self.__file__ = str(Path(torch.__file__).parent / "_dynamo" / "__init__.py")
        self._functions: list[Any] = []
        sys.modules[_NAME] = self

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        """Return the function itself, since nothing is traced."""
        if sys.modules.get(_NAME) is not self:  # somebody kept this one for longer than it was meant for
            return self._real().disable(fn, recursive, **options)
        if fn is None:
            return lambda function: self.disable(function, recursive, **options)
        self._functions.append(fn)
        return fn

    def graph_break(self, *_: Any, **__: Any) -> None:
        """Do nothing: nothing is compiled."""

    def close(self) -> None:
        """Leave the place, and no trace in the functions that were "disabled"."""
        for function in self._functions:
            if getattr(function, _REMEMBERED, None) is function:
                delattr(function, _REMEMBERED)
        self._functions.clear()
        if sys.modules.get(_NAME) is self:
            del sys.modules[_NAME]
        if vars(torch).get("_dynamo") is self:
            del torch._dynamo

    def _real(self) -> Any:
        self.close()
        return importlib.import_module(_NAME)

    def __getattr__(self, name: str) -> Any:
        if name == "config":  # which checkpointing reads: a module that needs nothing of the others
            self.__path__ = [str(Path(torch.__file__).parent / "_dynamo")]
            try:
                return importlib.import_module(f"{_NAME}.config")
            finally:
                del self.__path__
        if name.startswith("__") and name != "__path__":  # how Python looks at any module
            raise AttributeError(name)
        return getattr(self._real(), name)


@contextlib.contextmanager
def without_compiler() -> Iterator[None]:
    """While open, PyTorch's eager code gets by without its compiler, unless that is loaded already."""
    stand_in = None if _NAME in sys.modules else _StandIn()
    try:
        yield
    finally:
        if stand_in is not None:
            stand_in.close()
