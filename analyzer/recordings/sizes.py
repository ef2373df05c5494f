"""Sizes in the text of an error: read with the precision they are printed with, and written as PyTorch's."""

from __future__ import annotations

from analyzer.report.words import printed_size as size
from analyzer.results.recording import Figure

__all__ = ["LONGEST", "SIZE", "WHICH_TENSOR", "line_at", "read_figure", "size"]

_UNITS = {
    "bytes": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "KB": 1000,
    "MB": 10**6,
    "GB": 10**9,
}
SIZE = r"(\d{1,12}(?:\.\d{1,4})?) (bytes|KiB|MiB|GiB|TiB|KB|MB|GB)"
WHICH_TENSOR = "which tensor"  # the beginning of a line on a size whose purpose a text does not have
LONGEST = 4000  # characters of a message that are read or quoted


def read_figure(name: str, number: str, unit: str) -> Figure:
    """Return a figure with its precision: of the last digit printed."""
    whole = _UNITS[unit]
    digits = len(number.partition(".")[2])
    return Figure(name, round(float(number) * whole), 0 if unit == "bytes" else max(whole // 10**digits, 1))


def line_at(text: str, position: int) -> str:
    """Return the line of a text that has the position, at most `LONGEST` characters of it."""
    return text[text.rfind("\n", 0, position) + 1 :].partition("\n")[0][:LONGEST]
