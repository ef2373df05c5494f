"""The user's own lines in the traceback before an error in a log.

1. The last traceback that begins before the error is read ("Traceback (most recent call last)"), outermost
   call first, as Python prints it (`Lib/traceback.py`, `StackSummary.format`); a launcher's prefix of a line
   ("[rank0]: ") does no harm.
2. Lines of installed packages, of Python itself and of code without a file are not the user's.
3. The **place** is the innermost of the user's lines; the **script** is the file of the outermost, where it
   was run as one ("<module>").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath

_BEGIN = "Traceback (most recent call last)"
_FRAME = re.compile(
    r'File "(?P<path>[^"\n]{1,400})", line (?P<line>\d{1,9}), in (?P<name>[^\n]{1,200})'
    r"(?:\n[^\n\S]*(?:\[rank\d{1,6}\]:)?[^\n\S]*(?P<code>(?!File \")[^\n]{1,200}))?"
)
_NOT_OWN = re.compile(r"^<|[/\\](site-packages|dist-packages)[/\\]|[/\\][Ll]ib[/\\](python\d|\w+\.py$)")
_LONGEST = 100_000


@dataclass(frozen=True, slots=True)
class Place:
    """The user's innermost line: file, number, function and text (""), and the script that was run ("")."""

    path: str
    line: int
    function: str
    code: str
    script: str

    def __str__(self) -> str:
        code = f": {self.code}" if self.code else ""
        within = "" if self.function == "<module>" else f", in {self.function}"
        return f"{_name(self.path)}:{self.line}{within}{code}"


def place_before(text: str, position: int) -> Place | None:
    """Return the user's place in the last traceback that begins before a position; None without one."""
    before = text[max(position - _LONGEST, 0) : position]
    begin = before.rfind(_BEGIN)
    if begin < 0:
        return None
    own = [frame for frame in _FRAME.finditer(before, begin) if not _NOT_OWN.search(frame["path"])]
    if not own:
        return None
    outermost, innermost = own[0], own[-1]
    return Place(
        innermost["path"],
        int(innermost["line"]),
        innermost["name"].strip(),
        (innermost["code"] or "").strip(),
        _name(outermost["path"]) if outermost["name"].strip() == "<module>" else "",
    )


def _name(path: str) -> str:
    return (PureWindowsPath if "\\" in path else PurePosixPath)(path).name
