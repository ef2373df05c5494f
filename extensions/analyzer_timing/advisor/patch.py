"""A target's file with some of its model's blocks checkpointed, as a unified diff of it.

1. A function's result is passed through `checkpointed`, which is written before it: each block's `forward`
   runs under `torch.utils.checkpoint`. Nothing else of the file changes.
2. A target that is no function of a file (a package's, a class, an exported program) has no patch: its option
   of the command line says the same.

Source: `torch.utils.checkpoint.checkpoint`, as `--checkpoint` applies it
(`capture/pytorch/module/from_options.py`).
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from pathlib import Path

_HELPER = '''def checkpointed(model):
    """The model with these blocks computed again in the backward pass, not kept."""
    import functools

    from torch.utils.checkpoint import checkpoint

    for path in {paths}:
        block = model.get_submodule(path)
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    return model


'''
_INDENT = 8


def patched(source: str, function: str, paths: Sequence[str]) -> str:
    """Return the file's text with the result of `function` checkpointed; "" if that is impossible."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ""
    made = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function), None)
    if made is None or any(isinstance(n, ast.Name) and n.id == "checkpointed" for n in ast.walk(tree)):
        return ""
    lines = source.splitlines(keepends=True)
    returns = [node.value for node in _own_returns(made) if node.value is not None]
    if not returns:
        return ""
    for value in sorted(returns, key=lambda node: -node.lineno):
        assert value.end_lineno is not None and value.end_col_offset is not None
        _insert(lines, value.end_lineno, value.end_col_offset, ")")
        _insert(lines, value.lineno, value.col_offset, "checkpointed(")
    begin = min([made.lineno, *(decorator.lineno for decorator in made.decorator_list)]) - 1
    lines.insert(begin, _HELPER.replace("{paths}", _written(paths)))
    return "".join(lines)


def diff(source: str, changed: str, name: str) -> str:
    """Return the unified diff for `patch -p1`. name: the file's path, from where it is applied."""
    return "".join(
        difflib.unified_diff(
            source.splitlines(keepends=True), changed.splitlines(keepends=True), f"a/{name}", f"b/{name}"
        )
    )


def source_of(path: Path) -> str:
    """Return a file's text; "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _written(paths: Sequence[str]) -> str:
    """The tuple of paths, a line each where one is too long."""
    short = "(" + ", ".join(f'"{path}"' for path in paths) + ("," if len(paths) == 1 else "") + ")"
    if len(short) <= 80:
        return short
    inner = "".join(f'{"":{_INDENT}}"{path}",\n' for path in paths)
    return f"(\n{inner}    )"


def _own_returns(function: ast.FunctionDef) -> list[ast.Return]:
    """Return a function's return statements, without those of nested functions."""
    returns: list[ast.Return] = []
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Return):
            returns.append(node)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            pending += ast.iter_child_nodes(node)
    return returns


def _insert(lines: list[str], number: int, column: int, text: str) -> None:
    """Text at a place of the file. column: bytes of UTF-8, as `ast` counts."""
    line = lines[number - 1].encode()
    lines[number - 1] = (line[:column] + text.encode() + line[column:]).decode()
