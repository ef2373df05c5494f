"""A module that a program may import while it is followed: who is told of it then, and what stands in another
function's place."""

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
        # A process that joined is open until the interpreter ends, when there is none.
        if sys.meta_path is not None:
            sys.meta_path.remove(finder)


Replacement: TypeAlias = tuple[Any, str, Any]
# (what is replaced, what replaces it) by their name.
Pairs: TypeAlias = Mapping[str, tuple[Any, Any]]


def exchange(replacements: Iterable[Replacement]) -> Callable[[], None]:
    """Put things in functions' places: in a class, or in every module that has one by its own name; None
    removes it. What is returned puts all back."""
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
    """Replace functions in every module that holds them under their own name; return a function that puts
    them back, also in modules imported since."""
    modules, names = list(sys.modules.values()), frozenset[str]().union(*parts)
    before = _found.get(names)
    if before is None or not _same(before[0], modules):
        before = _found[names] = modules, _named(modules, names)
    places = list(_holding(before[1], parts))
    for held, name, _, new in places:
        held[name] = new

    def back() -> None:
        for held, name, old, new in places:
            if held.get(name) is new:
                held[name] = old
        now = list(sys.modules.values())
        if _same(now, modules):
            return
        there = set(map(id, modules))
        later = _named((module for module in now if id(module) not in there), names)
        turned = [{name: (new, old) for name, (old, new) in pairs.items()} for pairs in parts]
        for held, name, _, old in list(_holding(later, turned)):
            held[name] = old

    return back


# A module's names, and one of them.
Place: TypeAlias = tuple[dict[str, Any], str]
# Where names were found the last time they were looked for: there may be thousands of modules, and every
# capture looks.
_found: dict[frozenset[str], tuple[list[Any], list[Place]]] = {}


def _named(modules: Iterable[Any], names: frozenset[str]) -> list[Place]:
    """Return the (module dictionary, name) pairs of modules that have such a name."""
    dicts = (held for module in modules if isinstance(held := getattr(module, "__dict__", None), dict))
    return [(held, name) for held in dicts for name in names & held.keys()]


def _holding(
    places: Iterable[Place], parts: Sequence[Pairs]
) -> Iterator[tuple[dict[str, Any], str, Any, Any]]:
    """Yield (module dictionary, name, original, replacement) for places that hold a replaced function."""
    for held, name in places:
        for pairs in parts:
            if name in pairs and held.get(name) is pairs[name][0]:
                yield held, name, *pairs[name]


def _same(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))
