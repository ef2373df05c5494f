"""The lower bound: by hand, and never above what a program takes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer_timing.advisor.floor import floor_of
from tests.paths import MODELS


def test_training_by_hand() -> None:
    """512 x 512 weights of 4 bytes, their gradients and two moments, are there together when the gradient is made, of an
    input of 512 and the sum's gradient, one number; in the optimizer's step the latter two are not needed."""
    inputs = (torch.empty(1, 512, device="meta"),)
    options = Options(mode="train", inputs=inputs, loss="sum", optimizer="adam", device="h100")
    found = floor_of(analysis(nn.Linear(512, 512, bias=False), options))
    assert found.live_bytes == 4 * 512 * 512 * 4 + 512 * 4 + 4
    assert found.operator.startswith("aten::mm")


def test_one_operator_by_hand() -> None:
    """In inference a product needs its operands, weights, and its result."""
    inputs = (torch.empty(1024, 64, device="meta"),)
    found = floor_of(analysis(nn.Linear(64, 4096, bias=False), Options(inputs=inputs, device="h100")))
    assert found.live_bytes == 4 * (1024 * 64 + 64 * 4096 + 1024 * 4096)
    assert found.operator.startswith("aten::mm")


@pytest.mark.parametrize("checkpoint", [None, "layer1.*,layer2.*,layer3.*,layer4.*"])
def test_it_is_below_what_a_model_takes(checkpoint: str | None) -> None:
    options = Options(mode="train", batch=2, optimizer="adam", device="h100", checkpoint=checkpoint)
    found = analysis(MODELS / "resnet50.py", options)
    floor = floor_of(found)
    assert 0 < floor.live_bytes <= found.estimate.graph_peak <= found.estimate.peak_allocated
    assert floor.device_bytes <= found.estimate.device_used
