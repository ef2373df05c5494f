"""Element types, value types and names of an ONNX file, as the rest of the project writes them.

1. A **value type** is an element type by name and a shape whose dimensions are integers (known), names
   ("batch") or "" (unknown); shape None means even the rank is unknown.
2. A **sequence** (or optional, or map) has no shape: `shape` then is the number of elements held in all, and
   `proto` keeps the declared type for inference.
3. Names come from a file nobody checked: `display` makes them safe to print.

Source: `onnx.proto` (`TensorProto.DataType`, `TypeProto`, `TensorShapeProto`), onnx 1.23.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, cast

Dim: TypeAlias = "int | str"
Shape: TypeAlias = "tuple[Dim, ...]"

# `TensorProto.DataType` from number 1 on; the names are those of `analyzer.graph.dtype`.
_DTYPES = """
    float32 uint8 int8 uint16 int16 int32 int64 string bool float16 float64 uint32 uint64 complex64 complex128
    bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz uint4 int4 float4_e2m1 float8_e8m0fnu
    uint2 int2
"""
DTYPES = dict(enumerate(_DTYPES.split(), start=1))
ELEMENT_TYPES = {name: number for number, name in DTYPES.items()}

_LONGEST_NAME = 160
_MOST_SIZES = 64


@dataclass(frozen=True, slots=True)
class ValueType:
    """Known type and shape of a value. dtype "" means unknown."""

    dtype: str
    shape: Shape | None
    kind: str = "tensor"
    proto: Any = None

    @property
    def known(self) -> bool:
        """Whether the element type and every dimension are known as integers."""
        return bool(self.dtype) and self.sizes is not None

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The shape if every dimension is an integer, otherwise None."""
        if self.shape is None:
            return None
        for size in self.shape:  # no generator: this is asked some ten times a value
            if not isinstance(size, int):
                return None
        return cast("tuple[int, ...]", self.shape)


def element_count(sizes: tuple[int, ...]) -> int:
    """Number of elements of a shape, as a Python integer of any size."""
    count = 1
    for size in sizes:
        count *= size
    return count


def from_type_proto(proto: Any) -> ValueType:
    """Return the value type of a `TypeProto` (anything but a dense or sparse tensor: its kind, no shape)."""
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, kind)
        shape = shape_of(tensor.shape) if tensor.HasField("shape") else None
        return ValueType(DTYPES.get(tensor.elem_type, ""), shape)
    if kind is None:
        return ValueType("", None)
    return ValueType(_element_dtype(proto), None, kind.removesuffix("_type"), proto)


def _element_dtype(proto: Any) -> str:
    """Return the element type inside nested sequences and optionals; "" for maps and unknown types."""
    for _ in range(64):
        kind = proto.WhichOneof("value")
        if kind in ("tensor_type", "sparse_tensor_type"):
            return DTYPES.get(getattr(proto, kind).elem_type, "")
        if kind not in ("sequence_type", "optional_type"):
            return ""
        proto = getattr(proto, kind).elem_type
    return ""


def shape_of(proto: Any) -> Shape:
    """Dimensions of a `TensorShapeProto`: a negative size counts as unknown, as exporters mean it."""
    return tuple(
        (dim.dim_value if dim.dim_value >= 0 else "") if dim.HasField("dim_value") else dim.dim_param
        for dim in proto.dim
    )


def to_type_proto(value: ValueType) -> Any:
    """Return the `TypeProto` of a value type, for inference."""
    import onnx

    if value.proto is not None:
        return value.proto
    proto = onnx.TypeProto()
    proto.tensor_type.elem_type = ELEMENT_TYPES.get(value.dtype, 0)
    if value.shape is not None:
        proto.tensor_type.shape.SetInParent()
        for size in value.shape:
            dim = proto.tensor_type.shape.dim.add()
            if isinstance(size, int) and size < 1 << 63:
                dim.dim_value = size
            elif isinstance(size, str) and size:
                dim.dim_param = size
    return proto


def display(name: str) -> str:
    """Return a printable name: control characters escaped, the middle of a long one omitted."""
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME // 2]}...{name[-_LONGEST_NAME // 4 :]}"
    return name if name.isprintable() else name.encode("unicode_escape", "backslashreplace").decode("ascii")


def display_shape(shape: Shape | None) -> str:
    """Return a shape for messages: [64, "?", batch]; of an endless one the beginning."""
    if shape is None:
        return "?"
    sizes = [display(str(size)) or "?" for size in shape[:_MOST_SIZES]]
    return "[" + ", ".join([*sizes, *(["..."] if len(shape) > _MOST_SIZES else [])]) + "]"
