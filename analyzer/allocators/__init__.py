"""Allocator simulators, one a file, behind one small protocol (`base.Allocator`)."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from analyzer.allocators.base import Allocator, OutOfMemoryError
from analyzer.errors import OptionError

__all__ = ["Allocator", "OutOfMemoryError", "create", "names"]


def _pytorch(**settings: Any) -> Allocator:
    from analyzer.allocators import pytorch

    return pytorch.create(**settings)


_MAKERS: dict[str, Callable[..., Allocator]] = {"pytorch": _pytorch}


def names() -> tuple[str, ...]:
    """The names `create` knows."""
    return tuple(sorted(_MAKERS))


def create(name: str, **settings: Any) -> Allocator:
    """A new simulator of the allocator `name`, its settings by the names its framework gives them.

    Raises OptionError for an unknown name, an unknown setting or a value the framework would refuse.
    """
    if name not in _MAKERS:
        near = difflib.get_close_matches(name, _MAKERS, n=1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        raise OptionError(f"unknown allocator {name!r}", f"{guess}known allocators: {', '.join(names())}")
    return _MAKERS[name](**settings)
