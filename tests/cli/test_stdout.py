"""`-` for a file's name is stdout, wherever the command line asks for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from analyzer.cli import Commands, group
from tests.paths import MODELS

SMALL = (MODELS / "cnn.onnx", "--batch", 4, "--device", "h200")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_takes_it_for_the_result() -> None:
    taken = []
    for name in Commands().list_commands(click.Context(group)):
        found = Commands().get_command(click.Context(group), name)
        for option in found.params if found else ():
            if option.name == "output" and name != "calibrate":  # whose result is two files
                assert option.process_value(click.Context(found), "-") is None, name
                taken.append(name)
    core = ("allocators", "compare", "estimate", "explain", "fit", "grid", "report", "sweep", "what-if")
    assert set(core) <= set(taken)


def test_the_result(run: Any, folder: Path) -> None:
    code, out, err = run(*SMALL, "--format", "json", "-o", "-")
    assert (code, err) == (0, "") and json.loads(out)["batch"] == 4
    assert list(folder.iterdir()) == []


def test_what_is_written_beside_it_has_stdout_for_itself(run: Any) -> None:
    code, graph, report = run(*SMALL, "--dump-graph", "-")
    assert code == 0 and report == run(*SMALL).out
    run(*SMALL, "--dump-graph", "graph", "-o", "result")
    assert graph == Path("graph").read_text() and report == Path("result").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*SMALL, "--dump-graph", "-", "--write-script", "-"), "would both be stdout"),
        (("grid", "grid.yaml", "--journal", "-"), "--journal - is stdout"),
        ((*SMALL, "--plot", "-"), "is no picture"),
    ],
)
def test_what_cannot_be_stdout_is_said(run: Any, folder: Path, words: tuple[Any, ...], message: str) -> None:
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "") and message in ran.err
    assert list(folder.iterdir()) == []
