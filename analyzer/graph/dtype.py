"""Element types by name, and how many bits one element takes.

Names are PyTorch's without the prefix (`float32`, `bfloat16`), which NumPy and ONNX share but for a few
aliases.
Source: the element-type enumerations of torch (`c10/core/ScalarType.h`) and ONNX (`onnx.proto`,
`TensorProto.DataType`).
"""

from __future__ import annotations

from analyzer.tables import by_name

_NAMES_BY_BITS = {
    2: "int2 uint2 quint2x4",
    4: "int4 uint4 quint4x2 float4_e2m1",
    8: "bool int8 uint8 qint8 quint8 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz"
    " float8_e8m0fnu float4_e2m1fn_x2",
    16: "int16 uint16 float16 bfloat16",
    32: "int32 uint32 qint32 float32 complex32",
    64: "int64 uint64 float64 complex64",
    128: "complex128",
    256: "string",  # a `std::string` on the host: 32 bytes on 64-bit libstdc++
}
BITS = by_name(_NAMES_BY_BITS)

# Short names people use on a command line.
_SHORT = {
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "float": "float32",
    "fp64": "float64",
    "double": "float64",
}


def full_name(name: str) -> str:
    """Return the element type's own name for a short one ("fp16"); any other name as it is."""
    return _SHORT.get(name, name)


def dtype_bits(dtype: str) -> int:
    """Bits one element of `dtype` takes. Raises KeyError for a name that is no element type."""
    return BITS[dtype]


def dtype_bytes(dtype: str) -> int:
    """Return the bytes one element of `dtype` takes, at least 1 (packed types: see `nbytes_of`)."""
    return max(1, BITS[dtype] // 8)


def nbytes_of(element_count: int, dtype: str) -> int:
    """Return the bytes `element_count` elements take, packed types rounded up to whole bytes."""
    return -(-element_count * BITS[dtype] // 8)
