"""A saved estimate is validated against `schema.json` before use: it may come from anywhere.

Only the keywords of JSON Schema that the schema uses are supported; also, numbers must be finite and texts
writable. Rules that the schema cannot express (arrays that belong together, places in another array) are in
`consistent`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

_LARGEST = 10**300  # as a float it is still a number
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
    return _problem(_schema(), document, "") or consistent(document)


def _problem(schema: Mapping[str, Any], value: Any, where: str) -> str:
    kinds = schema.get("type")
    if kinds is not None and not any(
        _TYPES[kind](value) for kind in ([kinds] if isinstance(kinds, str) else kinds)
    ):
        return _is(where, value)
    if "enum" in schema and value not in schema["enum"]:
        return _is(where, value)
    if isinstance(value, str):
        return "" if value.isascii() or _is_text(value) else f"{where!r} is no text"
    if isinstance(value, int | float):
        finite = abs(value) < _LARGEST  # false of what is no number, too
        return "" if finite and value >= schema.get("minimum", value) else _is(where, value)
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return f"{where!r} has {len(value):,} entries"
        return _first(schema.get("items", {}), ((where, part) for part in value))
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                return f"{name!r} is missing{f' in {where!r}' if where else ''}"
        named, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        allowed = schema.get("propertyNames", {}).get("enum")
        for name, part in value.items():
            if not _is_text(name) or (allowed is not None and name not in allowed):
                return f"{where!r} has the name {name!r}"
            if problem := _problem(named.get(name, others), part, f"{where}.{name}" if where else name):
                return problem
    return ""


def _first(schema: Mapping[str, Any], parts: Any) -> str:
    return next(filter(None, (_problem(schema, part, where) for where, part in parts)), "")


def _is(where: str, value: Any) -> str:
    shown = repr(value) if isinstance(value, str | float | bool | None) else f"a {type(value).__name__}"
    return f"{where!r} is {shown[:60]}"


def _is_text(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which no file can hold."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


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
        return _is("options.grad_accumulation", together)
    time = document.get("step_seconds")
    if time is not None and not 0 < time["low"] <= time["seconds"] <= time["high"]:
        return "'step_seconds.seconds' is not between its least and greatest"
    return ""
