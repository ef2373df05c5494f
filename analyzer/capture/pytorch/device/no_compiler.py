"""No compiler is imported for a program that compiles nothing.

PyTorch's own eager code asks its compiler small things (an optimizer's step, whether to break the compiler's
graph) and imports `torch._dynamo` for that, which takes longer than a capture. While `without_compiler` is
open, a small module stands in its place:

1. It answers what eager code asks as the real one does while nothing is compiled; its settings are the real
   ones.
2. A process group that begins has the compiler forget what it decided about functions: one that is not loaded
   has decided nothing.
3. Any other use of it imports the real module, which takes its place from then on (`torch.compile` does).
4. Afterwards it is gone, and what PyTorch remembered of it too.
5. The compiler's symbolic sizes are left out as well (`plain_sizes.py`).

Sources: `torch/_compile.py`, `torch/optim/optimizer.py` (2.11 to 2.13), `init_process_group` in
`torch/distributed/distributed_c10d.py` (2.11 to 2.15).
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from analyzer.capture.pytorch.device.plain_sizes import plain_sizes
from analyzer.capture.pytorch.device.stand_ins import StandIn

_NAME = "torch._dynamo"
# How `torch/_compile.py` remembers, in a function, what to call instead of it.
_REMEMBERED = "__dynamo_disable"


class _TraceRules:
    """Answers for `torch._dynamo.trace_rules` while the compiler is not loaded."""

    def __init__(self, compiler: StandIn) -> None:
        self._compiler = compiler

    def clear_lru_cache(self) -> None:
        """Forget what was decided about functions: nothing was, unless the real module is there by now."""
        if sys.modules.get(_NAME) is not self._compiler:
            self._compiler.real().trace_rules.clear_lru_cache()
        else:  # distributed tensors import the settings, which needs no package once they are loaded
            _ = self._compiler.config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler.real().trace_rules, name)


class _Compiler(StandIn):
    """Replaces `torch._dynamo`."""

    def __init__(self) -> None:
        super().__init__(_NAME)
        self._functions: list[Any] = []

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        """Return the function itself, since nothing is traced."""
        if sys.modules.get(_NAME) is not self:  # somebody kept this one for longer than it was meant for
            return self.real().disable(fn, recursive, **options)
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
        super().close()

    def __getattr__(self, name: str) -> Any:
        if name == "config":  # which checkpointing reads: a module that needs nothing of the others
            self.__path__ = [str(Path(torch.__file__).parent / "_dynamo")]
            try:
                return importlib.import_module(f"{_NAME}.config")
            finally:
                del self.__path__
        if name == "trace_rules":
            return _TraceRules(self)
        return super().__getattr__(name)


@contextlib.contextmanager
def without_compiler() -> Iterator[None]:
    """While open, PyTorch's eager code gets by without its compiler, unless that is loaded already."""
    stand_in = None if _NAME in sys.modules else _Compiler()
    try:
        with plain_sizes():
            yield
    finally:
        if stand_in is not None:
            stand_in.close()
