"""A module that a program may import while it is followed: who is told of it then."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


@contextlib.contextmanager
def once_imported(name: str, tell: Callable[[ModuleType], None]) -> Iterator[None]:
    """While open, the module is told of: now, or when the program imports it."""
    if name in sys.modules:
        tell(sys.modules[name])
        yield
        return

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
            if fullname != name:
                return None
            spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                run = spec.loader.exec_module

                def exec_module(module: ModuleType) -> None:
                    run(module)
                    tell(module)

                spec.loader.exec_module = exec_module  # type: ignore[method-assign]
            return spec

    finder = Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
