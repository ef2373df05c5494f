"""A verification in all its forms."""

from __future__ import annotations

import json
from dataclasses import replace

import click
import pytest

from analyzer.cli import Commands, group
from analyzer.report import formats
from analyzer.report.formats import View
from analyzer_verify.results import Figure, MarkComparison, Verification

VERIFICATION = Verification(
    target="small.py", runtime="pytorch", mode="train", batch=2, optimizer="sgd", device="h200", options={},
    figures=(Figure("allocated", 110, 100),), marks=(), history=None, out_of_memory=None, environment={},
)  # fmt: skip


@pytest.mark.parametrize("form", formats.names("verification"))
def test_every_format_renders(form: str) -> None:
    made = formats.render("verification", form, VERIFICATION)
    assert isinstance(made, str) and made
    if form == "json":
        assert json.loads(made)["schema"] == 1 and made.endswith("}\n")
    if form == "html":
        assert "+10.00 %" in made


def test_the_command_offers_what_the_registry_has() -> None:
    assert isinstance(group, Commands)
    found = group.get_command(click.Context(group), "verify")
    assert found is not None
    (option,) = (parameter for parameter in found.params if parameter.name == "form")
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == formats.names("verification") and option.default == "text"


def test_errors_of_a_verification_are_in_its_json() -> None:
    made = json.loads(formats.render("verification", "json", VERIFICATION))
    assert made["figures"] == [
        {"name": "allocated", "predicted": 110, "measured": 100, "error_percent": 10.0}
    ]


@pytest.mark.parametrize("width", [40, 52, 64, 79])
def test_a_verification_sticks_out_nowhere(width: int) -> None:
    """Figures of a gibibyte to the byte, an event that differs, notes longer than a line."""
    long = "a note " * 30
    verification = replace(
        VERIFICATION,
        figures=(Figure("peak in use", 2**30 + 1, 2**30), Figure("held", 700, None)),
        marks=(MarkComparison("run 1 of session 2", 2**30, 2**30 + 256, 2**31, 2**31),),
        notes=(long,),
    )
    text = formats.render("verification", "text", verification, View(width=width))
    assert isinstance(text, str)
    assert [line for line in text.splitlines() if len(line) > width] == []
    assert "-256" in text and "exact" not in text.split("Events")[0]
    assert " ".join(text.split()).count("a note") == 30
