"""CONTRIBUTING.md's recipes, tried as they stand: each block is taken out of the page, put where it says, and run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from analyzer.cli import main
from analyzer.devices import loader
from analyzer.report import json as json_report
from analyzer.results.estimate import Estimate
from analyzer.runtimes import base
from tests import forked
from tests.paths import MODELS, ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MIB = 2**20


def block(language: str, begins: str) -> str:
    """The one fenced block of the page in that language that begins with these words."""
    (found,) = (text for kind, text in BLOCKS if kind == language and text.startswith(begins))
    return str(found)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout of its own: what a recipe adds to the package must not stay."""
    for top in ("analyzer", "extensions"):
        shutil.copytree(ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def analyze(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with the packages in `folder` before this checkout's, begun anew where
    `analyzer` is one of them."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    words = ("-m", "analyzer.cli", *arguments)
    if (folder / "analyzer").exists():
        ran = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            capture_output=True,
            text=True,
            env=environment,
            timeout=300,
            check=False,
        )
    else:
        ran = forked.ran(*words, folder=folder, variables=environment)
    assert ran.returncode == code, ran.stderr
    return ran


def estimate(*arguments: object) -> Estimate:
    """The estimate the command line writes as JSON, in this process."""
    path = Path(str(arguments[-1]))
    words = [str(argument) for argument in arguments[:-1]]
    assert main([*words, "--device", "h200", "--format", "json", "-o", str(path), "-q"]) == 0
    return json_report.loads(path.read_text())


def test_a_rule(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = block("python", "# smooth.py\n")
    (tmp_path / "smooth.py").write_text(code)
    arguments = ("smooth.py:Smooth", "--input", "x=1024x1024", "--device", "h200")
    (tmp_path / "bare.py").write_text(
        re.sub(r'^@analyzer\.rule\("mylib::smooth"\)\n', "", code, flags=re.MULTILINE)
    )
    ran = analyze(tmp_path, *arguments, "--strict", "--format", "json")
    found = json_report.loads(ran.stdout)
    # 4 MiB each: the input, the rule's two copies, the result, and that of the iteration before.
    assert found.breakdown == {"activations": 8 * MIB, "scratch": 8 * MIB, "inputs": 4 * MIB}
    ran = analyze(tmp_path, "bare.py:Smooth", *arguments[1:], "--strict", "--format", "json")
    assert json_report.loads(ran.stdout).peak_allocated == 12 * MIB  # by its body, which is followed then


def test_a_gpu(tmp_path: Path) -> None:
    text = block("json", "{\n")
    jsonschema.validate(
        json.loads(text), json.loads((Path(loader.__file__).parent / "schema.json").read_text())
    )
    path = tmp_path / "rtx4080.json"
    path.write_text(text)
    result = tmp_path / "estimate.json"
    assert (
        main(
            [
                str(MODELS / "cnn.onnx"),
                "--batch",
                "8",
                "--device",
                str(path),
                "--format",
                "json",
                "-o",
                str(result),
            ]
        )
        == 0
    )
    found = json_report.loads(result.read_text())
    assert (found.device, found.capacity_bytes) == ("rtx4080", 15_945 * MIB)


def test_a_command(copy: Path) -> None:
    code = block("python", "# analyzer/cli/heaviest.py\n")
    (copy / "analyzer/cli/heaviest.py").write_text(code)
    ran = analyze(copy, "heaviest", str(MODELS / "cnn.onnx"), "--batch", "8")
    assert re.fullmatch(r"[\w/ .]+: \d+\.\d MiB\n", ran.stdout), ran.stdout
    assert "heaviest" in analyze(copy, "--help").stdout


def test_a_format(copy: Path) -> None:
    (copy / "analyzer/report/markdown.py").write_text(block("python", "# analyzer/report/markdown.py\n"))
    head, line = block("python", "# analyzer/report/formats.py:").split("\n", 1)
    (kind,) = re.findall(r'"(\w+)"', head)
    registry = copy / "analyzer/report/formats.py"
    before = registry.read_text()
    registry.write_text(before.replace(f'    "{kind}": {{\n', f'    "{kind}": {{\n{line}', 1))
    assert registry.read_text() != before
    ran = analyze(copy, str(MODELS / "cnn.onnx"), "--batch", "8", "--device", "h200", "--format", "markdown")
    assert ran.stdout.startswith("fits: ") and "| estimate | MiB |\n|---|--:|\n| naive sum | " in ran.stdout
    assert "markdown" in analyze(copy, "estimate", "--help-all").stdout


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The recipe's runtime, registered; its source."""
    monkeypatch.setattr(base, "_registered", dict(base._registered))
    code = block("python", "# toy.py\n")
    (tmp_path / "toy.py").write_text(code)
    spec = importlib.util.spec_from_file_location("toy", tmp_path / "toy.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    yield code


def test_a_runtime_is_small(toy: str) -> None:
    assert len(toy.splitlines()) < 40


@pytest.mark.parametrize(
    ("target", "options", "own"),
    [
        ("cnn.onnx", ("--batch", "8"), "onnxruntime"),
        ("cnn.py", ("--batch", "8", "--mode", "train"), "pytorch"),
    ],
)
@pytest.mark.usefixtures("toy")
def test_a_runtime_gives_an_estimate_from_the_same_graph(
    tmp_path: Path, target: str, options: tuple[str, ...], own: str
) -> None:
    if own == "pytorch":
        pytest.importorskip("torch")
    path = MODELS / target
    found = estimate(path, *options, "--runtime", "toy", tmp_path / "toy.json")
    usual = estimate(path, *options, tmp_path / "usual.json")
    assert (found.runtime, usual.runtime, found.framework) == ("toy", own, usual.framework)
    # The same captured program: what the graph needs, the textbook sum, the events of the step.
    assert (found.graph_peak, found.naive, found.saved_for_backward) == (
        usual.graph_peak, usual.naive, usual.saved_for_backward,
    )  # fmt: skip
    assert found.peak_requested >= found.graph_peak and "scratch" not in found.breakdown
    assert sum(found.breakdown.values()) == found.peak_allocated >= found.peak_requested
    assert found.device_used - found.peak_reserved == loader.load("h200").context_bytes
    assert not found.certainty.unknown_operators and found.certainty.bounded == 0


def test_a_runtime_another_package_announces(tmp_path: Path) -> None:
    """As pip installs it: the recipe's entry point in the metadata of a package on the path."""
    announced = tomllib.loads(block("toml", "# pyproject.toml\n"))["project"]["entry-points"]
    assert list(announced) == ["analyzer.runtimes"]
    (tmp_path / "toy.py").write_text(block("python", "# toy.py\n"))
    folder = tmp_path / "toy-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    lines = (f"{name} = {value}" for name, value in announced["analyzer.runtimes"].items())
    (folder / "entry_points.txt").write_text("[analyzer.runtimes]\n" + "\n".join(lines) + "\n")
    ran = analyze(tmp_path, str(MODELS / "cnn.onnx"), "--batch", "8", "--runtime", "toy", "--device", "h200")
    assert "toy: allocated" in ran.stdout
    refused = analyze(tmp_path, str(MODELS / "cnn.onnx"), "--runtime", "toi", code=2)
    assert "did you mean 'toy'?" in refused.stderr and "onnxruntime" in refused.stderr
