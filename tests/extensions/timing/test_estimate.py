"""The step's time in an estimate: there for PyTorch, written and read, said in one line; the bytes know nothing of it."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

import analyzer
from analyzer.report import formats
from analyzer.report.json import from_dict, to_dict
from analyzer.report.sentences import step_line
from analyzer.report.words import duration
from tests.extensions.timing.graphs import H100


@pytest.fixture(scope="module")
def estimate() -> analyzer.Estimate:
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 16))
    return analyzer.analyze(model, (torch.empty(64, 256),), mode="train", optimizer="adamw", device="h100")


def test_training_has_the_time_of_its_phases(estimate: analyzer.Estimate) -> None:
    time = estimate.step_seconds
    assert time is not None
    assert {"forward", "backward", "optimizer"} <= set(time.by_phase)
    assert time.bound == "host"
    assert time.device == H100.name


def test_it_is_read_as_it_was_written(estimate: analyzer.Estimate) -> None:
    assert from_dict(to_dict(estimate)).step_seconds == estimate.step_seconds
    before = {name: value for name, value in to_dict(estimate).items() if name != "step_seconds"}
    assert from_dict(before).step_seconds is None


def test_the_report_says_it_in_a_line(estimate: analyzer.Estimate) -> None:
    text = formats.render("estimate", "text", estimate)
    assert "Time of a step: about" in text
    assert "bound by host" in " ".join(text.split())
    assert step_line(dataclasses.replace(estimate, step_seconds=None)) == ""


def test_another_gpu_says_what_its_time_rests_on(estimate: analyzer.Estimate) -> None:
    assert estimate.step_seconds is not None
    scaled = dataclasses.replace(estimate.step_seconds, source="scaled from H100 by a100-80gb's data sheet")
    assert step_line(dataclasses.replace(estimate, step_seconds=scaled)).endswith("a100-80gb's data sheet")


def test_products_in_tf32_take_less_where_the_program_allows_it() -> None:
    def of_products() -> float:
        found = analyzer.analyze(
            nn.Linear(4096, 4096), (torch.empty(4096, 4096),), device="h100"
        ).step_seconds
        assert found is not None
        return found.by_kind["mm"]

    exact, before = of_products(), torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert of_products() < 0.7 * exact
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0412, "41 ms"), (1.26, "1.3 s"), (8.7e-4, "870 us"), (0.0039, "3.9 ms"), (1234.0, "1,234 s")],
)
def test_durations_have_two_digits(seconds: float, said: str) -> None:
    assert duration(seconds) == said
