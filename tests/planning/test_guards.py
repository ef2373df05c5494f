"""What a program asks about sizes: heard while it is captured, answered at any batch."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import analyzer
from analyzer.capture.pytorch.recording.asked_sizes import AskedSizes
from analyzer.graph.guard import SizeGuard
from analyzer.parametric.program import SizeGuards
from analyzer.planning.curve import sweep
from analyzer.planning.fit import fit
from tests.planning.targets import stepped_batch

MIB = 2**20


def heard(size: int, ask: Any) -> list[SizeGuard]:
    asked = AskedSizes()
    ask(asked.sizes(torch.Size([size, 4])))
    return asked.guards


@pytest.mark.parametrize(
    ("ask", "changed"),
    [
        (lambda shape: shape[0] == 17, [17]),
        (lambda shape: shape[0] == 17, [17]),
        (lambda shape: shape[0] < 100, list(range(100, 300))),
        (lambda shape: (3 * shape[0] + 1) % 8 == 4, [b for b in range(1, 300) if (3 * b + 1) % 8 == 4]),
        (lambda shape: bool(shape[0] - 40), [40]),
        (lambda shape: 1000 // (shape[0] * shape[1]) != 0, list(range(251, 300))),
        (lambda shape: -shape[0] < -50, list(range(51, 300))),
        (lambda shape: shape[1] == 4, []),  # no matter of the batch
        (lambda shape: shape[0] == 2.5, []),  # not heard
    ],
)
def test_a_question_is_answered_at_every_batch(ask: Any, changed: list[int]) -> None:
    batches = (2, 23, 35)
    guards = SizeGuards(batches, [heard(batch, ask) for batch in batches])
    assert [batch for batch in range(1, 300) if guards.changed(batch)] == changed


def test_sizes_are_numbers() -> None:
    size = AskedSizes().size(6)
    assert (size + 1, 2 * size, size // 4, size % 4, -size, size**2, size / 4) == (7, 12, 1, 2, -6, 36, 1.5)
    assert isinstance(size, int) and hash(size) == 6 and f"{size}" == "6" and [7][size - 6] == 7
    assert type(copy.deepcopy(size)) is int and type(pickle.loads(pickle.dumps(size))) is int
    assert torch.zeros(size, 2, device="meta").shape == (6, 2)


def test_questions_that_are_not_the_same_everywhere_say_nothing() -> None:
    one, two = SizeGuard("lt", 2, 5, True, "a.py:1"), SizeGuard("lt", 9, 5, False, "a.py:1")
    assert not SizeGuards((2, 9, 16), [[one], [two], [two]]).changed(
        100
    )  # the program is the same either way
    assert not SizeGuards((2,), [[one]]).changed(100)


class Unlucky(nn.Module):
    """Fails at one batch, takes more at another."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 256)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 17:
            raise ValueError("17 samples are bad luck")
        x = self.layer(x)
        return torch.cat([x] * 40) if x.size(0) % 64 == 32 else x


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_batch_between_the_captures_that_is_another_program(mode: str) -> None:
    curve = sweep(Unlucky(), range(2, 61), stepped_batch, mode=mode, device="h200", loss="sum")
    assert list(curve.failures) == [17]
    assert "bad luck" in curve.failures[17]
    assert {17, 32} <= set(curve.captures) and len(curve.captures) < 20
    for row in curve.rows:
        if row.batch in (16, 18, 31, 32, 33):
            inputs, _ = stepped_batch(row.batch)
            fresh = analyzer.analyze(Unlucky(), inputs, mode=mode, device="h200", loss="sum")
            assert row.peak_allocated == fresh.peak_allocated


def test_a_batch_the_program_refuses_says_nothing_of_memory() -> None:
    class Refusing(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            assert 1 < x.shape[0] <= 3000, "no such batch"
            assert x.shape[0] != 1000, "nor this one"
            return super().forward(x)

    found = fit(Refusing(256, 256), stepped_batch, limit=40 * MIB, device="h200")
    runs = fit(nn.Linear(256, 256), stepped_batch, limit=40 * MIB, device="h200")
    assert found.batch == runs.batch > 1000
    assert "at 1 the program itself fails: " in found.notes[-1] and "no such batch" in found.notes[-1]
    most = fit(Refusing(256, 256), stepped_batch, limit=400 * MIB, device="h200")
    assert (most.batch, most.fails, most.beyond) == (3000, 3001, None)
    assert "no such batch" in most.refused
