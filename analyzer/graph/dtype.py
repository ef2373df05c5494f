"""Element types by name, and how many bits one element takes.

Names are PyTorch's without the prefix (`float32`, `bfloat16`), which NumPy and ONNX share but for a few
aliases.
Source: the element-type enumerations of torch (`c10/core/ScalarType.h`) and ONNX (`onnx.proto`,
`TensorProto.DataType`).
"""

from __future__ import annotations

BITS = {
    "bool": 8,
    "uint8": 8, "int8": 8, "uint16": 16, "int16": 16, "uint32": 32, "int32": 32, "uint64": 64, "int64": 64,
    "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64,
    "complex32": 32, "complex64": 64, "complex128": 128,
    "float8_e4m3fn": 8, "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8,
    "qint8": 8, "quint8": 8, "qint32": 32, "quint4x2": 4, "quint2x4": 2,
    "int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn_x2": 8, "float4_e2m1": 4,
    # A string in a tensor is a `std::string` on the host: 32 bytes on 64-bit libstdc++.
    "string": 256,
}  # fmt: skip

# Short names people use on a command line.
_SHORT = {
    "fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32",
    "fp64": "float64", "double": "float64",
}  # fmt: skip


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
