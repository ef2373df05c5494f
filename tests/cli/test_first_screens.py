"""What a command prints first, in 80 columns: the answer, in lines that fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.commands import answers_first
from tests.paths import MODELS

FILE = str(MODELS / "cnn.onnx")
# The words of a command, and what its first line begins with.
SCREENS = [
    (f"{FILE} --batch 4 --device t4", "fits: "),
    (f"{FILE} --batch 4 --device t4 --budget 8MiB", "over budget: needs "),
    (f"{FILE} --batch 4", "on h200 it would take "),
    (f"fit {FILE} --device t4,rtx4090", "device "),
    (f"fit {FILE} --device t4", "largest batch "),
    (f"sweep {FILE} --batch 1:8 --device t4", "models/cnn.onnx"),
    (f"what-if {FILE} --batch 4 --device t4", "models/cnn.onnx"),
    (f"allocators {FILE} --batch 4 --device t4", "fits under "),
    ("devices", "device "),
    ("explain cudnn-convolution", "cudnn-convolution"),
    ("report SAVED", "fits: "),
    ("compare SAVED SAVED", "no change"),
    ("completion bash", ""),
]


@pytest.mark.parametrize(("words", "first"), SCREENS, ids=lambda value: value.replace(FILE, "cnn.onnx"))
def test_the_answer_comes_first_and_lines_fit(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, first: str
) -> None:
    answers_first(run, tmp_path, monkeypatch, words, first)
