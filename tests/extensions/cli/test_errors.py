"""Errors of extensions' commands to the letter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.commands import errs

ERRORS = {
    "config.jsn.json": (
        "config.jsn.json: no such file",
        "did you mean 'config.json'? give config.json, its folder, or hf:ORG/NAME; see: analyze --help",
    ),
    "run resnet50.onnx": (
        "resnet50.onnx is a model, not a Python program",
        "analyze resnet50.onnx predicts it; run takes a Python file that loads it; see: analyze run --help",
    ),
    "run trian.py": ("trian.py: no such file", "did you mean 'train.py'? see: analyze run --help"),
}


@pytest.mark.parametrize("words", ERRORS)
def test_an_error_to_the_letter(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    errs(run, tmp_path, monkeypatch, words, ERRORS[words])


SCRIPT = "import argparse\nasked = argparse.ArgumentParser()\nasked.add_argument('--device')\nasked.parse_known_args()\n"


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("", ["--device", "rtx4090"], "--device rtx4090"),
        (SCRIPT, ["--device=RTX 4090"], "--device=RTX 4090"),
        ("", ["--device", "24GiB"], "--device 24GiB"),
        (SCRIPT, ["--device", "cuda:0"], ""),
        ("", ["--budget", "8GiB"], "--budget 8GiB"),
        ("budget = 8\n", ["--budget", "8GiB"], ""),
        ("", ["--epochs", "3"], ""),
    ],
)
def test_an_option_behind_a_script_is_noticed(
    run: Any, tmp_path: Path, text: str, words: list[str], said: str
) -> None:
    script = tmp_path / "program.py"
    script.write_text(text)
    ran = run("run", script, *words)
    assert ran.code == 0
    warned = (
        f"analyze: warning: {said} follows {script} and was passed to it; options of analyze come before it:"
        f" analyze run {said} {script}\n"
    )
    assert (warned in ran.err) if said else ("was passed to it" not in ran.err)
    assert "was passed to it" not in run("run", "-q", script, *words).err
    assert "was passed to it" not in run("run", "--device", "t4", "--budget", "9GiB", script, *words).err
