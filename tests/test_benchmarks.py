"""`python -m benchmarks`: what the list names is there, and every page says a command that is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from benchmarks.__main__ import BENCHMARKS
from tests.paths import ROOT

NAMES = sorted(BENCHMARKS)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_list_names_is_there(name: str) -> None:
    """Looked up without importing: a verb that measures needs a GPU's packages."""
    benchmark = BENCHMARKS[name]
    for place in benchmark.verbs.values():
        module, function = place.split()[0].split(":")
        source = (ROOT / "benchmarks" / f"{module.replace('.', '/')}.py").read_text()
        assert function in {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    assert benchmark.writes == "the terminal" or list(ROOT.glob(benchmark.writes)), benchmark.writes


def test_commands_that_are_named_are_there() -> None:
    """In every page, docstring and comment: `python -m benchmarks NAME VERB`, and no script by its path."""
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]
    texts += [path for top in ("analyzer", "benchmarks", "tests") for path in (ROOT / top).rglob("*.py")]
    wrong = []
    for path in texts:
        for name, verb in re.findall(r"python -m benchmarks (\w+)\s+([\w-]+)", path.read_text()):
            if name.isupper() or verb.isupper() or (name in BENCHMARKS and verb in BENCHMARKS[name].verbs):
                continue
            wrong.append((path.relative_to(ROOT).as_posix(), name, verb))
    assert wrong == []


def test_no_path_is_added_to_import_from() -> None:
    """Modules are imported by their whole names; programs of other people are run, or read, as they are."""
    allowed = {
        "harness/recorded_run.py",
        "peers/ranks.py",
        "published/programs/litgpt_finetune.py",
        "public/data/checkpoints.py",
        "public/data/texts.py",
        "public/data/weights.py",
    }
    found = {
        path.relative_to(ROOT / "benchmarks").as_posix()
        for path in (ROOT / "benchmarks").rglob("*.py")
        if re.search(r"sys\.path(\.insert|\.append|\[)", path.read_text())
    }
    assert found <= allowed


def test_the_list_and_a_benchmark_are_shown() -> None:
    def shown(*words: str) -> str:
        command = [sys.executable, "-m", "benchmarks", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert all(name in shown() for name in NAMES)
    assert "score" in shown("ranks") and "RANKS.md" in shown("ranks")
