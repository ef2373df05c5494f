"""A program's text under change: what it calls, and text put in at the parser's places."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence


def calls(tree: ast.AST, names: Sequence[str] | None) -> Iterator[ast.Call]:
    """Yield the calls of functions and methods of these names, of any where there is None."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if names is None or called in names:
                yield node


def with_keyword(text: str, call: ast.Call, keyword: str) -> str:
    """Return the text with a keyword at the end of a call."""
    lines = text.splitlines(keepends=True)
    assert call.end_lineno is not None and call.end_col_offset is not None
    end = call.end_col_offset - 1
    before = "".join(lines[: call.end_lineno - 1]) + lines[call.end_lineno - 1].encode()[:end].decode()
    comma = "" if before.rstrip().endswith((",", "(")) else ", "
    lines[call.end_lineno - 1] = spliced(lines[call.end_lineno - 1], end, end, comma + keyword)
    return "".join(lines)


def wrapped(text: str, node: ast.expr, behind: str) -> str:
    """Return the text with an expression in parentheses and something behind it."""
    lines = text.splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    end, begin = node.end_col_offset, node.col_offset
    lines[node.end_lineno - 1] = spliced(lines[node.end_lineno - 1], end, end, f"){behind}")
    lines[node.lineno - 1] = spliced(lines[node.lineno - 1], begin, begin, "(")
    return "".join(lines)


def inserted(text: str, line: int, beside: ast.stmt, added: Sequence[str]) -> str:
    """Return the text with lines before the line of that number, indented as a statement is."""
    lines = text.splitlines(keepends=True)
    indent = " " * beside.col_offset
    lines[line - 1 : line - 1] = [f"{indent}{part}\n" for part in added]
    return "".join(lines)


def spliced(line: str, begin: int, end: int, new: str) -> str:
    """Return a line with other text between two of the parser's offsets, which count bytes."""
    raw = line.encode()
    return (raw[:begin] + new.encode() + raw[end:]).decode()
