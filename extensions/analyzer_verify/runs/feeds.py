"""Inputs for a run of an ONNX file that nobody gave any: values that suit the model.

1. Floating-point inputs are random, also those of types NumPy lacks (bfloat16, the eight-bit floats).
2. Integers are 1: a valid token, mask, length and count. Where one is used as an index into something with a
   single place, straight or through operators that only move or cast it, it is 0. Strings are "a".
3. A number that was said (`--value`) is what a scalar input holds, and arrays in a file (`--inputs FILE.npz`)
   are used as they are, if they are of the model's types.

Not modelled: integers that must differ from each other or be sorted, types of less than a byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analyzer.errors import InputError
from analyzer.graph.dtype import dtype_bits
from analyzer.onnx.types import ELEMENT_TYPES
from analyzer.report.words import clean
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph

# Operators that hand integers on as they are: input 0 is what they move.
_MOVING_OPS = (
    "Cast Identity Reshape Squeeze Unsqueeze Flatten Transpose Slice Expand Tile Split Gather Concat"
    " MemcpyFromHost MemcpyToHost"
)
_MOVING = frozenset(_MOVING_OPS.split())
# Operators with an index input -> its place, and that of what it points into.
_SECOND_INDEXES_FIRST = (
    "Gather GatherElements GatherND ScatterElements ScatterND Scatter NegativeLogLikelihoodLoss"
    " SoftmaxCrossEntropyLoss"
)
_INDEXED = {**dict.fromkeys(_SECOND_INDEXES_FIRST.split(), (1, 0)), "EmbedLayerNormalization": (0, 2)}


@dataclass(frozen=True, slots=True)
class Feed:
    """One input: shape, type, and the value of its elements (None: random)."""

    shape: tuple[int, ...]
    dtype: str
    fill: float | None = None


def feeds(graph: RuntimeGraph, values: Mapping[str, float]) -> dict[str, Feed]:
    """Return what to feed each input. values: the user's. Raises InputError for an unknown shape."""
    by_input = {}
    for name in graph.inputs:
        value = graph.values[name]
        if value.shape is None:
            raise InputError(
                f"the shape of input {clean(name)} is not known",
                f"give --input {clean(name)}=...; with --batch",
            )
        fill: float | None = None
        if name in values:
            fill = values[name]
        elif "float" not in value.dtype and not value.dtype.startswith("complex"):
            fill = 0 if _points_into_one(graph, name) else 1
        by_input[name] = Feed(tuple(value.shape), value.dtype, fill)
    return by_input


def plain(feeds_by_input: Mapping[str, Feed]) -> dict[str, Any]:
    """Return the feeds as plain values for a job file."""
    return {name: asdict(feed) for name, feed in feeds_by_input.items()}


def arrays(described: Mapping[str, Any], generator: np.random.Generator) -> dict[str, Any]:
    """Return the arrays of feeds written by `plain`."""
    return {
        name: _array(Feed(tuple(d["shape"]), d["dtype"], d["fill"]), generator)
        for name, d in described.items()
    }


def sample(feed: Feed) -> Any:
    """Return an array without elements, of the feed's type."""
    return np.empty(0, dtype=object if feed.dtype == "string" else _numpy(feed.dtype))


def saved(path: Path) -> dict[str, Any]:
    """Return the arrays of an .npz file. Raises InputError for other files."""
    try:
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, AttributeError) as error:
        raise InputError(
            f"{clean(path)} is no file of arrays: {clean(error)}",
            "write it with numpy.savez(FILE, input_name=array, ...)",
        ) from None


def typed(arrays: Mapping[str, Any], wanted: Mapping[str, str]) -> dict[str, Any]:
    """Return arrays in the model's types. wanted: input -> type. Raises InputError for others.

    NumPy writes types it lacks as bytes without a name: they are taken to be the model's if the size is.
    """
    by_input = {}
    for name, array in arrays.items():
        if name not in wanted:
            raise InputError(
                f"the model has no input {clean(name)}",
                f"its inputs are: {', '.join(map(clean, wanted)) or 'none'}",
            )
        dtype = wanted[name]
        if dtype == "string" and array.dtype.kind in "SU":
            by_input[name] = array.astype(object)
        elif array.dtype.kind == "V" and array.dtype.itemsize * 8 == dtype_bits(dtype):
            by_input[name] = array.view(_numpy(dtype))
        elif dtype == "string" or array.dtype != _numpy(dtype):
            raise InputError(
                f"input {clean(name)} takes {dtype}, the file holds {array.dtype}",
                "save it in the model's type",
            )
        else:
            by_input[name] = array
    return by_input


def _array(feed: Feed, generator: np.random.Generator) -> Any:
    if feed.dtype == "string":
        return np.full(feed.shape, "a", dtype=object)
    if feed.fill is not None:
        return np.full(feed.shape, feed.fill).astype(_numpy(feed.dtype))
    return generator.standard_normal(feed.shape).astype(_numpy(feed.dtype))


def _numpy(dtype: str) -> np.dtype[Any]:
    """NumPy's type, or ml_dtypes' where NumPy has none. Raises InputError for types of less than a byte."""
    import onnx

    if dtype_bits(dtype) % 8:
        raise InputError(
            f"inputs of type {dtype} cannot be made", "export the model with inputs of whole bytes"
        )
    numpy_type: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(ELEMENT_TYPES[dtype]))
    return numpy_type


def _points_into_one(graph: RuntimeGraph, name: str) -> bool:
    """Return whether an input, also moved or cast, indexes a dimension of size one."""
    readers = graph.consumers()
    queue, visited = [name], {name}
    while queue:
        value = queue.pop()
        for node in readers.get(value, ()):
            if node.op in _INDEXED:
                index, data = _INDEXED[node.op]
                if len(node.inputs) > max(index, data) and node.inputs[index] == value:
                    shape = graph.values[node.inputs[data]].shape or ()
                    if any(shape[axis] < 2 for axis in _pointed(node.op, node.attributes, shape)):
                        return True
            if node.op in _MOVING and (node.inputs[0] == value or node.op == "Concat"):
                fresh = [item for item in node.outputs if item and item not in visited]
                visited.update(fresh)
                queue += fresh
    return False


def _pointed(op: str, attributes: Mapping[str, Any], shape: tuple[int, ...]) -> list[int]:
    """Return the dimensions an operator's indices point into; all of them where that depends."""
    if not shape:
        return []
    if op in ("Gather", "GatherElements", "ScatterElements", "Scatter"):
        return [int(attributes.get("axis", 0)) % len(shape)]
    if op.endswith("Loss"):
        return [min(1, len(shape) - 1)]
    return [0] if op == "EmbedLayerNormalization" else list(range(len(shape)))
