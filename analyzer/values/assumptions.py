"""Values the user says a program reads: `--assume train.py:12=512`, `assume={"train.py:12": 512}`.

1. A place is a file's name, or the end of its path, and a line: the line of the user's code where a value
   only a real run has is read (`item()`, a branch, a tensor brought to the host), or where a result's size
   depends on data.
2. A number is the value, or the size; true and false are flags; a tensor has it in every element.
3. An assumption nobody asked for is noted: its line may be wrong, or not reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class Assumptions:
    """Values the user assumes; used: places where the program read one."""

    def __init__(self, values: Mapping[str, bool | int | float] | None = None) -> None:
        self._values = dict(values or {})
        self.used: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._values)

    def at(self, path: str, line: int) -> bool | int | float | None:
        """Return the value assumed for a line of a file; None where nothing is."""
        for place, value in self._values.items():
            file, _, number = place.rpartition(":")
            if int(number) == line and (path == file or path.replace("\\", "/").endswith(f"/{file}")):
                self.used.add(place)
                return value
        return None

    def notes(self) -> Iterator[str]:
        """Yield a note for each assumption: read, or without effect."""
        for place, value in self._values.items():
            if place in self.used:
                yield f"{place}: {value} is assumed, as given"
            else:
                yield f"nothing was read at {place}: the assumption for it had no effect"
