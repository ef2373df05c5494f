"""The recipes of `docs/questions/ci.md` for CI, pytest, pre-commit and grids, tried as they stand on a model that grew."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from analyzer.planning.grid import jobs
from tests import forked
from tests.paths import MODELS, PYTHONPATH, ROOT

PAGE = (ROOT / "docs/questions/ci.md").read_text()
BASELINE = "memory-baseline.json"
ENVIRONMENT = {**os.environ, "PYTHONPATH": PYTHONPATH, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
ENVIRONMENT.pop("GIT_DIR", None)


def block(language: str, begins: str) -> str:
    """The one fenced block of the page in that language that begins with these words."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (text,) = (text for text in found if text.startswith(begins))
    return str(text)


def ran(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command where nothing but this checkout is known, `analyze` being its own."""
    return subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )


def analyze(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.ran("-m", "analyzer", *words, folder=folder, variables=ENVIRONMENT)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `train.py`, which takes one activation more than when its baseline was made."""
    folder = tmp_path_factory.mktemp("grown")
    text = (MODELS / "cnn.py").read_text()
    (folder / "train.py").write_text(text)
    commands = block(
        "sh", "analyze models/cnn.py --batch 32 --mode train --device h200 --format json"
    ).splitlines()
    first = shlex.split(commands[0])
    assert first[0] == "analyze" and first[-1] == BASELINE
    assert analyze(folder, "train.py", *first[2:]).returncode == 0
    pool = "nn.AvgPool2d(kernel_size=2, stride=2)"
    assert pool in text
    (folder / "train.py").write_text(text.replace(pool, f"nn.Sequential(nn.Sigmoid(), {pool})"))
    return folder


def test_the_workflow(grown: Path) -> None:
    """Its commands in their order: the last one ends with 1 and annotates a line of train.py."""
    steps = yaml.safe_load(block("yaml", "# .github/workflows/memory.yml"))["jobs"]["memory"]["steps"]
    commands = [shlex.split(step["run"]) for step in steps if step.get("run", "").startswith("analyze ")]
    results = [analyze(grown, *command[1:]) for command in commands]
    assert [result.returncode for result in results] == [0, 1], results[-1].stderr
    assert "::error title=GPU memory::needs more: " in results[-1].stdout
    assert re.search(r"::warning file=train\.py,line=\d+,title=GPU memory::\+", results[-1].stdout)


def test_the_budget_in_a_test(grown: Path) -> None:
    (grown / "test_memory.py").write_text(block("python", "import pytest\n").replace("16GiB", "512MiB"))
    words = ("-m", "pytest", "-p", "analyzer.testing.plugin", "-q", "--strict-markers", "test_memory.py")
    result = forked.ran(*words, folder=grown, variables=ENVIRONMENT)
    assert result.returncode == 1
    assert re.search(
        r"(?m)^expected at most 512\.0 MiB, needs .* MiB: \w[\w ]* in [\w.]+ \+\d", result.stdout
    ), result.stdout


def test_the_hook(grown: Path) -> None:
    """pre-commit itself runs it, with this checkout instead of an installed package; within budget, and over it."""
    entry = yaml.safe_load(block("yaml", "# .pre-commit-config.yaml"))["repos"][0]["hooks"][0]["entry"]
    text = block("yaml", "# .pre-commit-config.yaml").replace("language: python", "language: system")
    text = re.sub(r"(?m)^ +additional_dependencies:.*\n", "", text)
    text = text.replace(entry, entry.replace("analyze ", f"{sys.executable} -m analyzer ", 1))
    assert ran(grown, "git", "init", "--quiet").returncode == 0
    for budget, code in (("16GiB", 0), ("512MiB", 1)):
        (grown / ".pre-commit-config.yaml").write_text(text.replace("16GiB", budget))
        assert ran(grown, "git", "add", "train.py", ".pre-commit-config.yaml").returncode == 0
        result = ran(grown, sys.executable, "-m", "pre_commit", "run", "--all-files")
        assert result.returncode == code, result.stdout + result.stderr
    assert "over budget: needs" in result.stdout
    manifest = ran(ROOT, sys.executable, "-m", "pre_commit", "validate-manifest", ".pre-commit-hooks.yaml")
    assert manifest.returncode == 0, manifest.stdout


def test_the_grid() -> None:
    """Two targets, three batches, two strategies, three devices."""
    assert len(jobs(yaml.safe_load(block("yaml", "# grid.yaml")))) == 36
