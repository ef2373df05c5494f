"""The light installation: without torch every command that needs it says so in one sentence, and the others work."""

from __future__ import annotations

import pytest

from tests.light import FILE, PROGRAM, Light, command, light, needs_torch, raises

__all__ = ["command", "light"]
NEEDING = (
    PROGRAM,
    "torch.nn:Linear",
    f"{FILE} --mode train --batch 4",
    f"what-if {PROGRAM} --batch 4",
    f"what-if {FILE} --mode train --batch 4",
    f"fit {PROGRAM} --device t4",
    f"fit {FILE} --mode train --device t4",
    f"sweep {PROGRAM} --batch 1:8",
    f"allocators {PROGRAM} --batch 4",
)


@pytest.mark.parametrize("words", NEEDING)
def test_one_sentence_and_the_documented_code(command: Light, words: str) -> None:
    needs_torch(command(words))


@pytest.mark.parametrize(
    "words",
    [f"{FILE} --batch 4", f"what-if {FILE} --batch 4", f"fit {FILE} --device t4", f"sweep {FILE} --batch 1:4", "devices",
     "explain Conv", "explain aten::convolution", "--version"],
)  # fmt: skip
def test_what_needs_no_torch_works(command: Light, words: str) -> None:
    ran = command(words)
    assert ran.returncode == 0 and ran.stdout, ran.stderr


@pytest.mark.parametrize(
    "call",
    ["analyze({py!r})", "analyze({onnx!r}, batch=4, mode='train')", "what_if({py!r})", "fit({py!r}, device='t4')",
     "sweep({py!r}, range(1, 9))"],
)  # fmt: skip
def test_the_api_raises_the_documented_error(light: Light, call: str) -> None:
    raises(light, call)
