"""Calls written by hand or recorded: with the names PyTorch's schemas give their arguments, as a capture has them."""

from __future__ import annotations

import functools
from typing import Any

import torch

from analyzer.graph import Operator


@functools.cache
def _overloads() -> dict[str, tuple[tuple[str, ...], ...]]:
    """Every schema's names of its arguments, under its name with and without the overload."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for schema in torch._C._jit_get_all_schemas():
        names = tuple(argument.name for argument in schema.arguments)
        for name in {schema.name, f"{schema.name}.{schema.overload_name or 'default'}"}:
            # The plain one answers for a name without an overload.
            found.setdefault(name, []).insert(0 if not schema.overload_name else 1, names)
    return {name: tuple(schemas) for name, schemas in found.items()}


def called(index: int, name: str, arguments: tuple[Any, ...], *rest: Any, **fields: Any) -> Operator:
    """An `Operator`, with the names of the first overload that takes so many arguments; without, where PyTorch has none."""
    fitting = (names for names in _overloads().get(name, ()) if len(names) >= len(arguments))
    return Operator(index, name, arguments, *rest, names=next(fitting, ()), **fields)
