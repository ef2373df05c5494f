"""A program's questions about sizes while it is captured: `if x.shape[0] > 16`, `assert len % 8 == 0`.

A captured program is the way the program took at one batch. Which way it takes at another may depend on sizes
it compares. So, where it is asked for, the sizes that tensors tell (`shape`, `size`) are whole numbers that
remember how they came about, and every comparison of one is a guard (`graph/guard.py`): its two sides, as
trees of additions, products and the like over sizes, its answer and its line. From the sizes at another batch
follows whether the answers are the same there.

Not modelled: sizes told otherwise (`len`, `numel`, `range`), other arithmetic than `_ARITHMETIC`, comparisons
with fractions: there the number is a plain one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from analyzer.graph.guard import SizeGuard, Tree

_ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_MOST = 100_000


class AskedSizes:
    """Collects the guards of one capture."""

    def __init__(self) -> None:
        self.guards: list[SizeGuard] = []

    def size(self, value: int) -> int:
        """Return a size that records the comparisons the program makes with it."""
        return _Size(value, int(value), self)

    def sizes(self, value: torch.Size) -> torch.Size:
        """Return a shape whose sizes record comparisons."""
        return torch.Size([self.size(size) for size in value])

    def ask(self, comparison: str, left: Tree, right: Tree, answer: bool) -> None:
        """Store a guard with the line that compares."""
        if len(self.guards) < _MOST:
            frame = sys._getframe(2)
            where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"  # noqa: PTH119
            self.guards.append(SizeGuard(comparison, left, right, answer, where))


class _Size(int):
    """A whole number with the tree it came from."""

    tree: Tree
    record: AskedSizes

    def __new__(cls, value: int, tree: Tree, sizes: AskedSizes) -> _Size:
        size = super().__new__(cls, value)
        size.tree, size.record = tree, sizes
        return size

    def __bool__(self) -> bool:
        answer = int(self) != 0
        self.record.ask("ne", self.tree, 0, answer)
        return answer

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)  # a copy is a plain number

    def __neg__(self) -> int:
        return _Size(-int(self), ("sub", 0, self.tree), self.record)

    __hash__ = int.__hash__


def _tree(number: int) -> Tree:
    return number.tree if isinstance(number, _Size) else int(number)


def _arithmetic(name: str, reflected: bool) -> Callable[[_Size, Any], Any]:
    """Return an `int` operation whose result remembers the expression that made it."""
    plain = getattr(int, f"__{'r' if reflected else ''}{name}__")

    def method(self: _Size, other: Any) -> Any:
        result = plain(self, other)
        if type(result) is not int:
            return result
        sides = (_tree(other), self.tree) if reflected else (self.tree, _tree(other))
        return _Size(result, (name, *sides), self.record)

    return method


def _comparison(name: str) -> Callable[[_Size, Any], Any]:
    """Return an `int` comparison that records the question and its answer."""
    plain = getattr(int, f"__{name}__")

    def method(self: _Size, other: Any) -> Any:
        answer = plain(self, other)
        if answer is not NotImplemented:
            self.record.ask(name, self.tree, _tree(other), answer)
        return answer

    return method


for _name in _ARITHMETIC:
    setattr(_Size, f"__{_name}__", _arithmetic(_name, reflected=False))
    setattr(_Size, f"__r{_name}__", _arithmetic(_name, reflected=True))
for _name in _COMPARISONS:
    setattr(_Size, f"__{_name}__", _comparison(_name))
