"""`python -m benchmarks`: what the list names is there, and every page says a command that is."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from benchmarks.__main__ import BENCHMARKS, Verbs
from benchmarks.harness import pages, processes, recorded
from tests.paths import PYTHONPATH, ROOT

NAMES = sorted(BENCHMARKS)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_list_names_is_there(name: str) -> None:
    """Looked up without importing: a verb that measures needs a GPU's packages."""
    benchmark = BENCHMARKS[name]
    for place in benchmark.verbs.values():
        module, function = place.split(":")
        source = (ROOT / "benchmarks" / f"{module.replace('.', '/')}.py").read_text()
        assert function in {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    assert benchmark.writes == "the terminal" or list(ROOT.glob(benchmark.writes)), benchmark.writes


@pytest.mark.parametrize("name", NAMES)
def test_every_verb_says_how_it_is_used(name: str) -> None:
    """With its module's docstring; but for what imports a package that is not here (JAX, PaddlePaddle, cosmic-ray)."""
    pytest.importorskip("benchmarks.subjects.networks.torchvision_cpu").enable()  # which peers import
    verbs = Verbs(name, BENCHMARKS[name])
    for verb in BENCHMARKS[name].verbs:
        try:
            command = verbs.get_command(click.Context(verbs), verb)
        except ModuleNotFoundError as error:
            assert error.name and error.name.split(".")[0] not in (
                "analyzer",
                "benchmarks",
                "models",
                "tests",
            )
            continue
        assert isinstance(command, click.Command)
        assert "Usage" in command.get_help(click.Context(command, info_name=verb))


def test_commands_that_are_named_are_there() -> None:
    """In every page, docstring and comment: `python -m benchmarks NAME VERB`, but for those "of commit" so and so."""
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]
    texts += [
        path
        for top in ("analyzer", "extensions", "benchmarks", "tests")
        for path in (ROOT / top).rglob("*.py")
    ]
    wrong = []
    for path in texts:
        for name, verb in re.findall(
            r"python -m benchmarks (\w+)\s+([\w-]+)\b(?![^`\n]*`\s+of\s+commit\s)", path.read_text()
        ):
            if name.isupper() or verb.isupper() or (name in BENCHMARKS and verb in BENCHMARKS[name].verbs):
                continue
            wrong.append((path.relative_to(ROOT).as_posix(), name, verb))
    assert wrong == []


def test_no_path_is_added_to_import_from() -> None:
    """Modules are imported by their whole names; programs of other people are run, or read, as they are."""
    allowed = {
        "harness/recorded_run.py",
        "peers/ranks.py",
        "subjects/published/litgpt_finetune.py",
        "subjects/published/torchtune_recipe.py",
        "subjects/public/data/checkpoints.py",
        "subjects/public/data/sounds.py",
        "subjects/public/data/texts.py",
        "subjects/public/data/weights.py",
    }
    found = {
        path.relative_to(ROOT / "benchmarks").as_posix()
        for path in (ROOT / "benchmarks").rglob("*.py")
        if re.search(r"sys\.path(\.insert|\.append|\[)", path.read_text())
    }
    assert found <= allowed


def test_the_list_and_a_benchmark_are_shown() -> None:
    def shown(*words: str) -> str:
        command = [sys.executable, "-P", "-m", "benchmarks", *words]
        return subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    every, one = shown(), shown("ranks")
    assert all(name in every for name in NAMES)
    assert "score" in one and "RANKS.md" in one


def doubled(number: int) -> int:
    return 2 * number


def each(numbers: list[int], deadly: int) -> Iterator[int]:
    for number in numbers:
        if number == deadly:
            os._exit(3)
        print("what nobody reads")
        yield doubled(number)


def test_a_function_answers_from_a_process_of_its_own() -> None:
    assert processes.answer(f"{__name__}:doubled", 21) == 42
    with pytest.raises(processes.ProcessError, match="TypeError"):
        processes.answer(f"{__name__}:doubled", None)
    with pytest.raises(processes.ProcessError, match="more than 0 s"):
        processes.answer(f"{__name__}:doubled", 21, seconds=0.01)


def test_one_that_ends_its_process_costs_itself_only() -> None:
    found = dict(processes.stream(f"{__name__}:each", range(7), 2, 4))
    assert found == {0: 0, 1: 2, 2: 4, 3: 6, 4: None, 5: 10, 6: 12}


def test_a_part_of_a_page_is_written_anew(tmp_path: Path) -> None:
    page = tmp_path / "PAGE.md"
    page.write_text(
        "# Page\n<!-- one: by a -->\nold\n<!-- /one -->\nbetween\n<!-- one more: by b -->\nkept\n<!-- /one more -->\n"
    )
    pages.write_part(page, "one", r"new \1")
    assert pages.part(page, "one") == "new \\1\n" and pages.part(page, "one more") == "kept\n"
    assert page.read_text().count("\n") == 8
    with pytest.raises(AssertionError, match="no part two"):
        pages.write_part(page, "two", "")


def test_how_near_predictions_are() -> None:
    assert pages.spread([0.0, -1.0, 3.0, 0.0]) == (2, 0.5, 3.0, 3.0)
    assert pages.spread(range(1, 41)) == (0, 20.5, 39, 40)
    assert pages.exactness({"peak": [0.0, -2.5]}) == [["peak", "1 of 2", "1.250", "2.500", "2.500"]]
    row = {"peak_allocated": 2**20, "peak_reserved": 2**21, "nvml_peak": 2**22}
    found = {"allocated": 2**20, "reserved": 2**20, "device": 2**22}
    assert pages.cells(found, row, "failed") == "1.0 | exact | 2.0 | -50.00 % | 4.0 | exact"
    assert pages.cells({"error": "no"}, row, "failed") == "1.0 | failed | 2.0 | failed | 4.0 | failed"
    some = [("one", 0.1), ("two", -0.3), ("three", 0.2)]
    assert pages.worst(some, lambda row: row[0], lambda row: row[1]) == "two, -30%"
    assert pages.middle_and_far(error for _, error in some) == "20.0% / 30.0%"
    assert pages.worst([], len, len) == pages.middle_and_far([]) == ""
    lines = pages.by_kind(some, lambda row: row[0][0], lambda rows: [max(error for _, error in rows)])
    assert lines == [["kinds of one or two", 3, 0.2], ["all", 3, 0.2]]
    some += [("ten", 0.0), ("five", 0.5)]
    lines = pages.by_kind(some, lambda row: row[0][0], lambda rows: rows)
    assert [line[:2] for line in lines] == [["t", 3], ["kinds of one or two", 2], ["all", 5]]
    assert lines[1][2:] == [("one", 0.1), ("five", 0.5)]
    (alone, _) = pages.by_kind(some[:1], lambda row: row[0][0], lambda _: [])
    assert alone == ["o", 1]
    assert (
        pages.records([{"a": 0.123456, "b": {"k": (1, None)}}])
        == "| a | b |\n|---|---|\n| 0.1235 | k=1,  |\n"
    )
    assert pages.table(("a", "b"), [("x", 1)], align="lr") == "| a | b |\n|---|--:|\n| x | 1 |\n"


def test_a_run_that_wrote_nothing_has_a_row(tmp_path: Path) -> None:
    assert recorded.row(tmp_path / "none") == {"error": "no answer"}
    assert recorded.named({"name": "one", "rank": 0}) == "one.rank0"
    assert recorded.world(1, 2, 29600)["WORLD_SIZE"] == "2"


def test_tools_have_at_most_fifteen_thousand_lines() -> None:
    """Subjects do not count: they are data. A script that was run once is named with its commit, and goes."""
    tools = [path for path in (ROOT / "benchmarks").rglob("*.py") if "subjects" not in path.parts]
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in tools) <= 15_000
