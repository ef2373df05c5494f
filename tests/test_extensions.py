"""The core without its extensions: it analyses models and files, and names the package that something else needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.paths import MODELS

# An interpreter that finds no extension, as one has it where only `analyzer` lies.
CORE = """
import sys
from importlib.machinery import PathFinder

class Core:
    def find_spec(self, name, path=None, target=None):
        return None if name.startswith("analyzer_") else PathFinder.find_spec(name, path, target)

    def find_distributions(self, context):
        return PathFinder.find_distributions(context)

sys.meta_path[:] = [Core() if finder is PathFinder else finder for finder in sys.meta_path]
"""


def core(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CORE + code, *words], capture_output=True, text=True, check=False
    )


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return core("from analyzer.cli import main\nsys.exit(main())", *words)


@pytest.mark.parametrize(
    "words",
    [
        (str(MODELS / "cnn.onnx"), "--batch", "4", "--device", "t4"),
        ("fit", str(MODELS / "cnn.onnx"), "--device", "t4"),
        ("devices",),
        ("--help",),
    ],
)
def test_the_core_stands_alone(words: tuple[str, ...]) -> None:
    ran = command(*words)
    assert ran.returncode == 0 and ran.stdout and not ran.stderr, ran.stderr


@pytest.mark.parametrize(
    "name", ["run", "emulate", "engine", "pipeline", "serve", "advise", "verify", "calibrate"]
)
def test_a_command_of_an_absent_extension_is_one_line(name: str) -> None:
    ran = command(name, "x.py")
    message, hint = ran.stderr.splitlines()
    assert ran.returncode == 2 and not ran.stdout
    assert message.startswith(f"analyze: error: analyze {name} needs the extension analyzer_")
    assert message.endswith(", which is not installed") and hint.startswith("  hint: pip install")


def test_a_model_is_analysed_and_its_time_is_unknown() -> None:
    pytest.importorskip("torch")
    code = (
        "import analyzer, torch\nmodel = torch.nn.Linear(8, 8)\n"
        "found = analyzer.analyze(model, [torch.zeros(2, 8)], mode='train', loss='sum', device='h200')\n"
        "print(found.peak_allocated > 0, found.step_seconds, [name for name in sys.modules if name.startswith('analyzer_')])"
    )
    ran = core(code)
    assert ran.stdout.strip() == "True None []", ran.stderr


def test_a_targets_code_runs_unprotected_only_if_that_is_asked_for() -> None:
    pytest.importorskip("torch")
    refused = command(str(MODELS / "linear.py"), "--batch", "2", "--device", "t4")
    assert refused.returncode == 2 and "analyzer_sandbox is not installed" in refused.stderr
    ran = command(str(MODELS / "linear.py"), "--batch", "2", "--device", "t4", "--unprotected")
    assert ran.returncode == 0, ran.stderr
