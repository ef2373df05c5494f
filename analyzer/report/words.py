"""Bytes and untrusted names as text.

1. Sizes are binary (1 MiB = 2^20 B), in integers of any size.
2. Names come out of models and are untrusted: escape sequences, control, formatting (bidirectional,
   zero-width) and unassigned characters never reach a terminal; what remains is one line, which has an end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

MIB = 2**20
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
# ECMA-48: control sequences, operating-system commands and other strings, two-character escapes.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b.?|\x9b[0-?]*[ -/]*[@-~]", re.DOTALL
)
_FIGURE = re.compile(r"\d+(,\d{3})*(\.\d+)?")
_PARTICULARS = re.compile(r"\([^()]*\)|\d[\d,.]*")
_LONGEST = 8_000  # characters of a name or a sentence: twice a path's longest
_LOOK_ALIKES = str.maketrans({"─": "-", "█": "#", "…": "~", "·": "-"})


def size(nbytes: int) -> str:
    """`nbytes` in the largest unit that leaves at least 1, one decimal: "1.5 GiB"; signed."""
    scale = min((abs(nbytes).bit_length() - 1) // 10, len(_UNITS) - 1) if nbytes else 0
    return f"{nbytes:,} B" if scale == 0 else f"{_tenths(nbytes, 1024**scale)} {_UNITS[scale]}"


def printed_size(nbytes: int) -> str:
    """Return bytes with two decimals, as PyTorch's messages have them (`format_size`)."""
    for unit, scale in (("GiB", 2**30), ("MiB", MIB), ("KiB", 1024)):
        if nbytes >= scale:
            return f"{nbytes / scale:,.2f} {unit}"
    return f"{nbytes} bytes"


def span(least: str, most: str) -> str:
    """Return a range as it is written: "1.5 GiB to 2 GiB"; the one figure where both ends read the same."""
    return least if least == most else f"{least} to {most}"


def sizes(least: int, most: int) -> str:
    """Return a range of bytes with both ends in one unit, the greater one's: "0.7 GiB to 1.5 GiB"; the lesser
    one's where that says too little of it, or they would read the same."""
    if least >= most or most < 1024:
        return span(size(least), size(most))
    scales = [min((abs(end).bit_length() - 1) // 10, len(_UNITS) - 1) if end else 0 for end in (most, least)]
    if 2 * least < 1024 ** scales[0]:
        scales.reverse()
    for scale in filter(None, scales):
        if (low := _tenths(least, 1024**scale)) != (high := _tenths(most, 1024**scale)):
            return f"{low} {_UNITS[scale]} to {high} {_UNITS[scale]}"
    return span(size(least), size(most))


def mib(nbytes: int) -> str:
    """`nbytes` in MiB, one decimal, thousands separated, exact rounding for integers of any size."""
    return _tenths(nbytes, MIB)


def unit(values: Iterable[int]) -> tuple[str, Callable[[int], str]]:
    """Return a column's unit and a function that writes its figures: MiB, or bytes if one is small."""
    if any(0 < abs(value) < MIB // 20 for value in values):
        return "bytes", "{:,}".format
    return "MiB", mib


def percent(part: int, total: int) -> str:
    """Return `part` of `total` in percent with one decimal; a dash if `total` is 0."""
    return f"{_tenths(100 * part, total)} %" if total else "-"


def clean(text: object) -> str:
    """`text` as one printable line: no escape sequences, control, formatting or unassigned characters; the
    middle of an endless one omitted."""
    written = str(text)
    if len(written) > _LONGEST:
        written = f"{written[: _LONGEST // 2]}…{written[-_LONGEST // 4 :]}"
    stripped = _ESCAPES.sub("", written)
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in stripped).strip()


def as_typed(text: str) -> str:
    """`text` as `clean` has it, with the blanks at both ends of lines that a command or a patch needs."""
    kept = ("\t".join(clean(f"|{part}|")[1:-1] for part in line.split("\t")) for line in text.splitlines())
    return "\n".join(kept)


def folded(notes: Iterable[str], verbose: bool = False) -> list[str]:
    """Merge notes that differ only in figures and parentheses; keep the largest, count the others."""
    alike: dict[str, list[str]] = {}
    for number, note in enumerate(notes):
        kind = f"{number}" if verbose else _PARTICULARS.sub("#", note)
        alike.setdefault(kind, []).append(note)
    return [
        max(same, key=_first_figure)
        + (f", and {len(same) - 1:,} more like it (--verbose)" if len(same) > 1 else "")
        for same in alike.values()
    ]


def _first_figure(note: str) -> float:
    match = _FIGURE.search(note)
    return float(match[0].replace(",", "")) if match else 0.0


def operator_name(name: str) -> str:
    """Return an operator as users write it, without PyTorch's overload: "where" for "aten::where.self"; one
    of a library keeps its namespace."""
    own = clean(name)
    if own.startswith("aten::"):
        return own.removeprefix("aten::").partition(".")[0]
    return own.removesuffix(".default") if "::" in own else own


def pieces(count: int) -> str:
    """Return a number of pieces in words."""
    return f"{count:,} piece{'' if count == 1 else 's'}"


def ascii_only(text: str) -> str:
    """Return `text` for an ASCII stream: drawing characters by look-alikes, others as "?"."""
    return text.translate(_LOOK_ALIKES).encode("ascii", "replace").decode("ascii")


def tail(text: str, width: int) -> str:
    """Return the end of `text` in `width` characters: of a module path or a file, the end says most."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def _tenths(numerator: int, denominator: int) -> str:
    """numerator / denominator to one decimal, half away from zero, in integer arithmetic."""
    tenths = (20 * abs(numerator) + denominator) // (2 * denominator)
    sign = "-" if numerator < 0 and tenths else ""
    return f"{sign}{tenths // 10:,}.{tenths % 10}"


def duration(seconds: float) -> str:
    """Return a time as text: "41 ms", "1.3 s", "870 us"."""
    for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale or name == "us":
            value = seconds / scale
            return f"{value:.1f} {name}" if value < 10 else f"{value:,.0f} {name}"
    return "0 us"
