"""A saved estimate is validated against `schema.json` before use: it may come from anywhere.

Only the keywords of JSON Schema that the schema uses are supported; also, numbers must be finite and texts
writable. Rules that the schema cannot express (arrays that belong together, places in another array) are in
`consistent`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

_LARGEST = 10**300  # as a float it is still a number
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair
_WHERE = "\0"  # stands for the place of a value, which is known when the error is
_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_TIMELINE = ("allocated", "reserved", "delta", "label", "category", "phase")
_BLOCKS = ("born", "died", "nbytes", "requested", "address", "origin")


@cache
def _schema() -> Mapping[str, Any]:
    text = (resources.files("analyzer.report") / "schema.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def problem(document: Mapping[str, Any]) -> str:
    """Return the first thing that is wrong with a document ("'batch' is 'x'"), "" where nothing is."""
    try:
        _check(_schema(), document)
    except _WrongError as wrong:
        where = ".".join(reversed(wrong.path))
        words = wrong.words if where else wrong.words.replace(f" in {_WHERE}", "")
        return words.replace(_WHERE, repr(where) if where else "the document")
    return consistent(document)


class _WrongError(Exception):
    """words: with `_WHERE` for the place; path: to it, innermost first."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.path: list[str] = []


def _check(schema: Mapping[str, Any], value: Any) -> None:
    """Raise _WrongError for a value that the schema does not allow. The path is put together only then: a
    million values are right."""
    kinds = schema.get("type")
    if kinds is not None:
        if type(kinds) is str:
            allowed = _TYPES[kinds](value)
        else:
            allowed = any(_TYPES[kind](value) for kind in kinds)
        if not allowed:
            raise _WrongError(_is(_WHERE, value))
    if "enum" in schema and value not in schema["enum"]:
        raise _WrongError(_is(_WHERE, value))
    if isinstance(value, str):
        if not _is_text(value):
            raise _WrongError(f"{_WHERE} is no text")
    elif isinstance(value, int | float):
        finite = abs(value) < _LARGEST  # false of what is no number, too
        if not finite or value < schema.get("minimum", value):
            raise _WrongError(_is(_WHERE, value))
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            raise _WrongError(f"{_WHERE} has {len(value):,} entries")
        items = schema.get("items", {})
        for part in value:
            _check(items, part)
    elif isinstance(value, dict):
        _check_named(schema, value)


def _check_named(schema: Mapping[str, Any], value: Mapping[Any, Any]) -> None:
    for name in schema.get("required", ()):
        if name not in value:
            raise _WrongError(f"{name!r} is missing in {_WHERE}")
    if len(value) > schema.get("maxProperties", len(value)):
        raise _WrongError(f"{_WHERE} has {len(value):,} names")
    named, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    allowed = schema.get("propertyNames", {}).get("enum")
    name = ""
    try:
        for name, part in value.items():
            own = named.get(name)
            if own is None and (not _is_text(name) or (allowed is not None and name not in allowed)):
                break
            _check(others if own is None else own, part)
        else:
            return
    except _WrongError as wrong:
        wrong.path.append(name)
        raise
    raise _WrongError(f"{_WHERE} has the name {name!r}")


def _is(where: str, value: Any) -> str:
    shown = repr(value) if isinstance(value, str | float | bool | None) else f"a {type(value).__name__}"
    return f"{where} is {shown[:60]}"


def _is_text(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which no file can hold."""
    return text.isascii() or not _HALF.search(text)


def consistent(document: Mapping[str, Any]) -> str:
    """Return what does not belong together in a document whose parts have the right types."""
    timeline = document["timeline"]
    length = len(timeline["allocated"])
    if any(len(timeline[name]) != length for name in _TIMELINE):
        return "'timeline' has arrays of different lengths"
    if len(timeline.get("rule", ())) not in (0, length):
        return "'timeline.rule' has another length"
    blocks = document.get("allocations") or {}
    if blocks and any(len(blocks[name]) != len(blocks["born"]) for name in _BLOCKS):
        return "'allocations' has arrays of different lengths"
    if any(not 0 <= place < len(blocks["origins"]) for place in blocks.get("origin", ())):
        return "'allocations.origin' names none of its origins"
    events = [*blocks.get("born", ()), document.get("peak_event", -1), *blocks.get("died", ())]
    events += [row[name] for row in document.get("segments", ()) for name in ("born", "died") if name in row]
    events += document.get("iterations", ())
    if any(not -1 <= event < max(length, 1) for event in events):
        return "an event is none of the timeline's"
    together = document["options"].get("grad_accumulation")
    if together is not None and (type(together) is not int or together < 1):
        return _is("'options.grad_accumulation'", together)
    time = document.get("step_seconds")
    if time is not None and not 0 < time["low"] <= time["seconds"] <= time["high"]:
        return "'step_seconds.seconds' is not between its least and greatest"
    return ""
