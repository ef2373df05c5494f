"""docs/LANGUAGE_MODELS.md: its table is what the recorded results say, its commands are ones the command line takes."""

from __future__ import annotations

import json
import re
import shlex

import click
import pytest

from analyzer.cli import Commands, group
from analyzer.pipeline.config import recipe_of
from benchmarks.language_models import table
from tests.paths import ROOT

PAGE = (ROOT / "docs/LANGUAGE_MODELS.md").read_text()
COMMANDS = [line for line in re.findall(r"^analyze .*$", PAGE, re.MULTILINE) if "grid.yaml" not in line]


def test_the_table_is_that_of_the_results() -> None:
    results = json.loads(table.RESULTS.read_text())
    assert table.written(results) in PAGE
    assert not [row for rows in results["rows"].values() for row in rows.values() if "error" in row]


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_taken(line: str) -> None:
    words = shlex.split(line)[1:]
    name = words.pop(0) if words[0] in ("serve", "grid", "fit", "what-if") else "estimate"
    command = Commands().get_command(click.Context(group), name)
    assert command is not None
    context = command.make_context(name, [str(ROOT / words[0]), *words[1:]])
    if name == "estimate":
        from analyzer.cli._options import analysis_keywords
        from analyzer.options import Options

        target = context.params["target"]
        assert recipe_of(target, Options.of(analysis_keywords(target, context.params))).batch >= 1
