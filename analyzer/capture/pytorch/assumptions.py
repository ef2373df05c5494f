"""Values the user says a program reads: `--assume train.py:12=512`, `assume={"train.py:12": 512}`.

1. A place is a file's name, or the end of its path, and a line: the line of the user's code where a value only a real run
   has is read (`item()`, a branch, a tensor brought to the host), or where a result's size depends on data.
2. A number is the value, or the size; true and false are flags; a tensor has it in every element.
3. An assumption nobody asked for is noted: its line may be wrong, or not reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from analyzer.errors import OptionError

_PLACE = re.compile(r"(?P<file>[^:=]+\.py):(?P<line>\d+)")


def parsed(texts: Mapping[str, Any]) -> dict[str, bool | int | float]:
    """Checked assumptions. Raises OptionError for what is no place, or no value."""
    return {_place(place): _value(place, value) for place, value in texts.items()}


def _place(place: str) -> str:
    if not isinstance(place, str) or _PLACE.fullmatch(place) is None:
        raise OptionError(f"assume: {place!r} is no place in a program", "write FILE.py:LINE=VALUE")
    return place


def _value(place: str, value: Any) -> bool | int | float:
    if isinstance(value, (bool, int, float)):
        return value
    text = str(value).strip().lower()
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise OptionError(f"assume: {place} is {value!r}", "give a number, true or false")


class Assumptions:
    """What is assumed, and what of it was asked for."""

    def __init__(self, values: Mapping[str, bool | int | float] | None = None) -> None:
        self._values = dict(values or {})
        self._asked: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._values)

    def at(self, path: str, line: int) -> bool | int | float | None:
        """The value assumed for a line of a file; None where nothing is."""
        for place, value in self._values.items():
            file, _, number = place.rpartition(":")
            if int(number) == line and (path == file or path.replace("\\", "/").endswith(f"/{file}")):
                self._asked.add(place)
                return value
        return None

    def notes(self) -> Iterator[str]:
        """What came of each."""
        for place, value in self._values.items():
            if place in self._asked:
                yield f"{place}: {value} is assumed, as was said"
            else:
                yield f"nothing was read at {place}: what was said to be assumed there had no effect"
