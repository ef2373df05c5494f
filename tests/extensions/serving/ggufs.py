"""GGUF headers made for tests."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

Value = str | int | list[str]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value_of(value: Value) -> bytes:
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))


def header(
    values: Mapping[str, Value], tensors: Mapping[str, tuple[tuple[int, ...], int, int]], version: int = 3
) -> bytes:
    """tensors: shape, type and offset, by name."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    keys = b"".join(text(key) + value_of(value) for key, value in values.items())
    rows = b"".join(
        text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        for name, (shape, kind, offset) in tensors.items()
    )
    return head + keys + rows


SMALL = header(
    {"general.architecture": "llama", "llama.block_count": 2, "tokenizer.ggml.tokens": ["a", "b", "c"]},
    {"token_embd.weight": ((256, 3), 12, 0), "output_norm.weight": ((256,), 0, 448)},
)


def written(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path
