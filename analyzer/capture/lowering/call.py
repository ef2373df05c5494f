"""How an ONNX operator becomes PyTorch code: the call it is given, the table of functions, and what stands in
for one.

1. A function gets the call (attributes, result types, values of constant inputs) and the inputs as tensors,
   None where one is absent, and returns the results. Shapes are known, so no function reads tensor data.
2. Inputs that only say what to do (a shape, axes, a pad width) are read from `NodeCall.constant`; when they
   are constants they are no tensors in PyTorch either (`SETTINGS`).
3. An operator without a function is run by `opaque`: it makes its results, keeps all inputs and results for
   the backward pass (an upper bound on what it saves), and makes a gradient for each input. Callers name it.

Source: operator definitions of ONNX (`docs/Operators.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

Results: TypeAlias = "Tensor | Sequence[Tensor | None]"


@dataclass(frozen=True, slots=True)
class NodeCall:
    """One node: attributes, shapes and types of its results, and constant inputs as numpy arrays."""

    name: str
    attributes: Mapping[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    constants: tuple[Any, ...]

    def get(self, name: str, default: Any) -> Any:
        """Return an attribute, or its default."""
        return self.attributes.get(name, default)

    def constant(self, position: int) -> Any:
        """Return a constant input as a list or number; None if it is absent or computed."""
        value = self.constants[position] if position < len(self.constants) else None
        return None if value is None else value.tolist()

    def axes(self, rank: int, position: int = 1) -> tuple[int, ...]:
        """Axes given as an attribute or as an input; none means all."""
        axes = self.attributes.get("axes")
        if axes is None:
            axes = self.constant(position)
        return tuple(axis % rank for axis in axes) if axes else tuple(range(rank))


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch type; types torch lacks (int4, ...) become int8."""
    dtype = getattr(torch, name, None)
    return dtype if isinstance(dtype, torch.dtype) else torch.int8


class _Opaque(torch.autograd.Function):
    """Makes its results, saves all inputs and results, and makes a gradient for each input."""

    @staticmethod
    def forward(ctx: Any, call: NodeCall, *inputs: Tensor | None) -> Any:
        device = next((x.device for x in inputs if x is not None), torch.device("cpu"))
        results = tuple(
            torch.empty(shape, dtype=torch_dtype(dtype), device=device)
            for shape, dtype in zip(call.shapes, call.dtypes, strict=True)
        )
        ctx.mark_non_differentiable(*(x for x in results if not x.is_floating_point()))
        ctx.save_for_backward(*(x for x in inputs if x is not None), *results)
        ctx.needs = tuple(x is not None and x.is_floating_point() for x in inputs)
        ctx.present = tuple(x is not None for x in inputs)
        return results[0] if len(results) == 1 else results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: ARG004
        saved = iter(ctx.saved_tensors)
        inputs = [next(saved) if present else None for present in ctx.present]
        return (
            None,
            *(
                torch.empty_like(x) if need and x is not None else None
                for x, need in zip(inputs, ctx.needs, strict=True)
            ),
        )


def opaque(call: NodeCall, *inputs: Tensor | None) -> Results:
    """Return results of the recorded shapes for any operator: an upper bound on what it saves."""
    return _Opaque.apply(call, *inputs)  # type: ignore[no-untyped-call,no-any-return]


Function: TypeAlias = Callable[..., Results]
FUNCTIONS: dict[tuple[str, str], Function] = {}


def lowers(*names: str, domain: str = "") -> Callable[[Function], Function]:
    """Register a function as the PyTorch code of these ONNX operators."""

    def register(function: Function) -> Function:
        for name in names:
            FUNCTIONS[domain, name] = function
        return function

    return register


# Operators whose inputs from a position on are settings: read from constants, no tensors in PyTorch either.
_FROM_THE_SECOND = """
    Clip CumSum Dropout Expand Pad ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare Reshape Resize Slice Split Squeeze Tile TopK Trilu Unsqueeze Upsample
"""
SETTINGS = dict.fromkeys(_FROM_THE_SECOND.split(), 1)
