"""What grew between two estimates, by hand and on a seeded regression, in every form; the plugin that holds a budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.cli import main
from analyzer.errors import InputError, OptionError
from analyzer.planning.compare import Change, compare
from analyzer.report import formats
from analyzer.report import json as json_report
from tests.paths import ROOT
from tests.report.estimates import MIB, TRAINING

MODEL = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(512, 4096)
        self.head = nn.Linear(4096, 64)

    def forward(self, x):
        x = self.body(x)
        x = torch.sin(torch.sin(torch.sin(torch.sin(x))))
        {extra}
        return self.head(x)

def make_model():
    return Net()

def make_batch(batch):
    return (torch.randn(batch, 512),), ()
"""


def grown(by: int) -> object:
    return replace(
        TRAINING,
        peak_allocated=TRAINING.peak_allocated + by,
        breakdown={**TRAINING.breakdown, "saved for backward": 20 * MIB + by},
        by_module={**TRAINING.by_module, "conv": 20 * MIB + by},
        by_line={"small.py:12": 20 * MIB + by},
    )


def test_what_grew() -> None:
    difference = compare(TRAINING, grown(MIB))  # type: ignore[arg-type]
    assert difference.exceeds
    assert difference.figures[0] == Change("peak_allocated", 40 * MIB, 41 * MIB)
    assert difference.categories == (Change("saved for backward", 20 * MIB, 21 * MIB),)
    assert difference.modules == (Change("conv", 20 * MIB, 21 * MIB),)
    assert difference.lines == (Change("small.py:12", 20 * MIB, 21 * MIB),)
    assert difference.unlike == () and difference.moved is None


def test_tolerance_is_a_share_of_what_was() -> None:
    """1 MiB on 40 MiB are 2.5 %."""
    after = grown(MIB)
    assert compare(TRAINING, after, 0.024).exceeds  # type: ignore[arg-type]
    assert not compare(TRAINING, after, 0.025).exceeds  # type: ignore[arg-type]
    assert not compare(after, TRAINING).exceeds  # type: ignore[arg-type]
    assert not compare(TRAINING, TRAINING).exceeds
    for wrong in (-0.1, float("nan"), float("inf")):
        with pytest.raises(OptionError):
            compare(TRAINING, TRAINING, wrong)


def test_forms() -> None:
    difference = compare(TRAINING, replace(grown(MIB), batch=64))  # type: ignore[type-var]
    text = formats.render("difference", "text", difference)
    assert isinstance(text, str)
    assert text.startswith("needs more: allocated +1.0 MiB, 2.5 %")
    assert "batch: 128, now 64" in text
    document = json.loads(formats.render("difference", "json", difference))
    assert document["exceeds"] and document["lines"][0]["grown"] == MIB
    github = formats.render("difference", "github", difference)
    assert isinstance(github, str)
    assert "::error title=GPU memory::needs more: allocated +1.0 MiB, 2.5 %25" in github
    assert "::warning file=small.py,line=12,title=GPU memory::+1.0 MiB at the peak, now 21.0 MiB" in github


def test_annotations_cannot_be_forged() -> None:
    """A name out of a model stays within its own annotation."""
    evil = "a,b%\n::error::x.py:3"
    difference = compare(TRAINING, replace(grown(MIB), by_line={evil: 30 * MIB}))  # type: ignore[type-var]
    github = formats.render("difference", "github", difference)
    assert isinstance(github, str)
    assert len(github.splitlines()) == 2
    assert "file=a%2Cb%25 %3A%3Aerror%3A%3Ax.py,line=3" in github


def test_a_seeded_regression_is_found_by_module_and_line(tmp_path: Path) -> None:
    """One more activation of 16 MiB; the same files give the same bytes every time."""
    files = {}
    for name, extra in (("before", "pass"), ("after", "x = torch.sin(x)")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "net.py").write_text(MODEL.format(extra=extra))
        files[name] = str(folder / "estimate.json")
        told = [
            "--batch",
            "1024",
            "--mode",
            "train",
            "--device",
            "h200",
            "--format",
            "json",
            "-o",
            files[name],
        ]
        assert main([str(folder / "net.py"), *told]) == 0
    difference = compare(files["before"], files["after"])
    assert difference.exceeds
    grown_by = {change.name: change.grown for change in difference.lines}
    assert grown_by["net.py:13"] == 2 * 1024 * 4096 * 4  # the activation, and its gradient
    assert {
        formats.render("difference", "json", compare(files["before"], files["after"])) for _ in range(100)
    } == {formats.render("difference", "json", difference)}
    assert main(["compare", files["before"], files["after"]]) == 1
    assert main(["compare", files["before"], files["after"], "--tolerance", "50%"]) == 0
    assert main(["compare", files["after"], files["before"]]) == 0


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "good.json"
    good.write_text(json_report.render(TRAINING))
    (tmp_path / "bad.json").write_text("{}")
    for name, words in (("none.json", "cannot be read"), ("bad.json", "this is not an estimate")):
        with pytest.raises(InputError, match=words):
            compare(good, tmp_path / name)
        assert main(["compare", str(good), str(tmp_path / name)]) == 2
        assert words in capsys.readouterr().err
    assert main(["compare", str(good), str(good), "--tolerance", "much"]) == 2


def test_the_plugin_holds_a_budget(tmp_path: Path) -> None:
    """Of four tests in another project two are over their budget, and say by how much and why."""
    (tmp_path / "net.py").write_text(MODEL.format(extra="pass"))
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_fits(gpu_memory_budget):\n"
        "    assert gpu_memory_budget('2GiB').check('net.py', batch=8, device='h200').peak_allocated > 0\n"
        "def test_over(gpu_memory_budget):\n"
        "    gpu_memory_budget('700MiB', mode='train').check('net.py', batch=8, device='h200')\n"
        "@pytest.mark.gpu_memory_budget('1KiB', device='h200')\n"
        "def test_marker(gpu_memory_budget):\n"
        "    gpu_memory_budget.check('net.py', batch=8)\n"
        "def test_none(gpu_memory_budget):\n"
        "    with pytest.raises(pytest.UsageError):\n"
        "        gpu_memory_budget.check('net.py')\n"
    )
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "analyzer.testing.plugin",
            "-q",
            "--strict-markers",
            "test_it.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 failed, 2 passed" in run.stdout, run.stdout + run.stderr
    assert "expected at most 700.0 MiB, needs 8" in run.stdout
    assert "expected at most 1.0 KiB, needs " in run.stdout
