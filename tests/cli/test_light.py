"""The light installation: without torch every command that needs it says so in one sentence, and the others work."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from analyzer.errors import DISTRIBUTION
from tests.paths import MODELS, ROOT

# An interpreter that finds everything but torch, as one has it that installed the base dependencies alone.
HIDING = """
import sys
from importlib.machinery import PathFinder

class WithoutTorch:
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [WithoutTorch() if finder is PathFinder else finder for finder in sys.meta_path]
"""


def light(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDING + code, *words],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def command(words: str) -> subprocess.CompletedProcess[str]:
    return light("from analyzer.cli import main\nsys.exit(main())", *words.split())


PROGRAM, FILE = str(MODELS / "cnn.py"), str(MODELS / "cnn.onnx")
NEEDING = (
    PROGRAM,
    "torch.nn:Linear",
    f"{FILE} --mode train --batch 4",
    f"what-if {PROGRAM} --batch 4",
    f"advise {PROGRAM} --batch 4 --device t4",
    f"what-if {FILE} --mode train --batch 4",
    f"fit {PROGRAM} --device t4",
    f"fit {FILE} --mode train --device t4",
    f"sweep {PROGRAM} --batch 1:8",
    f"run {PROGRAM}",
    f"verify {PROGRAM}",
    f"verify run {PROGRAM}",
    f"allocators {PROGRAM} --batch 4",
    "calibrate",
)


@pytest.mark.parametrize("words", NEEDING)
def test_one_sentence_and_the_documented_code(words: str) -> None:
    ran = command(words)
    message, hint = ran.stderr.splitlines()
    assert ran.returncode == 2 and not ran.stdout
    assert re.fullmatch(r"analyze: error: .* torch is not installed", message) and "internal" not in message
    assert hint.startswith(f"  hint: pip install '{DISTRIBUTION}[torch]'")


@pytest.mark.parametrize(
    "words",
    [f"{FILE} --batch 4", f"what-if {FILE} --batch 4", f"advise {FILE} --batch 4 --device t4", f"fit {FILE} --device t4", f"sweep {FILE} --batch 1:4", "devices",
     "explain Conv", "explain aten::convolution", "--version"],
)  # fmt: skip
def test_what_needs_no_torch_works(words: str) -> None:
    ran = command(words)
    assert ran.returncode == 0 and ran.stdout, ran.stderr


@pytest.mark.parametrize(
    "call",
    ["analyze({py!r})", "analyze({onnx!r}, batch=4, mode='train')", "what_if({py!r})", "advise({py!r}, device='t4')", "fit({py!r}, device='t4')",
     "sweep({py!r}, range(1, 9))", "run({py!r})"],
)  # fmt: skip
def test_the_api_raises_the_documented_error(call: str) -> None:
    code = f"""
import analyzer
try:
    analyzer.{call.format(py=PROGRAM, onnx=FILE)}
except analyzer.MissingDependencyError as error:
    print(error.message)
"""
    ran = light(code)
    assert ran.returncode == 0 and ran.stdout.strip().endswith("torch is not installed"), ran.stderr
