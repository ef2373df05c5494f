"""A file that the user names, read as text within bounds.

1. Only a regular file is opened: opening a FIFO, a socket or a device may block or have side effects.
2. Its size, and the values in a JSON or YAML text, are bounded before anything is made of them: the memory
   they take goes by their number (an empty list has two characters, and 64 bytes in Python).
3. Any other reason why a text is unreadable (nested too deeply for Python, a number with too many digits) is
   one `UnreadableError`, whose text is the reason alone; callers add the file and the hint.
4. All bounds on input grow by the factor in the environment variable `ANALYZER_INPUT_LIMIT` ("4").

The refused inputs, and the bounds: `docs/evidence/UNTRUSTED.md`.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT_VARIABLE = "ANALYZER_INPUT_LIMIT"
MOST_BYTES = 256 << 20  # a saved estimate of a million events has some 100 MB
MOST_VALUES = 6_000_000
_MOST_YAML_VALUES, _MOST_KEYS = 50_000, 10_000  # PyYAML takes 0.1 ms for a value
_KINDS = (
    (stat.S_ISDIR, "it is a folder"),
    (stat.S_ISFIFO, "it is a FIFO"),
    (stat.S_ISSOCK, "it is a socket"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
)


class UnreadableError(Exception):
    """A file or a text that is not read; its text is the reason ("it is a FIFO")."""


def allowed(bound: int) -> int:
    """Return a bound on input, as many times as the user allows (`ANALYZER_INPUT_LIMIT`)."""
    try:
        factor = float(os.environ.get(LIMIT_VARIABLE) or 1)
        return int(bound * factor) if factor >= 1 else bound
    except (ValueError, OverflowError):  # no number, or none that is finite
        return bound


def more(factor: int = 4) -> str:
    """Return a hint's end: how a bound on input is raised."""
    return f"{LIMIT_VARIABLE}={factor} in the environment allows {factor} times as much"


def irregular(path: Path) -> str:
    """Return why a file is not one that is opened ("it is a FIFO"), "" where it is regular or missing."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return ""
    if stat.S_ISREG(mode):
        return ""
    return next((reason for is_kind, reason in _KINDS if is_kind(mode)), "it is no regular file")


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Return the UTF-8 text of a regular file. Raises UnreadableError."""
    if reason := irregular(path):
        raise UnreadableError(reason)
    most_bytes = allowed(most_bytes)
    try:
        with path.open("rb") as stream:
            content = stream.read(most_bytes + 1)
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from None
    except ValueError as error:  # a name with a null byte
        raise UnreadableError(str(error)) from None
    if len(content) > most_bytes:
        raise UnreadableError(f"it has more than {most_bytes:,} bytes; {more()}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise UnreadableError("it is no text") from None


def append_text(path: Path, text: str) -> None:
    """Add to the end of a file, which is made where it is missing. Raises OSError."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)


def read_json(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """Return the content of a JSON file. Raises UnreadableError."""
    return parse_json(read_text(path, most_bytes))


def parse_json(text: str) -> Any:
    """Return what a JSON text says. Raises UnreadableError."""
    return _parsed("JSON", json.loads, text, "[{,")


def parse_yaml(text: str) -> Any:
    """Return what a YAML text says, whose numbers have 64 bits at most. Raises UnreadableError."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def flatten_mapping(self, node: Any) -> None:
            """Merge keys (`<<`) multiply: of thirty lines, each with two of the line before, come 2^30."""
            super().flatten_mapping(node)
            if len(node.value) > _MOST_KEYS:
                raise yaml.YAMLError(f"a mapping of more than {_MOST_KEYS:,} keys")

        def construct_yaml_int(self, node: Any) -> int:
            number: int = super().construct_yaml_int(node)
            if number.bit_length() > 64:
                raise yaml.YAMLError("a number of more than 64 bits")
            return number

        def construct_yaml_str(self, node: Any) -> str:
            text: str = super().construct_yaml_str(node)
            if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
                raise yaml.YAMLError("a text with characters that no file's name can have")
            return text

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    Loader.add_constructor("tag:yaml.org,2002:str", Loader.construct_yaml_str)

    def load(text: str) -> Any:
        try:
            return yaml.load(text, Loader)
        except yaml.YAMLError as error:
            raise ValueError(" ".join(str(error).split())) from None

    return _parsed("YAML", load, text, "[{,:-\n", _MOST_YAML_VALUES)


def _parsed(
    form: str, parse: Callable[[str], Any], text: str, marks: str, most_values: int = MOST_VALUES
) -> Any:
    """marks: characters of which each value has at least one."""
    if sum(map(text.count, marks)) > allowed(most_values):
        raise UnreadableError(f"it has more than {allowed(most_values):,} values; {more()}")
    try:
        return parse(text)
    except RecursionError:
        raise UnreadableError(f"it is not {form}: it is nested too deeply") from None
    except MemoryError:
        raise UnreadableError("there is no memory for what it says") from None
    except (ValueError, TypeError, OverflowError) as error:
        reason = "a number has too many digits" if "digits" in str(error) else f"it is not {form}: {error}"
        raise UnreadableError(reason) from None
