"""The list that grows is named beside the growth."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from analyzer.report import sentences

LEAK = """
import torch
from collections import deque

def train(steps):
    net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    history = {"loss": [], "step": []}
    last = deque(maxlen=3)
    numbers = []
    for step in range(steps):
        loss = net(torch.randn(2048, 512, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history["loss"].append(KEPT)
        history["step"].append(step)
        last.append(loss.detach())
        numbers.append(loss.item())

train(12)
"""


def test_the_list_that_holds_the_losses_is_named(run: Any) -> None:
    estimate = run(LEAK.replace("KEPT", "net(torch.randn(2048, 512, device='cuda'))"), until="end")
    assert estimate.growth is not None
    sentence = sentences.growing(estimate)
    assert (
        "the list history['loss'] (at step 8: 7 of them, each with the graph behind it) grows by" in sentence
    )
    assert "numbers" not in sentence and "last" not in sentence and "history['step']" not in sentence
    assert not any("history" in note for note in sentences.other_notes(estimate))


def test_what_is_detached_has_no_graph_behind_it(run: Any) -> None:
    estimate = run(LEAK.replace("KEPT", "loss.detach()"), until="end")
    note = next(note for note in estimate.notes if "grows by tensors" in note)
    assert note.startswith("the list history['loss'] (at step 8: 7 of them) ")


def test_a_list_of_numbers_is_not_named(run: Any) -> None:
    estimate = run(LEAK.replace("KEPT", "loss.item()"), until="end")
    assert not any("grows by tensors" in note for note in estimate.notes)
