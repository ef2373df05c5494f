"""Options as people write them on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from analyzer.options import Options

# Prefix of a name that `Options.shown` gives (before the point) -> its option.
_GROUPS = {"runtime": "--runtime-option", "assume": "--assume", "value": "--value", "input": "--input"}


def written(shown: Mapping[str, Any]) -> tuple[str, ...]:
    """Return options, as `Options.shown` gives them, as command-line text, without defaults."""
    by_name = {entry.name: entry for entry in fields(Options)}
    return tuple(
        _typed(name, value)
        for name, value in shown.items()
        if name.partition(".")[0] in _GROUPS
        or (name in by_name and value not in (None, False) and value != by_name[name].default)
    )


def _typed(name: str, value: Any) -> str:
    """Return an option and its value, as on the command line."""
    group, _, rest = name.partition(".")
    if group in _GROUPS and rest:
        return f"{_GROUPS[group]} {shlex.quote(f'{rest}={value}')}"
    flags = next(entry.metadata["flags"] for entry in fields(Options) if entry.name == name)
    flag = flags[-1] if flags else name
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return flag if value is True else f"{flag} {shlex.quote(text)}"


def changed(options: Options, changes: Mapping[str, Any]) -> str:
    """Return the command-line text that applies the changes to `options`, including options to leave out."""
    added, without = [], []
    for name, value in changes.items():
        if name == "runtime_options":
            settings = {
                f"runtime.{key}": v for key, v in value.items() if options.runtime_options.get(key) != v
            }
            added += [_typed(*setting) for setting in settings.items()]
        elif value is not False:
            added.append(_typed(name, value))
        elif getattr(options, name):
            without.append(_typed(name, True))
    return " ".join(added) + (f" (without {' '.join(without)})" if without else "")
