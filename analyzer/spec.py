"""`TensorSpec`: an input described by shape and element type, when there is no tensor to show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """shape in elements; dtype by name ("float32"); stride in elements, contiguous when None."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    stride: tuple[int, ...] | None = None
