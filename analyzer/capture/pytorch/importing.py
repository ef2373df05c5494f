"""A module that a program may import while it is captured: who is told of it then.

The sandbox has a function like this one of its own (`analyzer_sandbox/importing.py`): it runs in Pythons
without this package.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


@contextlib.contextmanager
def once_imported(name: str, tell: Callable[[ModuleType], None]) -> Iterator[None]:
    """While open, call `tell` with the module: now, or when the program imports it."""
    if name in sys.modules:
        tell(sys.modules[name])
        yield
        return

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
            if fullname != name:
                return None
            behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
            module_spec = (
                finder.find_spec(fullname, path, target) for finder in behind if hasattr(finder, "find_spec")
            )
            spec = next(filter(None, module_spec), None)
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
        # A process that joined is open until the interpreter ends, when there is none.
        if sys.meta_path is not None:
            sys.meta_path.remove(finder)
