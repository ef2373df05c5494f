"""Statements of SQLite that name another file (ATTACH, VACUUM INTO): they are given its path in the overlay.

A name that is no literal and no parameter (an expression) is not modelled: the file is opened outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_NAMES = re.compile(
    r"""\b(attach\s+(?:database\s+)?|vacuum\s+(?:\w+\s+)?into\s+)"""
    r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|\?\d*|[:@$]\w+)""",
    re.IGNORECASE,
)
_NO_FILE = ("", ":memory:")
InOverlay = Callable[[str], str]


def connection_type(sqlite: Any, in_overlay: InOverlay, base: Any = None) -> Any:
    """Return a connection's class, derived from `base` (sqlite3.Connection), whose cursors do so. in_overlay:
    from the program's path to the overlay's."""

    class Connection(base or sqlite.Connection):  # type: ignore[misc]
        def cursor(self, factory: Any = sqlite.Cursor) -> Any:
            is_type = isinstance(factory, type)
            return super().cursor(_cursor_type(factory, in_overlay) if is_type else factory)

        def execute(self, *statement: Any) -> Any:  # its own makes a cursor of its own
            return self.cursor().execute(*statement)

        def executescript(self, sql_script: Any) -> Any:
            return self.cursor().executescript(sql_script)

    return Connection


def _cursor_type(base: Any, in_overlay: InOverlay) -> Any:
    class Cursor(base):  # type: ignore[misc]
        def execute(self, sql: Any, *parameters: Any) -> Any:
            return super().execute(*_redirected(sql, parameters, in_overlay))

        def executescript(self, sql_script: Any) -> Any:
            return super().executescript(*_redirected(sql_script, (), in_overlay))

    return Cursor


def _redirected(sql: Any, parameters: tuple[Any, ...], in_overlay: InOverlay) -> tuple[Any, ...]:
    """Return a statement and its parameters with the overlay's paths."""
    if not isinstance(sql, str) or _NAMES.search(sql) is None:
        return (sql, *parameters)
    values = parameters[0] if parameters else ()
    named: dict[Any, Any] = dict(values) if hasattr(values, "keys") else dict(enumerate(values))

    def replaced(match: re.Match[str]) -> str:
        statement, name = match.groups()
        if name[0] in "'\"":
            path = name[1:-1].replace(name[0] * 2, name[0])
            return statement + "'" + (path if path in _NO_FILE else in_overlay(path)).replace("'", "''") + "'"
        key = name[1:] if name[0] != "?" else int(name[1:] or sql.count("?", 0, match.start(2)) + 1) - 1
        if isinstance(named.get(key), str) and named[key] not in _NO_FILE:
            named[key] = in_overlay(named[key])
        return match[0]

    text = _NAMES.sub(replaced, sql)
    if not parameters:
        return (text,)
    return (text, named if hasattr(values, "keys") else tuple(named.values()))
