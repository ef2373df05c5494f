"""What a checkpointed block takes of the host: the figures are those measured, and a captured program's blocks are counted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from analyzer.graph import Graph, Phase
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer_timing import host
from benchmarks.harness import files
from tests.extensions.timing.graphs import products
from tests.paths import ROOT

# Seconds of the host for a block's forward and backward pass, by way and by how many tensors the block saves.
RECORD = ROOT / "tests/data/h100/timing/checkpoint.json.gz"


class Blocks(nn.Module):
    """Three blocks, of which each saves for its backward pass: the input and the weight of a product, and what relu makes."""

    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU()) for _ in range(3))
        self.first = nn.Linear(8, 8)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for part in self.parts:
            x = part(x) if self.reentrant is None else checkpoint(part, x, use_reentrant=self.reentrant)
        return x


def graph_of(reentrant: bool | None, **more: object) -> Graph:
    options = Options(
        inputs=(torch.empty(4, 8, device="meta"),),
        loss="sum",
        mode="train",
        device="h100",
        **more,
    )
    return analysis(Blocks(reentrant), options).graph


def counted(graph: Graph) -> dict[Phase, tuple[int, int]]:
    """Regions and calls of the last step, by phase, without the phases that have none."""
    last = max(operator.step for operator in graph.operators)
    found: dict[Phase, tuple[int, int]] = {}
    for operator in graph.operators:
        if operator.step == last and operator.checkpointing != (0, 0):
            regions, calls = found.get(operator.phase, (0, 0))
            found[operator.phase] = regions + operator.checkpointing[0], calls + operator.checkpointing[1]
    return found


def fitted(rows: Mapping[str, Mapping[str, list[float]]], way: str = "checkpoint") -> dict[str, float]:
    """What a way adds, in seconds: `region` and `call`, least squares of relative errors. A checkpointed block has two regions, and
    three calls for each tensor it saves; one under hooks one, and two."""
    left, right = [], []
    again = way != "hooks"
    for saved, (forward, backward) in rows[way].items():
        plain = rows["plain"][saved]
        more = forward + backward - sum(plain) - (plain[0] if again else 0.0)
        left.append([2.0 if again else 1.0, (3.0 if again else 2.0) * int(saved)])
        right.append(more)
    scale = 1 / np.maximum(np.array(right), 1e-6)
    region, call = np.linalg.lstsq(np.array(left) * scale[:, None], np.ones(len(right)), rcond=None)[0]
    return {"region": float(region), "call": float(call)}


def test_the_figures_are_those_of_the_loops() -> None:
    found = fitted(files.read(RECORD)["seconds"])
    assert found["region"] == pytest.approx(host._REGION * 1e-6, rel=0.01)
    assert found["call"] == pytest.approx(host._HOOK * 1e-6, rel=0.01)


def test_what_the_fit_takes_apart_is_what_was_put_together() -> None:
    """Blocks of so many operators of 10 us forward and 20 back, regions of 100 us, calls of 5."""
    plain = {str(n): [10e-6 * n, 20e-6 * n] for n in (1, 4, 16)}
    made = {
        str(n): [100e-6 + 15e-6 * n, 100e-6 + (20 + 10) * 1e-6 * n + 10e-6 * n] for n in (1, 4, 16)
    }  # saved once; run again, saved again, used
    found = fitted({"plain": plain, "checkpoint": made})
    assert found == pytest.approx({"region": 100e-6, "call": 5e-6})


def test_checkpointed_blocks_and_their_saved_tensors_are_counted() -> None:
    assert counted(graph_of(None)) == {}
    found = counted(graph_of(False))
    assert found[Phase.FORWARD][0] == 3 and found[Phase.BACKWARD][0] == 3
    # What relu makes is saved when it is over: the last one's counts with the loss.
    assert found[Phase.FORWARD][1] + found[Phase.LOSS][1] == 3 * 3
    assert found[Phase.BACKWARD][1] == 2 * 3 * 3
    assert counted(graph_of(True)) == {}  # reentry has no hooks


def test_the_option_is_counted_too() -> None:
    assert counted(graph_of(None, checkpoint="parts.[01]"))[Phase.FORWARD][0] == 2


def test_each_region_and_call_takes_the_host_longer() -> None:
    plain = products(2, 64).operators[1]
    more = dataclasses.replace(plain, checkpointing=(2, 30))
    added = host.seconds_of(more, "mm", 1, 0, plain) - host.seconds_of(plain, "mm", 1, 0, plain)
    assert added == pytest.approx(1e-6 * host._FORWARD * (2 * host._REGION + 30 * host._HOOK))


def test_channels_last_takes_the_host_longer_only_where_each_step_makes_the_batch_contiguous() -> None:
    """Steps of an H100, whose batch is put in that order before the first step, or in each."""
    content = files.read(ROOT / "tests/data/h100/timing/channels_last.json.gz")
    host = {json.dumps([row["changes"], row["in each step"]]): row["host"] for row in content["steps"]}
    usual, last, before = (
        host[json.dumps([changes, each])]
        for changes, each in (({}, False), ({"channels_last": True}, False), ({"channels_last": True}, True))
    )
    copy = sorted(content["batch"][str(content["threads"])])[3]
    assert before - last > 0.8 * copy
    assert last - usual < copy
