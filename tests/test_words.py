"""Plain English: the wordings that are being given up only become fewer."""

from __future__ import annotations

import json

import pytest

from tests import words


def test_they_only_fall() -> None:
    """Fewer than recorded: `python -m tests.words` records it, so that they stay so few."""
    assert words.counts() == json.loads(words.RECORDED.read_text())


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("What it takes is counted.", 1),
        ("The peak. Whoever reads it waits.", 1),
        ("# What nobody measured is bounded", 1),
        ("What does it take? The peak.", 0),
        ("It says what it takes.", 0),
        ("- Who holds the peak, by module", 1),
    ],
)
def test_sentences_whose_subject_is_a_clause(text: str, count: int) -> None:
    assert words.sentences(text) == count


def test_names_and_skipped_lines() -> None:
    source = (
        "def found(asked, count):\n    self._seen = lost = 1  # fmt"
        + ': skip\n    return found("What is lost is gone.")\n'
    )
    assert words.of_source(source) == (1, 4, 1)
