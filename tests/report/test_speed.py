"""Time beside bytes: cells, the sentence, JSON, and every result that has them; the bytes know nothing of it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import analyzer
from analyzer.planning.compare import compare
from analyzer.planning.grid import COLUMNS, TIMES, Job, row_of
from analyzer.report import formats, speed
from analyzer.report.formats import View
from analyzer.report.json import from_dict, to_dict
from analyzer.results.fit import Fit
from analyzer.results.step_time import StepTime
from analyzer.results.strategy import Strategy
from tests.paths import MODELS

TIME = StepTime(0.25, 0.2, 0.5, 0.2, (0.1, 0.3), 0.1, (0.05, 0.2), 10, "memory", "h100", "measured on H100")


@pytest.fixture(scope="module")
def timed() -> analyzer.Estimate:
    """Two micro-batches of 8 in a quarter of a second, within 0.2 and 0.5: 64 samples a second, 32 to 80."""
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    found = analyzer.analyze(
        model, (torch.empty(8, 16),), batch=8, mode="train", device="h100", grad_accumulation=2
    )
    return replace(found, step_seconds=TIME)


def test_samples_are_those_of_all_micro_batches(timed: analyzer.Estimate) -> None:
    assert timed.samples == 16
    assert timed.samples_per_second == (64.0, 32.0, 80.0)
    assert replace(timed, step_seconds=None).samples_per_second is None
    assert replace(timed, batch=None).samples is None
    assert replace(timed, batch=None).samples_per_second is None


def test_cells_and_the_sentence_by_hand(timed: analyzer.Estimate) -> None:
    assert speed.step(timed) == "250 ms"
    assert speed.step_range(timed) == "200 ms to 500 ms"
    assert speed.rate(timed) == "64.0"
    assert speed.line(timed) == (
        "a step takes about 250 ms (200 ms to 500 ms), bound by memory: about 64.0 samples a second (32.0 to 80.0)"
    )
    unknown = replace(timed, step_seconds=None)
    assert (speed.step(unknown), speed.rate(unknown), speed.line(unknown)) == ("-", "-", "")


@pytest.mark.parametrize(
    ("value", "said"), [(0.123, "0.12"), (9.99, "9.99"), (9.996, "10.0"), (99.96, "100"), (12345.6, "12,346")]
)
def test_three_digits(value: float, said: str) -> None:
    assert speed.number(value) == said


def test_fields_are_numbers(timed: analyzer.Estimate) -> None:
    assert speed.fields(timed) == {
        "step_seconds": 0.25, "step_range": [0.2, 0.5], "samples_per_second": 64.0,
        "samples_per_second_range": [32.0, 80.0], "bound": "memory",
    }  # fmt: skip
    assert tuple(speed.fields(timed)) == speed.FIELDS
    assert set(speed.fields(None).values()) == {None}


def test_an_estimates_json_has_the_rate(timed: analyzer.Estimate) -> None:
    document = to_dict(timed)
    assert document["samples_per_second"] == [64.0, 32.0, 80.0]
    assert from_dict(document).samples_per_second == timed.samples_per_second


def test_strategies_have_them(timed: analyzer.Estimate) -> None:
    found = [Strategy("as it is", {}, timed), Strategy("other", {}, replace(timed, step_seconds=None))]
    text = str(formats.render("strategies", "text", found, View(width=120)))
    assert "250 ms       64.0    200 ms to 500 ms" in text
    rows = json.loads(str(formats.render("strategies", "json", found)))["strategies"]
    assert rows[0]["step_range"] == [0.2, 0.5] and rows[1]["step_range"] is None
    cells = list(csv.DictReader(io.StringIO(str(formats.render("strategies", "csv", found)))))
    assert json.loads(cells[0]["samples_per_second_range"]) == [32.0, 80.0]
    assert '<td class=number data-head="samples/s">64.0</td>' in str(
        formats.render("strategies", "html", found)
    )


def test_the_largest_batch_has_them(timed: analyzer.Estimate) -> None:
    found = [Fit(8, timed, 2**30, True)] * 2
    text = str(formats.render("fits", "text", found, View(width=100)))
    assert "250 ms       64.0" in text and "at that batch a step takes about 250 ms" in text
    assert json.loads(str(formats.render("fits", "json", found)))["fits"][0]["samples_per_second"] == 64.0
    assert "64.0" in str(formats.render("fits", "html", found))


def test_a_change_of_time_is_said_and_decides_nothing(timed: analyzer.Estimate) -> None:
    slower = replace(timed, step_seconds=replace(TIME, seconds=0.3))
    found = compare(timed, slower)
    assert not found.exceeds
    said = "a step took about 250 ms and takes 300 ms, +20.0 %"
    assert said in " ".join(str(formats.render("difference", "text", found)).split())
    assert said in str(formats.render("difference", "html", found))
    document = json.loads(str(formats.render("difference", "json", found)))
    assert document["time"]["after"]["step_seconds"] == 0.3
    assert "a step took" not in str(
        formats.render("difference", "text", compare(timed, replace(timed, step_seconds=None)))
    )


def test_the_page_says_where_the_time_goes(timed: analyzer.Estimate) -> None:
    shown = replace(timed, step_seconds=replace(TIME, by_phase={"forward": 0.05}, by_module={"0": 0.15}))
    page = str(formats.render("estimate", "html", shown))
    assert "samples a second: about 64.0 (32.0 to 80.0)" in page
    assert "150 ms" in page and "75.0 %" in page


@pytest.mark.parametrize(("target", "known"), [("linear.py", True), ("cnn.onnx", False)])
def test_a_grids_row_has_them_where_time_is_known(target: str, known: bool) -> None:
    options: dict[str, Any] = {"mode": "train"} if known else {}
    row = row_of(Job(0, str(MODELS / target), 4, "as it is", "h100", options))
    assert set(row) == set(COLUMNS) and row["error"] == ""
    assert all((row[name] is not None) is known for name in TIMES)
