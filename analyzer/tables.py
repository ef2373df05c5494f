"""Tables that are written by value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

_Value = TypeVar("_Value")


def by_name(names: Mapping[_Value, str]) -> dict[str, _Value]:
    """Return a table from name to value, given the names of each value in one text."""
    return {name: value for value, text in names.items() for name in text.split()}
