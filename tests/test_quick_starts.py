"""Quick starts of libraries: every one has what came of it the first time, and one whose packages are absent is passed over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.libraries import quick_starts


def test_every_quick_start_has_a_first_time() -> None:
    first = json.loads(quick_starts.FIRST.read_text("utf-8"))["programs"]
    assert first.keys() == quick_starts.programs().keys()
    assert set(quick_starts.TEN) <= first.keys()
    for name, entry in quick_starts.programs().items():
        compile("\n".join(entry["program"]), name, "exec")


def test_the_first_time_is_as_it_was() -> None:
    """Of 29 that the GPU ran: 26 followed, 19 exact in allocated."""
    first = json.loads(quick_starts.FIRST.read_text("utf-8"))["programs"]
    measured = {
        name: entry["measured"] for name, entry in quick_starts.programs().items() if entry["measured"]
    }
    followed = {name for name in measured if first[name]["code"] in (0, 1)}
    exact = {name for name in followed if first[name]["allocated"] == measured[name]["allocated"]}
    assert (len(measured), len(followed), len(exact)) == (29, 26, 19)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"code": 0, "allocated": 1000, "reserved": 2000}, "exact"),
        ({"code": 1, "allocated": 1010, "reserved": 2000}, "allocated +1.000 %, reserved +0.000 %"),
        ({"code": 2}, "not followed (2)"),
    ],
)
def test_an_outcome_in_words(found: dict[str, Any], wanted: str) -> None:
    assert quick_starts.outcome({"allocated": 1000, "reserved": 2000}, found) == wanted


def test_packages_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"needs": ["package_of_nobody"], "measured": None, "program": ["import package_of_nobody"]}
    monkeypatch.setattr(quick_starts, "programs", lambda: {"keras_fit": entry})
    result = CliRunner().invoke(quick_starts.score, ["keras_fit"], standalone_mode=False)
    assert (result.return_value, result.output) == (
        0,
        f"{'keras_fit':22} passed over: package_of_nobody not installed\n",
    )
