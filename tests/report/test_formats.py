"""The registry of formats: every entry renders, commands offer what it has, nothing is imported before it is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import click
import pytest

from analyzer.cli import Commands, group
from analyzer.devices import load
from analyzer.report import formats
from tests.report.estimates import TRAINING

RESULTS: dict[str, Any] = {
    "estimate": TRAINING,
    "devices": [load("h200"), load("rtx4090")],
}
COMMANDS = {"estimate": "estimate", "devices": "devices"}
ENTRIES = [(shown, form) for shown, forms in formats.FORMATS.items() for form in forms]


@pytest.mark.parametrize(("shown", "form"), ENTRIES, ids=["-".join(entry) for entry in ENTRIES])
def test_every_format_renders(shown: str, form: str) -> None:
    if shown not in RESULTS:
        pytest.skip("tested in its own room")
    made = formats.render(shown, form, RESULTS[shown])
    assert made and isinstance(made, bytes if form in ("snapshot", "svg", "png") else str)
    if form == "json":
        assert isinstance(made, str) and json.loads(made)["schema"] == 1 and made.endswith("}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_offer_what_the_registry_has(command: str) -> None:
    assert isinstance(group, Commands)
    found = group.get_command(click.Context(group), command)
    assert found is not None
    (option,) = (parameter for parameter in found.params if parameter.name == "form")
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == formats.names(COMMANDS[command]) and option.default == "text"


def test_the_view_reaches_the_renderer() -> None:
    shown = formats.render("estimate", "text", TRAINING, formats.View(top=0, budget_bytes=59 * 2**20))
    assert isinstance(shown, str)
    assert shown.startswith("over budget: needs 60.0 MiB of 59.0 MiB") and "Largest tensors" not in shown


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    program = (
        "import sys; from analyzer.report import formats; formats.names('estimate');"
        "print([name for name in sys.modules if name.startswith('analyzer.report.') or name == 'rich'])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['analyzer.report.formats']"
