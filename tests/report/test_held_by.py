"""Who keeps it alive, in text, on the page and in JSON."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from analyzer.report import attribution, formats
from analyzer.report import json as json_report
from analyzer.report.formats import View
from analyzer.results.estimate import Estimate
from tests.report.estimates import GOLDEN, TRAINING, hostile

SAVED = ("the backward pass", "convolution_backward layer1.0.conv1 small.py:14")
VARIABLE = ("a variable", "until mean small.py:20")
GRAPH = ("a graph", "mean small.py:20", "a variable", "until mean small.py:20")


def estimate(first: tuple[str, ...], second: tuple[str, ...] = ("the model",)) -> Estimate:
    rows = (replace(row, path=path) for row, path in zip(TRAINING.tensors, (first, second), strict=True))
    return replace(TRAINING, tensors=tuple(rows))


def text(found: Estimate, **view: object) -> str:
    return str(formats.render("estimate", "text", found, View(**view)))  # type: ignore[arg-type]


def test_the_default_screen_stays_as_it_is() -> None:
    assert text(estimate(SAVED)) == GOLDEN


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_line_more_for_each_tensor(width: int) -> None:
    """With --verbose; its end, which says where, is never cut, and nothing is wider than there is room."""
    shown = text(estimate(SAVED), verbose=True, width=width)
    assert "held by the backward pass" in shown and "held by the model" in shown
    assert re.search(r"small\.py:14\n", shown)
    assert max(map(len, shown.splitlines())) <= width


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            VARIABLE,
            "20.0 MiB is never used again: conv small.py:12, which a variable holds until mean small.py:20",
        ),
        (
            GRAPH,
            "20.0 MiB is never used again: the graph of mean small.py:20 keeps it, and a variable its result",
        ),
    ],
)
def test_what_nothing_reads_again_is_said(path: tuple[str, ...], words: str) -> None:
    assert words in " ".join(text(estimate(path)).split())
    page = str(formats.render("estimate", "html", estimate(path)))
    assert words in " ".join(re.sub("<[^>]*>", "", page).split())


def test_little_of_it_is_not() -> None:
    assert attribution.unread(estimate(("the model",), VARIABLE)) != ""
    assert attribution.unread(replace(estimate(("the model",), VARIABLE), peak_allocated=2**40)) == ""


def test_by_holder() -> None:
    found = estimate(SAVED)
    assert attribution.rows(found, "holder", 1) == [
        ("the backward pass", 20 * 2**20),
        ("the model", 8 * 2**20),
    ]
    assert "the backward pass, convolution_backward" in text(found, by="holder", width=120)
    assert attribution.rows(TRAINING, "holder") == [("", 28 * 2**20)]  # saved before it was kept


def test_the_page_has_the_whole_path() -> None:
    page = str(formats.render("estimate", "html", estimate(GRAPH)))
    _, found, table = page.partition("Holders at the peak")
    shown = " ".join(re.sub("<[^>]*>", " ", table.replace("<wbr>", "")).split())
    assert found and "20.0 MiB conv a graph mean small.py:20, a variable, until mean small.py:20" in shown
    assert "Holders at the peak" not in str(formats.render("estimate", "html", TRAINING))


def test_json_keeps_it() -> None:
    found = estimate(GRAPH)
    assert json_report.loads(json_report.render(found)) == found
    old = json_report.to_dict(found)
    for row in old["tensors"]:
        del row["path"]
    assert json_report.from_dict(old) == TRAINING


def test_names_in_it_are_cleaned() -> None:
    for form in ("text", "html"):
        shown = str(formats.render("estimate", form, hostile(), View(verbose=True, by="holder")))
        assert "\x1b" not in shown and "\u202e" not in shown
