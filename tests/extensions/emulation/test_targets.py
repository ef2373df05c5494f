"""`analyze emulate TARGET`, `verify --emulated` and `--assume`: what is a target, what is refused, and, where a CUDA build of PyTorch is, models run by it."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

import analyzer
from analyzer.cli import group
from analyzer.errors import MissingDependencyError, OptionError, TargetError
from analyzer.options import Options
from analyzer_emulation import launch, library
from analyzer_emulation.commands.emulate import command
from analyzer_emulation.emulated import is_target
from tests.paths import ROOT

NET = ROOT / "tests/extensions/emulation/programs/net.py"


@pytest.mark.parametrize(
    ("words", "is_one"),
    [
        ("train.py", False), ("-m package.train", False), ("bin/train", False), ("net.py:make_model", True),
        ("package.module:Net", True), ("program.pt2", True), ("net.onnx", True), ("config.json", True),
        ("hf:org/name", True), (str(ROOT / "models"), True),
    ],
)  # fmt: skip
def test_what_is_a_target(words: str, is_one: bool) -> None:
    assert is_target(words) is is_one


def test_what_is_not_emulated_is_said() -> None:
    with pytest.raises(TargetError, match="run by ONNX Runtime, and what is emulated is PyTorch"):
        analyzer.emulate(ROOT / "models/cnn.onnx")
    with pytest.raises(OptionError, match="parallel is not emulated for a target"):
        analyzer.emulate(f"{NET}:Net", parallel="ddp:2")
    with pytest.raises(OptionError, match="no arguments and no ranks"):
        analyzer.emulate(f"{NET}:Net", ranks=2)
    with pytest.raises(OptionError, match=r"batch is of targets, and .*net\.py is run as a script"):
        analyzer.emulate(NET, batch=2)
    with pytest.raises(OptionError, match="optimizer is of targets"):
        analyzer.emulate(NET, optimizer="adam")


def words_of(*words: str) -> dict[str, object]:
    with click.Context(group) as above:
        return command.make_context("emulate", list(words), above).params


def test_options_may_follow_a_target_and_are_a_script_s_own() -> None:
    found = words_of("--device", "t4", "net.py:Net", "--batch", "8", "--amp", "bf16")
    assert (found["script"], found["arguments"], found["batch"], found["amp"]) == (
        "net.py:Net",
        (),
        8,
        "bf16",
    )
    found = words_of("--device", "t4", "train.py", "--batch", "8")
    assert (found["script"], found["arguments"], found["batch"]) == ("train.py", ("--batch", "8"), None)
    found = words_of("-m", "pack:age", "--batch", "8")
    assert found["arguments"] == ("--batch", "8")


@pytest.mark.parametrize(
    ("attribute", "options"),
    [
        ("Net", {"mode": "train", "batch": 64, "optimizer": "adam"}),
        ("Net", {"mode": "train", "batch": 32, "amp": "fp16", "grad_accumulation": 2}),
        ("Net", {"batch": 8, "dtype": "bf16"}),
    ],
)
def test_a_model_takes_what_is_traced(python: Path, attribute: str, options: dict[str, object]) -> None:
    found = analyzer.emulate(f"{NET}:{attribute}", python=python, device="h200", **options)
    release = launch.find_torch(python).version.partition("+")[0]
    traced = analyzer.analyze(f"{NET}:{attribute}", device="h200", release={"torch": release}, **options)
    assert found.incomplete is None
    assert (found.peak_allocated, found.peak_reserved, found.device_used) == (
        traced.peak_allocated,
        traced.peak_reserved,
        traced.device_used,
    )
    assert (found.target, found.mode, found.batch) == (traced.target, traced.mode, traced.batch)
    assert found.breakdown["parameters"] == traced.breakdown["parameters"]


def test_a_prediction_beside_its_emulation_has_the_same_history(python: Path) -> None:
    from analyzer_emulation.beside import verify_target

    options = Options(mode="train", batch=64, optimizer="adam", device="h200")
    found = verify_target(f"{NET}:Net", options, str(python))
    assert found.history is not None and found.history.same and found.history.recorded_count > 50
    assert [figure.error_percent for figure in found.figures[2:]] == [0, 0, 0, 0]
    assert len(found.marks) == 3 and all(mark.same for mark in found.marks)
    assert found.environment["emulated"].endswith("on NVIDIA H200")


def test_what_is_assumed_at_a_line_is_read_there(python: Path) -> None:
    line = next(n for n, text in enumerate(NET.read_text().splitlines(), 1) if "kept = int" in text)
    options = {"batch": 144, "device": "h200", "python": python}
    alone = analyzer.emulate(f"{NET}:Asking", **options)
    assert any(f"net.py:{line}: a number: 1" in note for note in alone.notes)
    said = analyzer.emulate(f"{NET}:Asking", assume={f"net.py:{line}": 128, "net.py:1": 2}, **options)
    assert f"net.py:{line}: 128 is assumed, as given" in said.notes
    assert any("nothing was read at net.py:1" in note for note in said.notes)
    assert not any("a number: 1" in note for note in said.notes)
    whole = analyzer.emulate(f"{NET}:Net", **{**options, "batch": 128})
    assert (
        said.peak_allocated - whole.peak_allocated == 16 * 1000 * 4
    )  # the rows left out; their sum is given back


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    with pytest.raises(MissingDependencyError, match="was not compiled when this package was installed"):
        library.path()
