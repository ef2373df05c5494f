"""Evaluation with gradients on: the note that names its line, where no backward pass follows, and the peak's place."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import analyzer
from analyzer.report.sentences import peak_place

PROGRAM = """
import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
judge = nn.Sequential(nn.Linear(10, 10)).cuda().eval()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    net.train()
    for _ in range(2):
        optimizer.zero_grad()
        out = net(torch.randn(64, 64, device="cuda"))
        (judge(out) - judge(out * 2)).square().mean().backward()
        optimizer.step()
    net.eval()
    for _ in range(2):
        with torch.set_grad_enabled(GRADIENTS):
            right = net(torch.randn(1024, 64, device="cuda")).argmax(1)
"""


def followed(tmp_path: Path, gradients: bool) -> analyzer.Estimate:
    (tmp_path / "train.py").write_text(PROGRAM.replace("GRADIENTS", str(gradients)))
    return analyzer.run(tmp_path / "train.py", device="h200")


def test_what_no_backward_pass_needs_is_pointed_at(tmp_path: Path) -> None:
    """The model's own evaluation, and not the frozen one inside the loss."""
    estimate = followed(tmp_path, gradients=True)
    (note,) = [note for note in estimate.notes if "no_grad" in note]
    assert note.startswith("train.py:18 calls a model in evaluation mode with gradients on")
    assert peak_place(estimate) == "2.forward, in 3, train.py:18"


def test_evaluation_without_gradients_is_as_it_should_be(tmp_path: Path) -> None:
    estimate = followed(tmp_path, gradients=False)
    assert not [note for note in estimate.notes if "no_grad" in note]
    assert peak_place(estimate) == "2.evaluation, in 1, train.py:18"
