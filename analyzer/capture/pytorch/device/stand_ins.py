"""Modules that are imported only if more is asked of them than a small stand-in can answer."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class StandIn(ModuleType):
    """Replaces a module that is not imported yet until `close`, or until an attribute is needed that it does
    not have: then the real module is imported and takes its place.

    name: the module's, whose package is imported. answers: the attributes it has. Raises ModuleNotFoundError
    where there is no such module.
    """

    def __init__(self, name: str, answers: Mapping[str, Any] | None = None) -> None:
        super().__init__(name)
        self.__spec__ = find_spec(name)
        if self.__spec__ is None:
            raise ModuleNotFoundError(f"no module named {name}", name=name)
        self.__file__ = self.__spec__.origin
        self._answers = dict(answers or {})
        vars(self).update(self._answers)
        sys.modules[name] = self

    def close(self) -> None:
        """Remove this stand-in from `sys.modules` and from its package."""
        for name in self._answers:
            vars(self).pop(name, None)
        name = self.__name__
        if sys.modules.get(name) is self:
            del sys.modules[name]
        package, _, last = name.rpartition(".")
        if package in sys.modules and vars(sys.modules[package]).get(last) is self:
            delattr(sys.modules[package], last)

    def real(self) -> Any:
        """Import the real module in place of this one."""
        self.close()
        return importlib.import_module(self.__name__)

    def __getattr__(self, name: str) -> Any:
        of_package = self.__spec__ is not None and self.__spec__.submodule_search_locations is not None
        if name.startswith("__") and not (name == "__path__" and of_package):  # asked of any module
            raise AttributeError(name)
        return getattr(self.real(), name)
