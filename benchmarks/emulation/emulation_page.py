"""The tables of docs/EMULATION.md, each between two marks that name it."""

from __future__ import annotations

import re

from benchmarks import ROOT

PAGE = ROOT / "docs" / "EMULATION.md"


def _marks(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name}: [^>]*-->\n).*?(<!-- /{name} -->)", re.S)


def part(name: str, page: str) -> str:
    """A table as it stands in the page, with its marks; "" where there is none."""
    found = _marks(name).search(page)
    return found[0] if found else ""


def replaced(name: str, table: str, page: str) -> str:
    """The page with the table anew."""
    return _marks(name).sub(lambda found: f"{found[1]}{table}\n{found[2]}", page)
