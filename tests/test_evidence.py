"""The index of the evidence: every page is in it, and its figures are the pages'."""

from __future__ import annotations

import json

import pytest

from benchmarks import evidence
from benchmarks.emulation import cards, kept, programs, truth
from benchmarks.harness import pages
from tests.paths import ROOT


def test_the_index_says_what_the_pages_say() -> None:
    entries = json.loads((ROOT / "benchmarks/evidence.json").read_text())
    assert {path.name for path in evidence.FOLDER.glob("*.md")} - {"index.md"} == entries.keys()
    page = evidence.PAGE.read_text()
    assert page == evidence.index(), "run: python -m benchmarks evidence table"
    assert all(any(letter.isdigit() for letter in row.split("|")[1]) or "exact" in row.split("|")[1]
               for row in page.splitlines() if row.startswith("| ") and "](" in row)  # fmt: skip


@pytest.mark.parametrize("name", list(kept.HEADS))
def test_the_tables_of_emulation_are_made_of_their_cases(name: str) -> None:
    text = {"truth": truth.text, "cards": cards.text}.get(name, programs.text)
    assert pages.part(kept.PAGE, name) == kept.section(name, kept.load(name), text)


def test_a_case_that_did_not_run_is_not_exact() -> None:
    cases = [
        ("lora", ["2.0 MiB exact", "4.0 MiB -1.500 %", "8.0 MiB +0.250 %", "3 s"]),
        ("lora_gc rank 0", [*"---", "why"]),
    ]
    line = "| lora | 2 | 1 of 2 | 0.00 / 0.00 % | 0 of 2 | 1.50 / 1.50 % | 0 of 2 | 0.25 / 0.25 % | lora, reserved -1.50 % |"
    assert line in programs.text(cases)
    assert "1 of the 2 cases that run are exact to the byte in both; 1 end" in truth.text(
        [
            ("net, batch 1, infer", [*"00", "3 s"]),
            ("net, batch 2, infer", ["0", "512", "3 s"]),
            ("a, batch 3, infer", [*"--", "why"]),
        ]
    )
