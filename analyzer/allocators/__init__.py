"""Allocator simulators, one a file, behind one small protocol (`base.Allocator`)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from analyzer.allocators.base import Allocator, OutOfMemoryError
from analyzer.errors import OptionError, did_you_mean

__all__ = ["Allocator", "OutOfMemoryError", "create", "names"]

# name -> (module here, its function that makes one). Imported when asked for.
_MAKERS = {
    "pytorch": ("pytorch.create", "create"),
    "onnxruntime_bfc": ("onnxruntime_bfc", "create"),
    "tensorflow_bfc": ("tensorflow_bfc", "create"),
    "paddle_auto_growth": ("paddle", "create_auto_growth"),
    "paddle_naive_best_fit": ("paddle", "create_naive_best_fit"),
}


def names() -> tuple[str, ...]:
    """Return the allocator names that `create` accepts, sorted."""
    return tuple(sorted(_MAKERS))


def create(name: str, **settings: Any) -> Allocator:
    """Return a new simulator of the allocator `name`, its settings by the names its framework gives them.

    Raises OptionError for an unknown name, an unknown setting or a value the framework would refuse.
    """
    if name not in _MAKERS:
        raise OptionError(
            f"unknown allocator {name!r}",
            f"{did_you_mean(name, _MAKERS)}known allocators: {', '.join(names())}",
        )
    module, function = _MAKERS[name]
    allocator: Allocator = getattr(import_module(f"{__name__}.{module}"), function)(**settings)
    return allocator
