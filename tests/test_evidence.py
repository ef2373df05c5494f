"""The index of the evidence: every page is in it, and its figures are the pages'."""

from __future__ import annotations

import json

from benchmarks import evidence
from tests.paths import ROOT


def test_the_index_says_what_the_pages_say() -> None:
    entries = json.loads((ROOT / "benchmarks/evidence.json").read_text())
    assert {path.name for path in evidence.FOLDER.glob("*.md")} - {"index.md"} == entries.keys()
    page = evidence.PAGE.read_text()
    assert page == evidence.index(), "run: python -m benchmarks evidence table"
    assert all(any(letter.isdigit() for letter in row.split("|")[1]) or "exact" in row.split("|")[1]
               for row in page.splitlines() if row.startswith("| ") and "](" in row)  # fmt: skip
