"""A module that a program may import while it is followed: who is told of it then, and what stands in another function's place."""

from __future__ import annotations

import contextlib
import importlib.abc
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
# (what is replaced, what replaces it) by their name.
Pairs: TypeAlias = Mapping[str, tuple[Any, Any]]


def exchange(replacements: Iterable[Replacement]) -> Callable[[], None]:
    """Put things in functions' places: in a class, or in every module that has one by its own name; None removes it. What is returned
    puts all back."""
    before: list[Replacement] = []
    pairs = {}
    for holder, name, made in list(replacements):
        old = vars(holder).get(name)
        before.append((holder, name, old))
        if made is None:
            delattr(holder, name)
            continue
        setattr(holder, name, made)
        if old is not None and isinstance(holder, ModuleType):
            pairs[name] = old, made
    elsewhere = exchange_all([pairs]) if pairs else None

    def back() -> None:
        for holder, name, old in before:
            if old is None:
                delattr(holder, name)
            else:
                setattr(holder, name, old)
        if elsewhere is not None:
            elsewhere()

    return back


def exchange_all(parts: Sequence[Pairs]) -> Callable[[], None]:
    """In every module that has a function by its own name, another for it. What is returned puts the functions back, also in modules that
    were imported since."""
    modules = list(sys.modules.values())
    places = [(held, name, *pair) for held, name, pair in _holding(modules, parts)]
    for held, name, _, new in places:
        held[name] = new

    def back() -> None:
        for held, name, old, new in places:
            if held.get(name) is new:
                held[name] = old
        now = list(sys.modules.values())
        if _same(now, modules):
            return
        before = set(map(id, modules))
        later = [module for module in now if id(module) not in before]
        turned = [{name: (new, old) for name, (old, new) in pairs.items()} for pairs in parts]
        for held, name, (_, old) in list(_holding(later, turned)):
            held[name] = old

    return back


# Where names were found the last time they were looked for: there may be thousands of modules, and every capture looks.
_found: dict[frozenset[str], tuple[list[Any], list[tuple[dict[str, Any], str]]]] = {}


def _holding(
    modules: list[Any], parts: Sequence[Pairs]
) -> Iterator[tuple[dict[str, Any], str, tuple[Any, Any]]]:
    """Where in these modules what is replaced is held by its name: a module's names, the name, what is there and what replaces it."""
    names = frozenset[str]().union(*parts)
    before = _found.get(names)
    if before is None or not _same(before[0], modules):
        dicts = [held for module in modules if isinstance(held := getattr(module, "__dict__", None), dict)]
        before = _found[names] = modules, [(held, name) for held in dicts for name in names & held.keys()]
    for held, name in before[1]:
        for pairs in parts:
            if name in pairs and held.get(name) is pairs[name][0]:
                yield held, name, pairs[name]


def _same(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))
