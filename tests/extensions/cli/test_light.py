"""The light installation: extensions' commands without torch."""

from __future__ import annotations

import pytest

from tests.light import FILE, PROGRAM, Light, command, light, needs_torch, raises

__all__ = ["command", "light"]
NEEDING = (
    f"advise {PROGRAM} --batch 4 --device t4",
    f"run {PROGRAM}",
    f"verify {PROGRAM}",
    f"verify run {PROGRAM}",
    "calibrate",
)


@pytest.mark.parametrize("words", NEEDING)
def test_one_sentence_and_the_documented_code(command: Light, words: str) -> None:
    needs_torch(command(words))


def test_advice_on_a_file_needs_no_torch(command: Light) -> None:
    ran = command(f"advise {FILE} --batch 4 --device t4")
    assert ran.returncode == 0 and ran.stdout, ran.stderr


@pytest.mark.parametrize("call", ["advise({py!r}, device='t4')", "run({py!r})"])
def test_the_api_raises_the_documented_error(light: Light, call: str) -> None:
    raises(light, call)
