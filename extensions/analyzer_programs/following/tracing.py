"""TorchScript in a program that is followed: what `torch.jit.trace` and `torch.jit.ScriptModule` compile
stays eager code.

1. PyTorch runs what it traces once; to check the trace (`check_trace`, the default) it traces it once more
   and runs both traces and the original again, whose results, with what autograd has kept for them, live
   until they are compared (`torch/jit/_trace.py`, `_check_trace`).
2. The result is the module, or function, itself with the graph beside it: `graph`, `code` and other
   attributes of a traced one are answered by a trace that was made outside all that watches the program,
   where that is possible.
3. A class of the program's that is a `ScriptModule` is a plain module, and `script_method` gives its function
   back, as with `PYTORCH_JIT=0` (`torch/jit/_script.py`): TorchScript's interpreter calls kernels that only a
   real GPU has.
4. Functions that `torch.jit.script` compiles run by TorchScript's interpreter, operator by operator.

Not modelled: what TorchScript keeps otherwise than eager code once it has profiled a graph and differentiates
it by itself (`torch/csrc/jit/runtime/graph_executor.cpp`). A caveat says so where anything of it is called.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from analyzer_programs.following.exporting import outside

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

_COMPILED = torch.jit.ScriptModule
_CHECKS = 3  # results that live beside one another while they are compared
_MOST_BYTES = 1 << 28  # of a module that is traced for real besides
CAVEAT = (
    "TorchScript is assumed to take what eager code does: once it has profiled a graph, it fuses operators"
    " and keeps other tensors for the backward pass"
)


class TracedModule(torch.nn.Module):
    """A module that was traced; `_trace` is the real trace, None where none could be made."""

    def __init__(self, module: torch.nn.Module, trace: Any) -> None:
        super().__init__()
        self._traced = module
        object.__setattr__(self, "_trace", trace)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the traced function or module."""
        return self._traced(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_traced":
            return self._modules["_traced"]
        try:
            return getattr(self._traced, name)
        except AttributeError:
            return getattr(self._trace, name)


def tracing(recorder: Recorder) -> Callable[..., Any]:
    """Return the replacement of `torch.jit.trace`, which runs the function once and returns it uncompiled."""
    trace = torch.jit.trace

    def call(
        func: Any = None,
        example_inputs: Any = None,
        optimize: Any = None,
        check_trace: bool = True,
        *_: Any,
        example_kwarg_inputs: Any = None,
        **options: Any,
    ) -> Any:
        del optimize
        inputs = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
        named = example_kwarg_inputs or {}
        if example_inputs is None:
            inputs = ()
        recorder.caveat(CAVEAT)

        def run() -> Any:
            copies = tree_map_only(torch.Tensor, lambda t: t.detach().clone(), (tuple(inputs), named))
            return func(*copies[0], **copies[1])

        func(*inputs, **named)
        if check_trace:
            run()  # the second trace
            results = [run() for _ in range(_CHECKS)]
            del results
        if not isinstance(func, torch.nn.Module):
            return func
        return TracedModule(func, _traced_outside(trace, func, inputs, named, options))

    return call


class _LikeScriptModules(type):
    """Modules TorchScript made count as instances too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or isinstance(instance, _COMPILED)


class ScriptModule(torch.nn.Module, metaclass=_LikeScriptModules):
    """Replaces `torch.jit.ScriptModule` as a base class of the program's classes."""


def script_method(recorder: Recorder) -> Callable[[Any], Any]:
    """Return the replacement of `torch.jit.script_method`, which leaves the method as it is."""

    def call(function: Any) -> Any:
        recorder.caveat(CAVEAT)
        return function

    return call


def scripted(recorder: Recorder) -> Callable[..., Any]:
    """Return the replacement of `torch.jit.ScriptFunction.__call__`, which adds a caveat."""
    run = torch.jit.ScriptFunction.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.caveat(CAVEAT)
        return run(self, *args, **kwargs)

    return call


def is_scripted(module: torch.nn.Module) -> bool:
    """Return whether TorchScript's interpreter runs it."""
    return isinstance(module, _COMPILED)


def _traced_outside(trace: Any, module: torch.nn.Module, inputs: Any, named: Any, options: Any) -> Any:
    """Trace the module on the CPU with zeros as inputs; None if that is too large or fails."""
    tensors = [*module.parameters(), *module.buffers(), *tree_leaves((inputs, named))]
    with outside():
        if sum(t.nbytes for t in tensors if isinstance(t, torch.Tensor)) > _MOST_BYTES:
            return None
        memo = {id(t): _zeros_like(t) for t in tensors if isinstance(t, torch.Tensor)}
        inputs, named = tree_map_only(torch.Tensor, lambda t: memo[id(t)], (tuple(inputs), named))
        more = {"example_kwarg_inputs": named} if named else {}
        try:
            return trace(copy.deepcopy(module, memo), inputs, check_trace=False, **options, **more)
        except Exception:
            return None


def _zeros_like(tensor: torch.Tensor) -> torch.Tensor:
    zeros = torch.zeros(tensor.shape, dtype=tensor.dtype)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(zeros, tensor.requires_grad)
    return zeros
