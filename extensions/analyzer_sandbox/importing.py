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


Replacement: TypeAlias = tuple[Any, str, Any]
# (what is replaced, what replaces it) by their name.
Pairs: TypeAlias = Mapping[str, tuple[Any, Any]]


def exchange(replacements: Iterable[Replacement]) -> Callable[[], None]:
    """Put things in functions' places: in a class, or in every module that has one by its own name; None
    removes it. The function that is returned puts all back."""
    before: list[Replacement] = []
    pairs = {}
    for holder, name, replacement in list(replacements):
        old = vars(holder).get(name)
        before.append((holder, name, old))
        if replacement is None:
            delattr(holder, name)
            continue
        setattr(holder, name, replacement)
        if old is not None and isinstance(holder, ModuleType):
            pairs[name] = old, replacement
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
    looked = _known[names] = _named(modules, names, _known.get(names, {}))
    places = list(_holding([one for one in looked.values() if one[2]], parts))
    for held, name, _, new in places:
        held[name] = new

    def back() -> None:
        for held, name, old, new in places:
            if held.get(name) is new:
                held[name] = old
        now = list(sys.modules.values())
        if all(map(operator.is_, now, modules)):  # as a rule; those imported since come last
            since = now[len(modules) :]
        else:
            already = set(
                map(id, modules)
            )  # kept until now: another's number would be taken for one of theirs
            since = [module for module in now if id(module) not in already]
        later = _named(since, names, {})
        turned = [{name: (new, old) for name, (old, new) in pairs.items()} for pairs in parts]
        for held, name, _, old in list(_holding(later.values(), turned)):
            held[name] = old

    return back


# A module's names, how many it had when it was looked at, and those of them that were looked for.
Looked: TypeAlias = tuple[dict[str, Any], int, tuple[str, ...]]
# The names that the last look saw in each module, by the identity of its names: there may be thousands of
# modules, every capture looks, and few are new or have gained a name since.
_known: dict[frozenset[str], dict[int, Looked]] = {}


def _named(modules: Iterable[Any], names: frozenset[str], already: Mapping[int, Looked]) -> dict[int, Looked]:
    """Return what each module has of these names. already: what an earlier look saw."""
    by_id = {}
    for module in modules:
        held = getattr(module, "__dict__", None)
        place = id(held)
        entry = already.get(place)
        if entry is not None and entry[1] == len(entry[0]):
            by_id[place] = entry
        elif isinstance(held, dict):
            by_id[place] = held, len(held), tuple(names & held.keys())
    return by_id


def _holding(
    looked: Iterable[Looked], parts: Sequence[Pairs]
) -> Iterator[tuple[dict[str, Any], str, Any, Any]]:
    """Yield (module dictionary, name, original, replacement) for places that hold a replaced function."""
    for held, _, names in looked:
        for name in names:
            for pairs in parts:
                if name in pairs and held.get(name) is pairs[name][0]:
                    yield held, name, *pairs[name]
