"""Every value's shape at a batch of any size, beside the shape ONNX Runtime sees before it knows the batch.

1. Inputs are bound (`onnx_bind`), then shapes are inferred twice (`onnx_infer`): at the batch, and with the file's own
   dimension names, as ONNX Runtime's planner has them when a session is created.
2. ONNX's inference computes in 64-bit integers. Above `LARGEST_DIRECT` the shapes are inferred at four small batches
   instead and each dimension continued as a polynomial of degree two at most in Python integers (Newton's forward
   differences); the fourth batch must confirm it. The small batches are multiples of 5040, so that the divisions by
   small numbers that models make come out even.

Not modelled: dimensions that are no polynomial of the batch above `LARGEST_DIRECT` (an error, named).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from analyzer.capture.onnx_bind import Binding, Described, bind
from analyzer.capture.onnx_infer import Context, Inferred, infer
from analyzer.capture.onnx_structure import Structure
from analyzer.capture.onnx_types import ValueType, display
from analyzer.errors import InputError

LARGEST_DIRECT = 1 << 20
_PROBE = 5040


@dataclass(frozen=True, slots=True)
class Shapes:
    """`actual`: types at the batch, all known. `seen`: types as ONNX Runtime sees them when it plans."""

    actual: Inferred
    seen: Inferred
    binding: Binding


def infer_shapes(
    structure: Structure, model: Any, batch: int | None, described: Described | None, folder: Path | None
) -> Shapes:
    """Shapes of every value (rules of the module docstring). Raises InputError for what cannot be bound or contradicts."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    binding = bind(structure.inputs, batch, described)
    seen_inputs = dict(structure.inputs if binding.hard_coded is None else binding.inputs)
    for name in described or {}:
        if structure.inputs[name].shape is None:
            seen_inputs[name] = binding.inputs[name]
    seen = infer(
        structure,
        seen_inputs,
        Context(opsets, model.ir_version, folder, symbolic=True, rebound=binding.hard_coded),
    )

    def at(size: int | None) -> Inferred:
        bound = binding if size == batch else bind(structure.inputs, size, described)
        context = Context(
            opsets, model.ir_version, folder, symbols=bound.symbols, rebound=bound.hard_coded, batch=size
        )
        return infer(structure, bound.inputs, context)

    if batch is None or batch <= LARGEST_DIRECT:
        return Shapes(at(batch), seen, binding)
    return Shapes(_continued([at(_PROBE * k) for k in (1, 2, 3, 4)], batch), seen, binding)


def _continued(probes: list[Inferred], batch: int) -> Inferred:
    """The types at `batch`, continued from those at 1, 2, 3 and 4 times `_PROBE` (rule 2)."""
    last = probes[-1]
    result = Inferred(
        {}, [note + f" (at batch {_PROBE * len(probes)})" for note in last.notes], inexact=last.inexact
    )
    for name, value in last.types.items():
        known = [probe.types.get(name) for probe in probes]
        shapes = [item.shape for item in known if item is not None and item.shape is not None]
        if value.shape is None or len({len(shape) for shape in shapes}) != 1 or len(shapes) != len(probes):
            raise InputError(
                f"the rank of {display(name)!r} depends on the batch", f"use a batch up to {LARGEST_DIRECT}"
            )
        shape = tuple(_polynomial(name, column, batch) for column in zip(*shapes, strict=True))
        result.types[name] = ValueType(value.dtype, shape, value.kind, value.proto)
    for place, inner in last.children.items():
        result.children[place] = {
            attribute: _continued([probe.children[place][attribute] for probe in probes], batch)
            for attribute in inner
            if all(attribute in probe.children.get(place, {}) for probe in probes)
        }
    result.chosen = last.chosen
    return result


def _polynomial(name: str, sizes: tuple[int | str, ...], batch: int) -> int:
    """The dimension at `batch` by Newton's forward differences over multiples of `_PROBE`."""
    values = [size for size in sizes if isinstance(size, int)]
    first = [b - a for a, b in pairwise(values)]
    second = [b - a for a, b in pairwise(first)]
    if len(values) != len(sizes) or len(set(second)) != 1:
        raise InputError(
            f"a dimension of {display(name)!r} is no polynomial of the batch: {list(values)} at {_PROBE} x (1, 2, 3, 4)",
            f"use a batch up to {LARGEST_DIRECT}",
        )
    # With t = batch / _PROBE - 1: value = v0 + t * d1 + t * (t - 1) / 2 * d2, rounded up.
    excess = batch - _PROBE
    numerator = (
        2 * _PROBE**2 * values[0] + 2 * _PROBE * excess * first[0] + excess * (excess - _PROBE) * second[0]
    )
    return -(-numerator // (2 * _PROBE**2))
