"""Wheel and sdist as CI builds them, and where people meet the package: module, completion, notebook, action, citation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import analyzer
from analyzer.errors import DISTRIBUTION
from analyzer.report import formats
from analyzer.report import json as json_report
from tests.fresh import ROOT, built
from tests.paths import PYTHONPATH
from tests.report.estimates import MIB, TRAINING, hostile


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel and an sdist of this checkout."""
    return built(tmp_path_factory)


def test_wheel_and_sdist_are_sound_and_whole(packages: tuple[Path, Path]) -> None:
    wheel, sdist = packages
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
    inside = set(zipfile.ZipFile(wheel).namelist())
    sources = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "analyzer", "extensions"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.split()  # fmt: skip
    wanted = sources or [str(path.relative_to(ROOT)) for path in (ROOT / "analyzer").rglob("*.py")]
    wanted = [name for name in wanted if (ROOT / name).exists()]
    compiled = {name for name in wanted if name.endswith((".c", ".h", ".inc"))}
    assert {
        name.removeprefix("extensions/") for name in set(wanted) - compiled
    } <= inside and not compiled & inside
    assert not any("__pycache__" in name or name.startswith("tests/") for name in inside)
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", *compiled} <= packed
    if shutil.which("cc"):  # compiled once for all versions of Python
        assert any("allocators/_best_fit.abi3" in name for name in inside) and "-cp311-abi3-" in wheel.name
    told = zipfile.ZipFile(wheel).read(next(name for name in inside if name.endswith("METADATA"))).decode()
    assert f"\nName: {DISTRIBUTION}\n" in told  # what hints tell people to install
    assert f"\nVersion: {analyzer.__version__}\n" in told and "License-Expression: Apache-2.0" in told
    assert sum(name.endswith(".LICENSE") and "dist-info" in name for name in inside) == 3
    entries = zipfile.ZipFile(wheel).read(next(name for name in inside if name.endswith("entry_points.txt")))
    assert (
        b"\npaddle = analyzer_plugins.paddle.runtime:Paddle\n" in entries
        and b"[analyzer.runtimes]" in entries
        and b"\nrun = analyzer_programs.command:command\n" in entries
    )


def test_the_version_is_said_in_one_place() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == analyzer.__version__ and citation["license"] == "Apache-2.0"
    assert not re.search(r"^version\s*=\s*\"", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


@pytest.mark.parametrize("module", ["analyzer", "analyzer.cli"])
def test_the_package_runs_as_a_module(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", module, "devices"], capture_output=True, text=True, check=True
    )
    assert "h200" in ran.stdout


@pytest.mark.parametrize(
    ("words", "at", "expected"),
    [
        ("analyze rep", 1, {"report"}),
        ("analyze mod", 1, {"mod"}),
        ("analyze report x.json --format s", 4, {"snapshot", "svg"}),
        ("analyze report x.json --b", 3, {"--budget", "--by"}),
        ("analyze model.onnx --mode t", 3, {"train"}),
    ],
)
def test_shells_complete_commands_options_and_values(words: str, at: int, expected: set[str]) -> None:
    environment = {
        **os.environ,
        "_ANALYZE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(at),
    }
    ran = subprocess.run(
        [sys.executable, "-m", "analyzer"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert {line.partition(",")[2] for line in ran.stdout.split()} == expected


def test_a_notebook_shows_the_estimate() -> None:
    shown = TRAINING._repr_html_()
    assert shown == formats.render("notebook", "html", TRAINING)
    for words in ("fits: 60.0 MiB of 100.0 MiB", "41,943,040", "saved for backward", "128x8x80x64 float32"):
        assert words in shown
    assert "<script" not in shown and "style" not in shown
    assert "<script>" not in hostile("<script>alert(1)</script>")._repr_html_()


def run_action(tmp_path: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The action's own script, as a runner would run it."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    step = next(step for step in action["runs"]["steps"] if step.get("id") == "analyze")
    defaults = {name: entry.get("default", "") for name, entry in action["inputs"].items()}
    values = {name.upper(): value for name, value in {**defaults, **inputs}.items()}
    assert {f"${{{{ inputs.{name.lower()} }}}}" for name in step["env"]} == set(step["env"].values())
    used = {word for step in action["runs"]["steps"] for word in step.get("env", {}).values()}
    assert {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]} <= used
    command = tmp_path / "analyze"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m analyzer "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ, **values, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": PYTHONPATH,
        "GITHUB_OUTPUT": str(tmp_path / "out"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    return subprocess.run(
        ["bash", "-c", step["run"]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_action_judges_budget_and_growth(tmp_path: Path) -> None:
    target = str(ROOT / "models/cnn.onnx")
    ran = run_action(tmp_path, target=target, options="--batch 4", budget="64GiB")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "out").read_text() == "estimate=gpu-memory/estimate.json\n"
    assert (tmp_path / "gpu-memory/estimate.html").read_text().startswith("<!DOCTYPE html>")
    assert "within budget" in (tmp_path / "summary").read_text()
    assert run_action(tmp_path, target=target, options="--batch 4", budget="1MiB").returncode == 1
    small = json_report.read(tmp_path / "gpu-memory/estimate.json")
    assert small.peak_allocated > MIB
    (tmp_path / "base.json").write_text(json_report.render(small))
    grown = run_action(tmp_path, target=target, options="--batch 64", baseline="base.json")
    assert grown.returncode == 1 and "::error title=GPU memory::needs more" in grown.stdout
    assert run_action(tmp_path, target="no.onnx").returncode == 2


def test_the_action_follows_a_program(tmp_path: Path) -> None:
    """With its arguments; options are those of `analyze run`."""
    (tmp_path / "train.py").write_text(
        "import sys, torch\nkept = torch.zeros(int(sys.argv[1]) << 20, dtype=torch.uint8, device='cuda')\n"
    )
    ran = run_action(tmp_path, run="train.py 40", options="--device t4 --until end", budget="1GiB")
    assert ran.returncode == 0, ran.stderr
    found = json_report.read(tmp_path / "gpu-memory/estimate.json")
    assert (found.peak_allocated, found.device, found.target) == (40 * MIB, "t4", "train.py 40")
    assert run_action(tmp_path, run="train.py 4000", options="--device t4", budget="1GiB").returncode == 1
    for both in ({}, {"run": "train.py 40", "target": "train.py"}):
        ran = run_action(tmp_path, **both)
        assert ran.returncode == 2 and "either a target or a program" in ran.stdout


@pytest.mark.parametrize(("target", "extra"), [("a.onnx", ""), ("train.py", "[torch]"), ("", "[torch]")])
def test_the_action_installs_torch_for_what_needs_it(tmp_path: Path, target: str, extra: str) -> None:
    """pip is a script here that writes down what it is asked for."""
    install = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][0]["run"]
    python, pip = tmp_path / "python3", tmp_path / "analyzer/bin/pip"
    pip.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    pip.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path / "asked"}\n')
    for command in (python, pip):
        command.chmod(0o755)
    values = {"HERE": "/here", "TARGET": target, "REQUIREMENTS": "", "RUNNER_TEMP": str(tmp_path)}
    values |= {"GITHUB_PATH": str(tmp_path / "path"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-e", "-c", install], env=values, check=True)
    assert (tmp_path / "asked").read_text().splitlines()[2] == f"/here{extra}"
