"""Small models to be damaged: one for each thing an ONNX file can hold, and the converted ones the onnx package carries.

All of them are sound. They are small, so that a damaged one takes milliseconds: what goes wrong is in what a file says, not
in how much of it there is.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper, parser

from analyzer.graph import nbytes_of
from analyzer.onnx.types import DTYPES

_LARGEST_BYTES = 5_000
WEIGHTS = "weights.bin"  # the file of external data beside every model
# A weight of 16 numbers, and the shape [-1, 2, 2].
WEIGHTS_DATA = bytes(64) + b"\xff" * 8 + b"\2\0\0\0\0\0\0\0" * 2

# Name -> (version of the operator set, text of a graph and of the functions it calls).
_TEXTS: dict[str, tuple[int, str]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
_IMPORTS = ("local", "my", "com.microsoft", "ai.onnx.contrib", "ai.onnx.ml")


@dataclass(frozen=True, slots=True)
class Base:
    """A sound model: its name and its bytes."""

    name: str
    data: bytes

    def model(self) -> Any:
        """A fresh `onnx.ModelProto` of it."""
        return onnx.ModelProto.FromString(self.data)


@cache
def bases() -> tuple[Base, ...]:
    """Every model to start from, in a fixed order."""
    found = [Base(name, _text(*text).SerializeToString()) for name, text in _TEXTS.items()]
    found += [Base("old", _old().SerializeToString()), Base("external", _external().SerializeToString())]
    found.append(Base("sparse", _sparse().SerializeToString()))
    carried = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for kind in ("simple", "pytorch-operator", "pytorch-converted"):
        for path in sorted((carried / kind).glob("*/model.onnx")):
            if path.stat().st_size <= _LARGEST_BYTES:
                found.append(Base(path.parent.name, path.read_bytes()))
    return tuple(found)


def digest() -> str:
    """Which models these are: another onnx package may carry others, and then the same seed is another file."""
    return hashlib.sha256(b"".join(base.data for base in bases())).hexdigest()[:16]


def _text(opset: int, text: str) -> Any:
    imports = ", ".join(f'"{domain}" : 1' for domain in _IMPORTS)
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, {imports}]> {text}')
    _weighted(model.graph)
    return model


def _weighted(graph: Any) -> None:
    """What the text names between <> without a value is a weight of zeros."""
    made = {name for node in graph.node for name in node.output}
    for info in [item for item in graph.value_info if item.name not in made]:
        kind = info.type.tensor_type.elem_type
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        tensor = graph.initializer.add(name=info.name, data_type=kind, dims=dims)
        tensor.raw_data = bytes(nbytes_of(math.prod(dims), DTYPES[kind]))
        graph.value_info.remove(info)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _weighted(attribute.g)


def _old() -> Any:
    """A file of 2018: IR version 3, every weight an input as well."""
    model = _text(8, _TEXTS["normalised"][1])
    model.ir_version = 3
    del model.opset_import[1:]
    for tensor in model.graph.initializer:
        model.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        )
    return model


def _external() -> Any:
    """Weights, and a shape, in a file beside the model."""
    model = _text(
        18,
        "g (float[N,4] x) => (float[N,2,2] y) <float[4,4] w> { m = MatMul(x, w) y = Reshape(m, s) }",
    )
    del model.graph.initializer[:]
    place = 0
    for name, kind, dims, length in (("w", TensorProto.FLOAT, [4, 4], 64), ("s", TensorProto.INT64, [3], 24)):
        tensor = model.graph.initializer.add(name=name, data_type=kind, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", WEIGHTS), ("offset", place), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        place += length
    return model


def _sparse() -> Any:
    """A weight of which only some values are stored."""
    model = _text(18, "g (float[N,4] x) => (float[N,4] y) { y = MatMul(x, w) }")
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("w_indices", TensorProto.INT64, [2], [1, 6])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4, 4]))
    return model
