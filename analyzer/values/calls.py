"""A call of an operator, whose arguments are read by the names its schema gives them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple


class DispatchedCall(NamedTuple):
    """The operator, and its arguments as the dispatcher hands them over."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        """The operator's name without its overload."""
        return self.func._schema.name  # type: ignore[no-any-return]

    def argument(self, name: str, default: Any = None) -> Any:
        """Return the argument that the schema calls so, or the default where the call leaves it out. Raises
        KeyError for a name the schema has not."""
        place = places(self.func)[name]
        return self.args[place] if place < len(self.args) else self.kwargs.get(name, default)


@functools.cache
def places(func: Any) -> Mapping[str, int]:
    """Return the position of each argument of an operator, by name."""
    return {argument.name: place for place, argument in enumerate(func._schema.arguments)}
