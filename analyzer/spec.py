"""`TensorSpec`: an input described by shape and element type, when there is no tensor to show."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.errors import InputError


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """shape in elements; dtype by name ("float32"); stride in elements, contiguous when None."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    stride: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Raises InputError for sizes that are none, and for an element type that is no name."""
        if not all(hasattr(size, "__index__") and size >= 0 for size in self.shape):
            raise InputError(f"a shape is {self.shape!r}", "give whole numbers of at least 0")
        if not isinstance(self.dtype, str):
            raise InputError(f"an element type is {self.dtype!r}", 'give its name, such as "float32"')
