"""The command line in this process, and checks of its pages and errors, for the core's commands and for extensions'."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from analyzer.cli import Commands, group, main
from tests.paths import MODELS

GIB = 1 << 30
FILE = str(MODELS / "cnn.onnx")


class Ran(NamedTuple):
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`analyze` with these words."""

    def run(*arguments: Any) -> Ran:
        code = main([str(argument) for argument in arguments])
        return Ran(code, *capsys.readouterr())

    return run


def command(name: str) -> Any:
    found = Commands().get_command(click.Context(group), name)
    assert found is not None
    return found


def check_page(run: Any, words: tuple[str, ...]) -> None:
    shown = run(*words, "--help").out.splitlines()
    assert "Examples:" in shown
    assert len(shown) <= 60 and max(map(len, shown)) <= 80


def check_help_all(run: Any, name: str) -> None:
    short, whole = run(name, "--help").out, run(name, "--help-all").out
    options = [param.opts[-1] for param in command(name).params if isinstance(param, click.Option)]
    assert all(option in whole for option in options) and not all(option in short for option in options)
    assert "--help-all" in short


def errs(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, error: tuple[str, str]
) -> None:
    """The command ends with this message and hint, beside files of many kinds."""
    for name in ("resnet50.onnx", "train.py", "saved.json", "snapshot.pickle", "grid.yaml", "config.json"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    message, hint = error
    lines = [line for line in run(*words.split()).err.splitlines() if "protection" not in line]
    assert lines == [f"analyze: error: {message}", f"  hint: {hint}"]


def refuses(path: Path, said: str) -> None:
    """The command refuses the file, soon and in little memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        [sys.executable, "-m", "analyzer", str(path), "-q"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (GIB, GIB)),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.returncode == 2 and said in " ".join(ran.stderr.split()), ran.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10


def answers_first(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, first: str) -> None:
    """The first line begins so, and no line is too long."""
    monkeypatch.setattr("analyzer.devices.nvml.name", lambda: None)
    monkeypatch.setenv("COLUMNS", "80")
    saved = tmp_path / "saved.json"
    if "SAVED" in words:
        assert run(FILE, "--batch", "4", "--device", "t4", "--format", "json", "-o", saved).code == 0
    shown = run(*words.replace("SAVED", str(saved)).split()).out
    lines = shown.splitlines()
    assert lines[0].replace(str(MODELS.parent) + "/", "").startswith(first)
    if "completion" not in words:
        assert max(map(len, lines)) <= 80
    assert "Traceback" not in shown and "\x1b" not in shown
