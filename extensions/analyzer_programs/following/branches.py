"""The `if`s of a script whose outcome changes while it loops, and which of their sides have run.

1. A script is compiled with a call at the beginning of either side of such an `if`; lines stay those of the
   file.
2. A test **changes** if it names what a loop around it assigns (its target, a counter), an attribute the
   script adds to (`self.step += 1`), or a remainder of a parameter (`step % every`).
3. An `if` whose body ends in leaving the loop or raising is not looked at.

Not modelled: conditional expressions, `match`, and modules that the script imports.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import torch

from analyzer.values.own import OWN

_MARK = "__analyzer_side__"
_LEAVES = (ast.Raise, ast.Break, ast.Continue, ast.Pass)
# Code that runs no loop over batches of its own: torch's, ours, and what wraps a function or an optimizer.
_WRAPPERS = tuple(f"/{file}.py" for file in ("contextlib", "functools", "accelerate/optimizer"))
_FOLDERS = (f"{Path(torch.__file__).parent}/", *OWN)


class Branches:
    """Of one script."""

    def __init__(self) -> None:
        self._places: list[tuple[int, bool]] = []  # by number: the line of the `if`, whether it has an else
        self._file = ""
        self._runs: Counter[tuple[int, bool]] = Counter()

    def compiled(self, text: str | bytes, name: str) -> CodeType:
        """Return the script's code. Raises SyntaxError."""
        tree = ast.parse(text, name)
        self._file = name
        _Marks(tree, self._places).visit(tree)
        return compile(ast.fix_missing_locations(tree), name, "exec")

    @property
    def names(self) -> dict[str, object]:
        """Names that the code calls."""
        return {_MARK: self._ran}

    def _ran(self, number: int, side: bool) -> None:
        self._runs[number, side] += 1

    def open(self, least: int) -> int | None:
        """Return the line of an `if` that was come to at least so often, and one side of which never ran."""
        for number, (line, has_else) in enumerate(self._places):
            runs, others = self._runs[number, True], self._runs[number, False]
            if runs + others >= least and (runs == 0 or (others == 0 and has_else)):
                return line
        return None

    def loops(self) -> bool:
        """Return whether the loop that runs now is the script's own, and nobody else's."""
        others = own = False
        for frame in _frames():
            file = frame.f_code.co_filename
            if file == self._file:
                own = True
                if others:
                    return False
            elif not file.startswith(_FOLDERS) and not file.endswith(_WRAPPERS):
                others = True
        return own


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


class _Marks(ast.NodeTransformer):
    """Puts the calls into a tree. places: those of the `if`s, added to."""

    def __init__(self, tree: ast.AST, places: list[tuple[int, bool]]) -> None:
        self._places = places
        self._assigned: frozenset[str] = frozenset()  # by the loops around
        self._parameters: frozenset[str] = frozenset()
        self._counters = {
            node.target.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute)
        }

    def _loop(self, node: ast.AST) -> ast.AST:
        before = self._assigned
        self._assigned |= {
            name.id
            for name in ast.walk(node)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        }
        self.generic_visit(node)
        self._assigned = before
        return node

    visit_For = visit_While = visit_AsyncFor = _loop

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        before = self._assigned, self._parameters
        self._assigned = frozenset()
        self._parameters = frozenset(name.arg for name in ast.walk(node.args) if isinstance(name, ast.arg))
        self.generic_visit(node)
        self._assigned, self._parameters = before
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_If(self, node: ast.If) -> ast.AST:
        changes = self._changes(node.test) and not isinstance(node.body[-1], _LEAVES)
        self.generic_visit(node)
        if changes:
            number = len(self._places)
            self._places.append((node.lineno, bool(node.orelse)))
            node.body.insert(0, _mark(number, True, node.body[0]))
            node.orelse.insert(0, _mark(number, False, node.orelse[0] if node.orelse else node))
        return node

    def _changes(self, test: ast.expr) -> bool:
        for node in ast.walk(test):
            if isinstance(node, ast.Name) and node.id in self._assigned:
                return True
            if isinstance(node, ast.Attribute) and node.attr in self._counters:
                return True
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                names = {name.id for name in ast.walk(node.left) if isinstance(name, ast.Name)}
                if names & self._parameters:
                    return True
        return False


def _mark(number: int, side: bool, place: ast.stmt) -> ast.stmt:
    call = ast.Call(ast.Name(_MARK, ast.Load()), [ast.Constant(number), ast.Constant(side)], [])
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), place))
