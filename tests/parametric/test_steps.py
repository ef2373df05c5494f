"""One captured step for all: what comes of it is what capturing every step gives, or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from analyzer.graph import Operator
from analyzer.options import Options
from analyzer.parametric.numbers import NotTheSame
from analyzer.parametric.steps import RepeatedSteps
from analyzer.pipeline.workload import Workload
from tests.planning.targets import Small, small_batch


class Growing(nn.Module):
    """Keeps one more row in every forward pass: no step is like the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(torch.cat([x] * self.calls))


def plain(operator: Operator) -> Operator:
    """Without fractions, whose values may differ from batch to batch (a loss divided by it)."""
    return replace(operator, arguments=tuple(a for a in operator.arguments if not isinstance(a, float)))


@pytest.mark.parametrize(
    "more", [{"mode": "infer"}, {"optimizer": "adam"}, {"optimizer": "sgd", "grad_accumulation": 2}]
)
def test_the_steps_are_those_captured(more: dict[str, Any]) -> None:
    given: Any = {"inputs": small_batch, "mode": "train", "device": "h200", **more}
    workload = Workload(Small(), Options.of(given))
    repetition = RepeatedSteps(workload.captured(9).source.graph)
    for batch in (2, 12):
        graph = repetition.with_all_steps(workload.captured(batch, steps=1).source.graph).check()
        every = workload.captured(batch).source.graph
        assert graph.storages == every.storages
        assert graph.program == every.program
        assert list(map(plain, graph.operators)) == list(map(plain, every.operators))
        assert (graph.batch, graph.notes) == (every.batch, every.notes)


def test_steps_that_do_not_repeat_are_captured() -> None:
    def rows(batch: int) -> Any:
        return (torch.randn(batch, 8),), ()

    workload = Workload(Growing(), Options.of({"inputs": rows, "device": "h200"}))
    with pytest.raises(NotTheSame):
        RepeatedSteps(workload.captured(5).source.graph)


def test_another_first_step_is_refused() -> None:
    workload = Workload(Small(), Options.of({"inputs": small_batch, "device": "h200"}))
    other = workload.under(replace(workload.options, mode="train"))
    with pytest.raises(NotTheSame):
        RepeatedSteps(workload.captured(5).source.graph).with_all_steps(
            other.captured(3, steps=1).source.graph
        )
