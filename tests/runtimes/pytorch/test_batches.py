"""A captured program's figures at any batch: what devices share of it changes none of them."""

from __future__ import annotations

import torch
from torch import nn

from analyzer.devices import load
from analyzer.options import Options
from analyzer.pipeline.workload import Workload
from analyzer.runtimes.base import Limit
from analyzer.runtimes.batches import Batches, Figures, ParametricCapture

# A turing GPU's convolutions take other steps than a Hopper's: some have no workspace.
DEVICES = ("t4", "h200", "rtx3090")
BATCHES = (4, 9, 16)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 128, 1)
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(x).relu()).relu().mean((2, 3)))


def captured(model: nn.Module, sample: torch.Tensor) -> tuple[Workload, ParametricCapture]:
    workload = Workload(model, Options.of({"device": "h200", "inputs": (sample,), "mode": "train"}))
    made = [workload.captured(batch) for batch in BATCHES]
    return workload, ParametricCapture(BATCHES, [each.source for each in made], [each.naive for each in made])


def over(workload: Workload, parametric: ParametricCapture, device: str) -> Batches:
    found = workload.on(device).over_batches(parametric, load(device))
    assert found is not None
    return found


def asked(batches: Batches) -> list[Figures]:
    figures = [batches.at(batch) for batch in (2, 5, 12)]
    tight = Limit(figures[-1].peak_reserved * 3 // 4, False)
    return [*figures, batches.at(12, tight)]


def test_devices_asked_in_turn_say_what_each_says_alone() -> None:
    workload, parametric = captured(Net(), torch.zeros(2, 3, 56, 56))
    alone = {
        device: asked(over(workload, captured(Net(), torch.zeros(2, 3, 56, 56))[1], device))
        for device in DEVICES
    }
    together = {device: over(workload, parametric, device) for device in DEVICES}
    for _ in range(2):  # the second time all have met the steps of all
        for device, batches in together.items():
            assert asked(batches) == alone[device]


def test_the_request_without_room_is_said() -> None:
    batches = over(
        *captured(nn.Sequential(nn.Linear(64, 4096), nn.GELU(), nn.Linear(4096, 8)), torch.zeros(2, 64)),
        "h200",
    )
    free = batches.at(12)
    assert batches.failed(12, Limit(free.peak_reserved, False)) is None
    limit = Limit(free.peak_reserved - 2**21, False)
    found = batches.failed(12, limit)
    assert found is not None and batches.at(12, limit).fails
    failure = found.failure
    assert failure.limit == limit.nbytes < failure.reserved + failure.malloc.nbytes + 2**21
    assert found.events[failure.position].key == failure.malloc.key


def test_in_doubt_the_request_without_room_is_that_of_an_analysis() -> None:
    workload, parametric = captured(Net(), torch.zeros(2, 3, 56, 56))
    batches = over(workload, parametric, "h200")
    limit = Limit(batches.at(12).peak_allocated // 2, False)
    found, own = batches.failed(12, limit), workload.analysis(12, limit).estimate.out_of_memory
    assert batches.at(12, limit).fails and found is not None and own is not None
    failure = found.failure
    assert (failure.malloc.nbytes, failure.allocated) == (own.requested_bytes, own.allocated_bytes)
    assert (failure.reserved, sum(failure.free)) == (own.reserved_bytes, own.free_bytes)


def narrow_net() -> tuple[Workload, Batches]:
    """Convolutions whose workspaces are most of the peak."""
    layers = nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    workload, parametric = captured(model, torch.zeros(2, 16, 128, 128))
    return workload, over(workload, parametric, "h200")


def test_operators_take_what_they_take_at_that_batch() -> None:
    workload, batches = narrow_net()
    for batch in (2, 40):
        own = workload.analysis(batch).estimate
        found = batches.at(batch)
        assert (found.peak_allocated, found.peak_reserved) == (own.peak_allocated, own.peak_reserved)


def test_without_room_for_the_first_plans_smaller_ones_run() -> None:
    workload, batches = narrow_net()
    limit = Limit(batches.at(40).peak_reserved * 3 // 4, False)
    found, own = batches.at(40, limit), workload.analysis(40, limit).estimate
    assert own.out_of_memory is None and not found.fails
    assert batches.failed(40, limit) is None
