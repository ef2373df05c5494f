"""What `--help` says: summaries whole, options of a kind together with their defaults, examples that are taken."""

from __future__ import annotations

import inspect
import shlex
from typing import Any

import click
import pytest

import analyzer
from analyzer.cli import Commands, group
from tests.commands import check_help_all, check_page, command
from tests.paths import MODELS

NAMES = Commands().list_commands(click.Context(group))


def test_summaries_are_whole(run: Any) -> None:
    shown = run("--help").out
    groups = shown.partition("\n\n")[2].partition("\n\n  Predict")[0].split("\n\n")
    listed = [line for group in groups for line in group.splitlines()[1:]]
    assert sorted(line.split()[0] for line in listed) == NAMES  # a line each
    assert "..." not in " ".join(listed) and all(line.endswith(".") for line in listed)
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_two_examples_that_the_command_takes(run: Any, name: str) -> None:
    found = command(name)
    assert len(found.examples) == 2
    shown = run(name, "--help").out
    for example in found.examples:
        assert example in shown and len(example) <= 78
        words = shlex.split(example)[1:]
        words = words[1:] if words[0] in NAMES else words
        other = command(shlex.split(example)[1]) if shlex.split(example)[1] in NAMES else command("estimate")
        other.make_context(name, words)


@pytest.mark.parametrize("words", [(), *((name,) for name in NAMES)])
def test_a_page_is_at_most_sixty_lines(run: Any, words: tuple[str, ...]) -> None:
    check_page(run, words)


@pytest.mark.parametrize("words", [(), *((name,) for name in NAMES)])
def test_shapes_and_settings_of_the_runtime_stand_in_the_short_page(run: Any, words: tuple[str, ...]) -> None:
    """An ONNX file with several symbolic dimensions can only be typed with --input."""
    known = {param.name for param in command(*(words or ("estimate",))).params}
    shown = run(*words, "--help").out
    assert ("inputs" in known) == ("--input NAME=SHAPE" in shown)
    assert ("runtime_options" in known) == ("--runtime-option K=V" in shown)


def test_pythons_help_names_the_ranges() -> None:
    said = inspect.getdoc(analyzer.analyze) or ""
    assert all(f"`{figure}_range`" in said for figure in ("allocated", "reserved", "device"))


@pytest.mark.parametrize("name", ["estimate", "sweep", "fit"])
def test_help_all_has_every_option(run: Any, name: str) -> None:
    check_help_all(run, name)


def test_an_error_names_the_help_of_its_command(run: Any) -> None:
    assert run("fit").err.endswith("see: analyze fit --help\n")
    assert run("net.onnx", "--batch", "many").err.endswith("see: analyze --help\n")
    assert run("-V").out == run("--version").out


def test_options_of_a_kind_stand_together_with_their_defaults(run: Any) -> None:
    shown = run("--help-all").out
    kinds = [shown.index(f"\n{kind}:\n") for kind in ("The job", "Device and engine", "Output")]
    assert kinds == sorted(kinds)
    job, device, result = (shown[a:b] for a, b in zip(kinds, [*kinds[1:], len(shown)], strict=True))
    assert "--checkpoint" in job and "--budget" in device and "--verbose" in result
    assert "[default: 1]" in " ".join(job.split()) and "[default: 10" in " ".join(result.split())
    assert "Micro-batches a training step" in shown


def test_like_notes_are_one_line(run: Any) -> None:
    asked = [MODELS / "cnn.onnx", "--batch", "64", "--device", "h200", "--top", "0"]
    short, whole = (" ".join(run(*asked, *more).out.split()) for more in ([], ["--verbose"]))
    assert whole.count("held for a request of") > 1 == short.count("held for a request of")
    assert (
        "128 MiB held" in short and "and 1 more like it (--verbose)" in short
    )  # the largest and "(--verbose)" not in whole
