"""Document 000: the naive sum for the CNN, and the allocator's part for a variable of 1 GiB."""

from __future__ import annotations

import pytest
import torch

import analyzer
from analyzer.capture.pytorch.recorder import Recorder
from tests.documents.as_written import played
from tests.paths import MODELS

MIB = 2**20


def test_naive_terms_of_the_cnn() -> None:
    naive = analyzer.analyze(MODELS / "cnn.py", batch=128, mode="train", optimizer="sgd", device="h200").naive
    terms = (naive.data, naive.weights, naive.forward_output, naive.weight_gradient, naive.output_gradient)
    assert [round(term / MIB, 1) for term in terms] == [73.5, 3.8, 240.6, 3.8, 314.1]
    assert round(naive.training / MIB, 1) == 635.8
    assert round(naive.inference / MIB, 1) == 317.9


def test_a_variable_of_one_gib_is_allocated_and_reserved_exactly() -> None:
    def script(recorder: Recorder) -> None:
        variable = torch.zeros(1024**3 // 4, dtype=torch.float32, device="cuda")
        recorder.mark("define")
        del variable
        recorder.mark("delete")

    marks = {m.event: (m.allocated, m.reserved) for m in played(script, 0).marks}
    assert marks == {"define": (2**30, 2**30), "delete": (0, 2**30)}


@pytest.mark.parametrize(
    ("optimizer", "moments"), [("sgd", 0), ("sgdm", 1), ("adagrad", 1), ("rmsprop", 1), ("adam", 2)]
)
def test_moments_are_what_the_optimizer_keeps(optimizer: str, moments: int) -> None:
    naive = analyzer.analyze(
        MODELS / "cnn.py", batch=2, mode="train", optimizer=optimizer, device="h200"
    ).naive
    assert naive.moments == moments
