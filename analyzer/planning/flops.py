"""Floating-point operations of a captured program, as torch counts them (`torch.utils.flop_counter`).

Matrix products, convolutions and attention are counted, forward and backward; everything else is small beside
them.

Not modelled: operators torch has no formula for count as none.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from analyzer.analysis import Analysis
from analyzer.graph import Argument, Graph, Operator, TensorMeta
from analyzer.options import Options


def flops(graph: Graph) -> int:
    """Return the floating-point operations of all operators of a PyTorch program."""
    return sum(map(flops_of, graph.operators))


def flops_a_sample(analysis: Analysis, options: Options) -> float:
    """Return the floating-point operations per sample and step; 0 if unknown (extrapolated tokens)."""
    if analysis.graph.framework != "pytorch" or options.mode == "generate":
        return 0.0
    return flops(analysis.graph) / ((analysis.graph.batch or 1) * options.grad_accumulation)


def flops_of(operator: Operator) -> int:
    """Return the floating-point operations of one operator."""
    namespace, _, name = operator.name.partition("::")
    formula = _formula(namespace, name.partition(".")[0])
    if formula is None:
        return 0
    shapes = tuple(_shape(output) for output in operator.outputs)
    keywords = {key: _shape(value) for key, value in operator.keywords.items()}
    out = shapes[0] if len(shapes) == 1 else shapes
    return int(formula(*map(_shape, operator.arguments), **keywords, out_val=out))


@cache
def _formula(namespace: str, name: str) -> Any:
    """torch's own, None where it has none."""
    import torch
    from torch.utils.flop_counter import flop_registry

    return flop_registry.get(getattr(getattr(torch.ops, namespace, None), name, None))


def _shape(value: Argument) -> Any:
    if isinstance(value, TensorMeta):
        return value.shape
    return tuple(map(_shape, value)) if isinstance(value, tuple) else value
