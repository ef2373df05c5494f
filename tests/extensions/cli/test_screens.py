"""Extensions' commands: the answer comes first, pages are short, a misspelt name is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.commands import FILE, answers_first, check_help_all, check_page


def test_the_answer_comes_first_and_lines_fit(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"advise {FILE} --batch 4 --device t4"
    answers_first(run, tmp_path, monkeypatch, words, "fastest way that fits: ")


def test_a_commands_own_commands_have_short_pages(run: Any) -> None:
    check_page(run, ("verify", "run"))


def test_help_all_has_every_option(run: Any) -> None:
    check_help_all(run, "run")


def test_a_misspelt_command_is_told(run: Any) -> None:
    assert "did you mean 'verify'?" in run("verfy", FILE).err
