"""Document 004: one linear layer on MNIST, line by line, for SGD and Adam (no workspaces in its figures)."""

from __future__ import annotations

import pytest

import analyzer
from tests.paths import MODELS

MODEL = MODELS / "linear_mnist.py"
COMMON = {"model": 32_256, "0.input": 347_136, "0.forward": 351_232, "0.loss": 356_352, "0.backward": 384_000}


@pytest.mark.parametrize(("optimizer", "step"), [("sgd", 384_000), ("adam", 448_512)])
def test_bytes_after_each_line(optimizer: str, step: int) -> None:
    estimate = analyzer.analyze(
        MODEL,
        batch=100,
        mode="train",
        optimizer=optimizer,
        runtime_options={"cublas_workspace": ":0:0"},
        device="h200",
    )
    marks = {mark.event: mark.allocated for mark in estimate.marks}
    assert {event: marks[event] for event in COMMON} == COMMON
    assert marks["0.step"] == step


def test_the_environment_variable_means_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    estimate = analyzer.analyze(MODEL, batch=100, mode="train", device="h200")
    assert {mark.event: mark.allocated for mark in estimate.marks}["0.backward"] == COMMON["0.backward"]
