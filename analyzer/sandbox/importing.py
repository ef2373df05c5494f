"""A module that a program may import while it is followed: who is told of it then, and what stands in another function's place."""

from __future__ import annotations

import contextlib
import importlib.abc
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, TypeAlias


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
            behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
            found = (
                finder.find_spec(fullname, path, target) for finder in behind if hasattr(finder, "find_spec")
            )
            spec = next(filter(None, found), None)
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
        if (
            sys.meta_path is not None
        ):  # as it is when the interpreter ends, and a process that joined was open until then
            sys.meta_path.remove(finder)


Replacement: TypeAlias = tuple[Any, str, Any]


def exchange(replacements: Iterable[Replacement]) -> list[Replacement]:
    """Put things in functions' places: in a class, or in every module that has one by its own name; None removes it. What puts all back."""
    back, pairs = [], {}
    for holder, name, made in list(replacements):
        old = vars(holder).get(name)
        back.append((holder, name, old))
        if made is None:
            delattr(holder, name)
            continue
        setattr(holder, name, made)
        if old is not None and isinstance(holder, ModuleType):
            pairs[name] = old, made
    if pairs:  # modules are gone through once for all of them: there may be thousands
        exchange_all(pairs)
    return back


def exchange_all(pairs: dict[str, tuple[Any, Any]]) -> None:
    """In every module that has a function by its own name, another for it."""
    for module in list(sys.modules.values()):
        held = getattr(module, "__dict__", None)
        if isinstance(held, dict):
            for name in pairs.keys() & held.keys():
                old, new = pairs[name]
                if held[name] is old:
                    held[name] = new
