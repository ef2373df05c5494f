"""The documents say what is there: rooms, commands, links, the README's first commands and its output."""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from tests import forked
from tests.paths import PYTHONPATH, ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "models").glob("*.md")])


def test_the_table_of_rooms_is_complete() -> None:
    table = (ROOT / "docs/architecture.md").read_text()
    rooms = {
        name.removesuffix("/")
        for name in re.findall(r"^\| `(?:analyzer/)?([\w./]+)` \|", table, re.MULTILINE)
    }
    there = {
        path.name
        for path in (ROOT / "analyzer").iterdir()
        if path.suffix == ".py" or (path.is_dir() and (path / "__init__.py").exists())
    }
    assert {room for room in rooms if not room.startswith("analyzer_")} == there
    assert {room for room in rooms if room.startswith("analyzer_")} == {
        path.parent.name for path in (ROOT / "extensions").glob("*/__init__.py")
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        assert link.startswith("https://") or (document.parent / link).exists(), link


# Files of other projects that are named without their folder.
ELSEWHERE = {
    "_cuops.py", "_fsdp_collectives.py", "_meta_registrations.py", "conv.py", "distributed_c10d.py", "functional.py",
    "masking_utils.py", "training_args.py", "zero_redundancy_optimizer.py",
}  # fmt: skip


# A Python file in a sentence.
NAMED = r"`([\w./]+\.py)`"


def named_files(path: Path) -> set[str]:
    """The Python files that a module's docstrings and comments name, with capital letters for none in particular left out."""
    source = path.read_text()
    words = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    words += [
        ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, documented)
    ]
    here = (re.sub(r"`[^`]*`\s+of\s+commit\s+[0-9a-f]{8}", "", text) for text in words)
    found = {name for text in here for name in re.findall(NAMED, text)}
    return {name for name in found if not Path(name).stem.isupper()}


@pytest.mark.parametrize("top", ["analyzer", "extensions", "benchmarks", "docs", "tests"])
def test_docstrings_name_files_that_are_there(top: str) -> None:
    ours = ("analyzer", "extensions", "benchmarks", "docs", "examples", "models", "tests")
    paths = [path for folder in ours for path in (ROOT / folder).rglob("*.py")]
    there = {"/" + path.relative_to(ROOT).as_posix() for path in paths}
    tops = (ROOT / "analyzer", ROOT / "extensions")
    rooms = {path.name for top in tops for path in top.iterdir() if path.is_dir()} | set(ours)
    gone = []
    ends = {place[begin.start() :] for place in there for begin in re.finditer("/", place)}

    def missing(name: str) -> bool:
        mine = ("/" not in name and name not in ELSEWHERE) or name.split("/", maxsplit=1)[0] in rooms
        return mine and f"/{name}" not in ends

    for path in paths:
        if path.relative_to(ROOT).parts[0] != top:
            continue
        # Code that writes about other files says names too: what is a comment or a docstring is asked of few files.
        if any(map(missing, re.findall(NAMED, path.read_text(encoding="utf-8")))):
            place = path.relative_to(ROOT).as_posix()
            gone += [(place, name) for name in named_files(path) if missing(name)]
    assert gone == []


def test_the_readme_opens_with_an_estimate_and_the_tests_and_ci_runs_them() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert [block.count("\n") for block in blocks[:3]] == [1, 1, 1]
    assert "pip install" in blocks[0] and blocks[1] == ".venv/bin/analyze models/resnet50.onnx --batch 64\n"
    assert all(len(block) <= 110 for block in blocks[:3])
    assert "pip install" in blocks[2] and blocks[2].rstrip().endswith("pytest")
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    for word in (
        "README.md",
        "ruff check",
        "ruff format --check",
        "mypy",
        "lint-imports",
        "commands[0]",
        "commands[1]",
        "commands[2]",
    ):
        assert word in script.read_text()


def test_the_readme_shows_what_the_command_prints() -> None:
    """`UPDATE_README=1 pytest tests/test_docs.py` writes the block anew."""
    path = ROOT / "README.md"
    before, marker, rest = re.split(
        r"(<!-- output of: analyze .*? -->\n```text\n)", path.read_text(), maxsplit=1
    )
    shown, end, after = rest.partition("```\n")
    arguments = re.findall(r"analyze (.*?) -->", marker)[0].split()
    environment = {
        **os.environ,
        "PYTHONIOENCODING": "utf-8",
        "CUDA_VISIBLE_DEVICES": "",
    }  # as where there is no GPU
    environment.pop("COLUMNS", None)
    command = [sys.executable, "-P", "-m", "analyzer.cli", *arguments]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True, env=environment
    )
    if os.environ.get("UPDATE_README"):
        path.write_text(before + marker + ran.stdout + end + after)
    assert shown == ran.stdout or os.environ.get("UPDATE_README"), (
        "run: UPDATE_README=1 pytest tests/test_docs.py"
    )


def test_the_page_of_allocators_is_what_its_command_writes() -> None:
    """`python -m benchmarks allocators table` writes it anew."""
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("CUBLAS_WORKSPACE_CONFIG", None)  # which MONAI sets, where a test imported it
    program = "from benchmarks import allocators; print(allocators.document(), end='')"
    ran = forked.ran("-c", program, folder=ROOT, variables={**environment, "PYTHONIOENCODING": "utf-8"})
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (ROOT / "docs/evidence/ALLOCATORS.md").read_text(), (
        "run: python -m benchmarks allocators table"
    )
