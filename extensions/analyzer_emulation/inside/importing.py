"""A module that the program may import: a function is called with it then."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from typing import Any


def once_imported(name: str, then: Callable[[Any], None]) -> None:
    """Call a function with a module each time that is loaded from now on."""
    sys.meta_path.insert(0, _Finder(name, then))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name, self._then = name, then
        self._asks = False

    def find_spec(self, name: str, *_: Any) -> Any:
        """Return the module's spec with a loader that calls the function (a spec may go unused)."""
        if name != self._name or self._asks:
            return None
        self._asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asks = False
        if spec is None or spec.loader is None:
            return None
        load, then = spec.loader.exec_module, self._then

        def exec_module(module: Any) -> None:
            load(module)
            then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
