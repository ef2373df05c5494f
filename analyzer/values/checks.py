"""The use of a value that a line of the program reads: in the condition of a loop, or of a check.

A line is "path:12". Files that cannot be read, or parsed, do nothing.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator


@functools.lru_cache(maxsize=1024)
def decides_a_loop(line: str) -> bool:
    """Whether it decides how long a `while` goes on: it is its condition, or that of an `if` in it that
    leaves it."""
    tree, number = _source(line)
    return any(
        _spans(loop.test, number) or any(_leaves(inner, number) for inner in ast.walk(loop))
        for loop in ast.walk(tree)
        if isinstance(loop, ast.While)
    )


@functools.lru_cache(maxsize=1024)
def passes(line: str) -> bool | None:
    """The truth value by which the check of this line passes: an `assert`, or an `if` that raises. None: it
    is no check, or its parts need different ones."""
    wanted = {value for test, truth in _checks(line) for value in _needed(test, truth)}
    return wanted.pop() if len(wanted) == 1 else None


def _checks(line: str) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the conditions of checks on this line, and the truth value by which each passes."""
    tree, number = _source(line)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and _spans(node.test, number):
            yield node.test, True
        elif isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise) and _spans(node.test, number):
            yield node.test, False


def _needed(test: ast.expr, truth: bool) -> Iterator[bool]:
    """Yield the values of its parts that make a condition `truth`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _needed(test.operand, not truth)
    elif isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _needed(value, truth)
    else:
        yield truth


def _source(line: str) -> tuple[ast.Module, int]:
    """Return the file of a line, and its number; an empty file where it cannot be read."""
    path, _, number = line.rpartition(":")
    return _parsed(path), int(number) if number.isdigit() else 0


@functools.lru_cache(maxsize=64)
def _parsed(path: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _spans(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _leaves(node: ast.AST, line: int) -> bool:
    return (
        isinstance(node, ast.If)
        and _spans(node.test, line)
        and any(isinstance(inner, (ast.Break, ast.Return)) for inner in ast.walk(node))
    )
