"""Operators nobody has described: an answer all the same, with the operator named."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import analyzer


@torch.library.custom_op("analyzer_tests::opaque", mutates_args=(), device_types="cpu")  # no body for a GPU
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


class Opaque(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return opaque(self.linear(x))


def test_without_a_shape_function_results_are_as_large_as_the_largest_input() -> None:
    estimate = analyzer.analyze(Opaque(), inputs=(torch.empty(4, 8),), device="h200")
    assert any("analyzer_tests::opaque" in note for note in estimate.notes)
    assert any("analyzer_tests::opaque" in name for name in estimate.certainty.unknown_operators)
    made = [row for row in estimate.tensors if "opaque" in row.operator]
    assert made and made[0].shape == (4, 64)


def test_strict_refuses_them() -> None:
    with pytest.raises(analyzer.UnknownOperatorError, match="opaque"):
        analyzer.analyze(Opaque(), inputs=(torch.empty(4, 8),), device="h200", strict=True)
