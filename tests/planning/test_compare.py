"""What grew between two estimates, by hand and on a seeded regression, in every form; the plugin that holds a budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import analyzer
from analyzer.cli import main
from analyzer.errors import InputError, OptionError
from analyzer.planning.compare import compare, shares
from analyzer.report import formats
from analyzer.report import json as json_report
from analyzer.results.difference import Change
from analyzer.results.estimate import TensorRow
from analyzer.testing.plugin import Budget
from tests import forked
from tests.paths import PYTHONPATH
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


def share_of(category: str, module: str, nbytes: int) -> TensorRow:
    return TensorRow(
        "x", nbytes, category, "float32", (nbytes // 4,), "aten::mm", module, "", "forward", "tensor"
    )


def test_shares_are_named_with_the_module_around_them() -> None:
    """By hand: the activations of two layers grew alike, one weight alone, a gradient shrank; the optimizer did not change."""
    kept = share_of("optimizer state", "encoder.layer.0.mlp", 5 * MIB)
    before = replace(
        TRAINING,
        tensors=(
            kept,
            share_of("saved for backward", "encoder.layer.0.mlp", 10 * MIB),
            share_of("saved for backward", "encoder.layer.1.attention", 10 * MIB),
            share_of("saved for backward", "head", 2 * MIB),
            share_of("gradients", "head", 3 * MIB),
        ),
    )
    after = replace(
        TRAINING,
        tensors=(
            kept,
            share_of("saved for backward", "encoder.layer.0.mlp", 20 * MIB),
            share_of("saved for backward", "encoder.layer.1.attention", 20 * MIB),
            share_of("saved for backward", "head", 3 * MIB),  # a twentieth of the growth
            share_of("parameters", "head", 4 * MIB),
            share_of("gradients", "head", MIB),
        ),
    )
    assert shares(before, after) == (
        Change("saved for backward in encoder.layer", 22 * MIB, 43 * MIB),
        Change("parameters in head", 0, 4 * MIB),
        Change("gradients in head", 3 * MIB, MIB),
    )
    assert shares(None, before)[1] == Change("optimizer state in encoder.layer.0.mlp", 0, 5 * MIB)
    difference = replace(compare(TRAINING, grown(MIB)), shares=shares(before, after))  # type: ignore[arg-type]
    github = formats.render("difference", "github", difference)
    assert isinstance(github, str)
    assert "2.5 %25: saved for backward in encoder.layer +21.0 MiB, parameters in head +4.0 MiB\n" in github
    assert json.loads(formats.render("difference", "json", difference))["shares"][1]["grown"] == 4 * MIB


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (("models/small.py", "small.py/x"), "models/small.py"),  # beside the target
        (("src/net/small.py", ".venv/small.py", "lib/site-packages/small.py"), "src/net/small.py"),
        (("one/small.py", "two/small.py"), "small.py"),  # which one, nobody knows
        ((), "small.py"),
    ],
)
def test_an_annotation_has_the_path_from_the_working_directory(
    files: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    monkeypatch.chdir(tmp_path)
    github = formats.render("difference", "github", compare(TRAINING, grown(MIB)))  # type: ignore[arg-type]
    assert isinstance(github, str)
    assert f"::warning file={told},line=12,title=GPU memory::+1.0 MiB at the peak" in github


@pytest.mark.parametrize("runs", [5, pytest.param(100, marks=pytest.mark.campaign)])
def test_one_percent_more_is_found_in_every_run(tmp_path: Path, runs: int) -> None:
    """A layer beside the others got wider, 1 % of the whole: its module, its line, the same bytes every time."""
    text = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = nn.Sequential(nn.Linear(64, {width}), nn.Tanh())
        self.body = nn.Sequential(nn.Linear(64, 8000), *[nn.Tanh() for _ in range(8)])

    def forward(self, x):
        side = self.side(x)
        return side.sum() + self.body(x).sum()

def make_model():
    return Net()

def make_batch(batch):
    return (torch.randn(batch, 64),), ()
"""
    estimates = []
    for width in (16, 768):
        (tmp_path / "net.py").write_text(text.format(width=width))
        estimates.append(analyzer.analyze(tmp_path / "net.py", batch=2048, mode="train", device="h200"))
    before, after = estimates
    assert 1.009 < after.peak_allocated / before.peak_allocated < 1.011
    found = set()
    for _ in range(runs):
        after = analyzer.analyze(tmp_path / "net.py", batch=2048, mode="train", device="h200")
        difference = compare(before, after, 0.005)
        assert difference.exceeds and not compare(before, after, 0.02).exceeds
        found.add(str(formats.render("difference", "json", difference)))
    assert len(found) == 1
    assert {change.name for change in difference.modules} == {"side.0", "side.1"}
    assert difference.lines[0].name == "net.py:11" and difference.modules[0].name == "side.1"
    assert difference.shares[0].name == "saved for backward in side.1"
    # In a process of its own too, whose hashes have another order than those of this one.
    (tmp_path / "before.json").write_text(before.to_json())
    words = ["net.py", "--batch", "2048", "--mode", "train", "--device", "h200", "--format", "json"]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-m", "analyzer", *words, "-o", "after.json", "-q"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    told = compare(tmp_path / "before.json", tmp_path / "after.json", 0.005)
    assert (told.figures, told.modules, told.lines, told.shares) == (
        difference.figures,
        difference.modules,
        difference.lines,
        difference.shares,
    )


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
    (tmp_path / "curve.json").write_text('{"schema": 1, "target": "net.py", "rows": [{"batch": 1}]}')
    said = {
        "none.json": "cannot be read",
        "bad.json": "this is not an estimate",
        "curve.json": "not an estimate but another command's result",
    }
    for name, words in said.items():
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
    words = ("-m", "pytest", "-p", "analyzer.testing.plugin", "-q", "--strict-markers", "test_it.py")
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = forked.ran(*words, folder=tmp_path, variables=environment)
    assert "2 failed, 2 passed" in run.stdout, run.stdout + run.stderr
    told = run.stdout.splitlines()
    (over,) = [line for line in told if line.startswith("expected at most 700.0 MiB, needs 8")]
    # cuBLAS's two workspaces; of 9.0 MiB of weights 8.0 are the body's, too few to be named alone.
    assert over.endswith(": workspace 65.0 MiB, gradients 9.1 MiB, parameters 9.0 MiB at the peak"), over
    assert any(line.startswith("expected at most 1.0 KiB, needs ") for line in told)


def test_with_a_baseline_it_says_what_grew(tmp_path: Path) -> None:
    """As in the plan: "saved for backward in encoder +1.1 GiB"; here one activation of 16 MiB, kept for the sine's gradient."""
    (tmp_path / "net.py").write_text(MODEL.format(extra="pass"))
    before = analyzer.analyze(tmp_path / "net.py", batch=1024, mode="train", device="h200")
    (tmp_path / "net.py").write_text(MODEL.format(extra="x = torch.sin(x)"))
    with pytest.raises(pytest.fail.Exception) as failed:
        Budget("700MiB").check(tmp_path / "net.py", batch=1024, mode="train", device="h200", baseline=before)
    told = str(failed.value)
    assert told.startswith("expected at most 700.0 MiB, needs ")
    assert told.endswith(": saved for backward +16.0 MiB"), told


def test_a_tolerance_of_bytes_and_files_that_are_no_estimates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TRAINING needs 1 MiB more of everything: within 1 MiB, past one byte less."""
    after = replace(
        TRAINING,
        **{
            name: getattr(TRAINING, name) + 2**20
            for name in ("peak_allocated", "peak_reserved", "device_used")
        },
    )
    (tmp_path / "a.json").write_text(TRAINING.to_json())
    (tmp_path / "b.json").write_text(after.to_json())
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert main(["compare", *files, "--tolerance", "1MiB"]) == 0
    assert "1.0 MiB allowed" in capsys.readouterr().out
    assert main(["compare", *files, "--tolerance", "1048575B"]) == 1
    assert main(["compare", *files, "--tolerance", "0.0001"]) == 1
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08")
    assert main(["compare", files[0], str(tmp_path / "model.onnx")]) == 2
    assert "is a model" in (err := capsys.readouterr().err) and "analyze it first: analyze " in err
    assert main(["compare", files[0], str(tmp_path / "nothere.json")]) == 2
    assert "nothere.json cannot be read: no such file" in (err := capsys.readouterr().err)
    assert "snapshot" not in err
