"""Nested batches: tensors in dictionaries, lists and tuples, with None and plain values among them.

A tensor is anything with a shape (`TensorSpec` too). An object that is no tensor and holds none stays in its
place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def tensors_in(structure: Any) -> Iterator[Any]:
    """Yield the tensors, in the order in which a batch is moved: that of its keys and places."""
    if hasattr(structure, "shape"):
        yield structure
    elif isinstance(structure, Mapping):
        for part in structure.values():
            yield from tensors_in(part)
    elif isinstance(structure, list | tuple):
        for part in structure:
            yield from tensors_in(part)


def with_tensors(structure: Any, tensors: Iterator[Any]) -> Any:
    """Return the structure with other tensors; other mappings (a tokenizer's) become dicts."""
    if hasattr(structure, "shape"):
        return next(tensors)
    if isinstance(structure, Mapping):
        return {name: with_tensors(part, tensors) for name, part in structure.items()}
    if isinstance(structure, list | tuple):
        parts = [with_tensors(part, tensors) for part in structure]
        if isinstance(structure, list):
            return parts
        return type(structure)(*parts) if hasattr(structure, "_fields") else tuple(parts)
    return structure


def strangers_in(structure: Any) -> Iterator[Any]:
    """Yield values that are no tensor, container of tensors, None or plain value."""
    if isinstance(structure, Mapping | list | tuple):
        for part in structure.values() if isinstance(structure, Mapping) else structure:
            if not isinstance(part, bool | int | float | str):
                yield from strangers_in(part)
    elif structure is not None and not hasattr(structure, "shape"):
        yield structure
