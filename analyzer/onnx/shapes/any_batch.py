"""Every value's shape at a batch of any size, beside the shape ONNX Runtime sees before it knows the batch.

1. Inputs are bound (`bind`), then shapes are inferred twice (`infer`): at the batch, and with the file's own
   dimension names, as ONNX Runtime's planner has them when a session is created.
2. ONNX's inference computes in 64-bit integers. Above `LARGEST_DIRECT` the shapes are inferred at four small
   batches instead and each dimension continued as a polynomial of degree two at most in Python integers
   (Newton's forward differences); the fourth batch must confirm it. The small batches are multiples of 5040,
   so that the divisions by small numbers that models make come out even.
3. Where an input's size differs from the one the file fixes (a hard-coded batch), its declared shapes are
   void, and ONNX Runtime is taken to see plain numbers, as after an export with that size.
4. Shapes the file declares wrongly are noted and ignored, as ONNX Runtime does (`MergeShapeInfo` in
   `graph.cc` merges leniently); a wrongly declared element type is an error, there too.

Not modelled: dimensions that are no polynomial of the batch above `LARGEST_DIRECT` (an error, named).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from analyzer.errors import InputError, TargetError
from analyzer.onnx.node import node_name
from analyzer.onnx.shapes.bind import Binding, Described, bind
from analyzer.onnx.shapes.infer import Inferred, infer
from analyzer.onnx.shapes.native import Context
from analyzer.onnx.structure import OVERRIDABLE_IR, Structure
from analyzer.onnx.types import ValueType, display, display_shape

LARGEST_DIRECT = 1 << 20
_PROBE = 5040


@dataclass(frozen=True, slots=True)
class Shapes:
    """`actual`: types at the batch, all known. `symbolic`: types as ONNX Runtime knows them when it plans."""

    actual: Inferred
    symbolic: Inferred
    binding: Binding


def infer_shapes(
    structure: Structure,
    model: Any,
    batch: int | None,
    described: Described | None,
    folder: Path | None,
    values: Mapping[str, float] = MappingProxyType({}),
    assume: Mapping[str, bool] = MappingProxyType({}),
    like: Shapes | None = None,
) -> Shapes:
    """Infer all shapes (rules of the module). Raises InputError for unbound or contradictory ones.

    like: those of the same model at another batch, and with the same values and assumptions.
    """
    # ONNX Runtime looks for a kernel of its own operators also where the file does not import their domain.
    opsets = {"com.microsoft": 1, **{entry.domain: entry.version for entry in model.opset_import}}
    binding = bind(structure.inputs, batch, described)
    # Before IR version 4 ONNX's inference reads only initializers that are inputs as well; this structure
    # keeps them apart.
    ir_version = max(model.ir_version, OVERRIDABLE_IR)
    common = Context(opsets, ir_version, folder, rebound=binding.hard_coded, assumed=assume)

    def at(size: int | None) -> Inferred:
        bound = binding if size == batch else bind(structure.inputs, size, described)
        return infer(
            structure, bound.inputs, replace(common, symbols=bound.symbols, batch=size, numbers=values)
        )

    if batch is None or batch <= LARGEST_DIRECT:
        actual = at(batch)
    else:
        actual = _continued([at(_PROBE * k) for k in (1, 2, 3, 4)], batch)
    if _refitted(structure, binding):
        return Shapes(actual, actual, binding)
    _check_declared(structure, actual, binding)
    seen_inputs = _seen_inputs(structure, binding)
    if (
        like is not None
        and like.symbolic is not like.actual
        and _seen_inputs(structure, like.binding) == seen_inputs
    ):
        return Shapes(actual, like.symbolic, binding)
    return Shapes(actual, infer(structure, seen_inputs, replace(common, symbolic=True)), binding)


def _seen_inputs(structure: Structure, binding: Binding) -> dict[str, ValueType]:
    """Return the inputs' types as ONNX Runtime sees them: as the file declares them, if it does."""
    return {
        name: value if value.shape is not None else binding.inputs[name]
        for name, value in structure.inputs.items()
    }


def _refitted(structure: Structure, binding: Binding) -> bool:
    """Return whether an input has another size than the file fixes: its own shapes then say nothing."""
    for name, value in structure.inputs.items():
        actual = binding.inputs[name].shape
        if value.shape is not None and actual is not None:
            pairs = zip(value.shape, actual, strict=True)
            if any(isinstance(size, int) and size != bound for size, bound in pairs):
                return True
    return False


def _check_declared(structure: Structure, actual: Inferred, binding: Binding) -> None:
    """Note where the file declares other shapes than inferred, which are ignored.

    Raises TargetError for another element type.
    """
    wrong = []
    for name, declared in structure.declared.items():
        value = actual.types.get(name)
        if (
            value is None
            or name not in structure.producers
            or declared.kind != "tensor"
            or value.kind != "tensor"
        ):
            continue
        if declared.dtype and value.dtype and declared.dtype != value.dtype:
            raise TargetError(
                f"{node_name(structure.producers[name])} makes {value.dtype}, but the file declares"
                f" {declared.dtype}",
                "the file contradicts itself: export the model again",
            )
        if declared.shape is None or value.shape is None or name in actual.inexact:
            continue
        bound = [
            binding.symbols.get(size, size) if isinstance(size, str) else size for size in declared.shape
        ]
        if len(bound) != len(value.shape) or any(
            isinstance(size, int) and size != inferred
            for size, inferred in zip(bound, value.shape, strict=True)
        ):
            wrong.append(
                f"{display(name)} as {display_shape(declared.shape)}, it is {display_shape(value.shape)}"
            )
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        actual.notes.append(f"the file declares wrong shapes, ignored: {'; '.join(wrong[:3])}{more}")


def _continued(probes: list[Inferred], batch: int) -> Inferred:
    """Return the types at `batch`: polynomials through 1, 2, 3 and 4 times `_PROBE`."""
    last = probes[-1]
    result = Inferred(
        {}, [note + f" (at batch {_PROBE * len(probes)})" for note in last.notes], inexact=last.inexact
    )
    for name, value in last.types.items():
        types = [probe.types.get(name) for probe in probes]
        if all(item is not None and item.shape is None for item in types):
            result.types[name] = value
            continue
        shapes = [item.shape for item in types if item is not None and item.shape is not None]
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
    """Return the dimension at `batch` by Newton's forward differences over multiples of `_PROBE`."""
    values = [size for size in sizes if isinstance(size, int)]
    first = [b - a for a, b in pairwise(values)]
    second = [b - a for a, b in pairwise(first)]
    if len(values) != len(sizes) or len(set(second)) != 1:
        raise InputError(
            f"a dimension of {display(name)!r} is no polynomial of the batch: {list(values)} at {_PROBE} x"
            " (1, 2, 3, 4)",
            f"use a batch up to {LARGEST_DIRECT}",
        )
    # With t = batch / _PROBE - 1: value = v0 + t * d1 + t * (t - 1) / 2 * d2, rounded up.
    excess = batch - _PROBE
    numerator = (
        2 * _PROBE**2 * values[0] + 2 * _PROBE * excess * first[0] + excess * (excess - _PROBE) * second[0]
    )
    return -(-numerator // (2 * _PROBE**2))
