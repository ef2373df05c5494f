"""Strategies: every line is the analysis its options ask for; blocks are found; what does not run is kept."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import analyzer
from analyzer.capture.pytorch.module.blocks import stacks
from analyzer.cli import main
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.pipeline.assemble import Captured
from analyzer.pipeline.workload import Workload
from analyzer.planning.changes import variants
from analyzer.planning.checkpoints import gain, patterns
from analyzer.planning.fit import fit
from analyzer.planning.flops import flops
from analyzer.planning.what_if import cheapest, what_if
from analyzer.report import formats
from tests.paths import MODELS


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(256) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = norm(block(x))
        return x


INPUTS = (torch.empty(512, 256, device="meta"),)


@pytest.mark.campaign
def test_every_strategy_is_an_analysis() -> None:
    found = {s.name: s for s in what_if(Tower(), INPUTS, mode="train", optimizer="adam", device="h200")}
    recomputed = found["checkpoint blocks.*"]
    assert recomputed.estimate == analyzer.analyze(
        Tower(), INPUTS, mode="train", optimizer="adam", device="h200", checkpoint="blocks.*"
    )
    base = found["as it is"].estimate
    assert base is not None and recomputed.estimate is not None
    assert recomputed.saved == base.device_used - recomputed.estimate.device_used
    # A block's forward pass is a third of its work, but the last product need not be computed again.
    assert 0.15 < recomputed.extra_compute <= 1 / 3
    assert found["adam_fused"].estimate == analyzer.analyze(
        Tower(), INPUTS, mode="train", optimizer="adam_fused", device="h200"
    )
    halved = found["accumulation x2"].estimate
    assert halved == analyzer.analyze(
        Tower(),
        (INPUTS[0][:256],),
        batch=256,
        mode="train",
        optimizer="adam",
        device="h200",
        grad_accumulation=2,
    )
    assert all(strategy.estimate is not None for strategy in found.values())


def test_blocks_are_found_and_layers_are_none() -> None:
    assert stacks(Tower()) == {"blocks.*": [f"blocks.{place}" for place in range(4)]}
    assert stacks(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))) == {}
    assert stacks(nn.Sequential(Block(), Block())) == {"*": ["0", "1"]}
    assert list(stacks(Stages())) == ["*", "stage1.*", "stage2.*", "stage[12].*"]


class Stages(nn.Module):
    """The first stage has the activations, the second the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stage1 = nn.Sequential(
            *[nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GELU()) for _ in range(3)]
        )
        self.stage2 = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        return self.stage2(nn.functional.max_pool2d(self.stage1(x), 8).flatten(1))


IMAGES = (torch.empty(4, 8, 64, 128, device="meta"),)


@pytest.mark.parametrize("pattern", ["*", "stage1.*", "stage2.*", "stage[12].*"])
def test_what_checkpointing_frees_and_costs_is_known_before(pattern: str) -> None:
    """From the base's graph alone, by a minimum cut: to the byte and the operation what checkpointing them then does."""
    options = Options(mode="train", inputs=IMAGES, loss="sum", device="h200", steps=1)
    base = analysis(Stages(), options)
    changed = analysis(Stages(), replace(options, checkpoint=pattern))
    found = gain(base.graph, stacks(Stages())[pattern])
    assert found.freed_bytes == base.estimate.saved_for_backward - changed.estimate.saved_for_backward > 0
    assert found.operations == flops(changed.graph) - flops(base.graph) > 0


def test_the_blocks_that_free_most_are_offered() -> None:
    """Not those with the most parameters, nor whole stages, each of which would be there while it runs again."""
    options = Options(mode="train", inputs=IMAGES, loss="sum", device="h200", steps=1)
    base = analysis(Stages(), options)
    assert patterns(base.graph, Stages()) == ["stage1.*", "stage[12].*"]
    offered = [name for name, _, _ in variants(base, options, Stages())]
    assert "checkpoint stage1.*" in offered and "amp bf16 + checkpoint stage[12].*" in offered
    assert patterns(base.graph, nn.Linear(4, 4)) == []


def test_what_can_be_computed_again_cheaply() -> None:
    """A block's input follows from what the norm before it reads: of four blocks three have one. ReLUs follow from products alone."""
    found = what_if(Tower(), INPUTS, mode="train", device="h200", steps=1)
    norms = 3 * 512 * 256 * 4
    statistics = 4 * 2 * 512 * 4
    assert norms + statistics <= found[0].recomputable < norms + statistics + 512
    assert all(strategy.recomputable == 0 for strategy in found[1:])
    told = str(formats.render("strategies", "text", found))
    assert "can be computed again without a product" in " ".join(told.split())
    assert (
        json.loads(str(formats.render("strategies", "json", found)))["strategies"][0]["recomputable"] >= norms
    )
    assert what_if(Tower(), INPUTS, device="h200")[0].recomputable == 0


def test_operations_of_a_product_by_hand() -> None:
    """Two products of 512 x 256 x 1024 in a block's forward pass, two operations each, four blocks."""
    found = analysis(Tower(), Options(inputs=INPUTS, device="h200", steps=1))
    assert flops(found.graph) == 4 * 2 * 2 * 512 * 256 * 1024


@pytest.mark.parametrize("convolves", [pytest.param(False, marks=pytest.mark.campaign), True])
def test_the_largest_batch_is_what_fit_finds(convolves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every strategy, with the same estimates as without the search; a program without convolutions is captured a few times each, and
    not once more for settings of the allocator."""
    captures: list[str] = []
    made = Workload._made

    def counted(workload: Workload, options: Options, *arguments: Any) -> Captured:
        captures.append(str(options.shown()))
        return made(workload, options, *arguments)

    monkeypatch.setattr(Workload, "_made", counted)
    model = (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
        if convolves
        else Tower()
    )
    inputs = (
        (torch.empty(16, 3, 32, 32, device="meta"),) if convolves else (torch.empty(16, 256, device="meta"),)
    )
    if convolves:
        model(torch.empty(1, 3, 32, 32))
    said: dict[str, Any] = {
        "batch": 16,
        "mode": "train",
        "optimizer": "sgd" if convolves else "adamw",
        "device": "700MiB",
    }
    found = what_if(model, inputs, largest=True, **said)
    count = len(captures)
    assert [replace(s, largest=None) for s in found] == what_if(model, inputs, **said)
    for strategy in found:
        options = {**said, **strategy.changes}
        size = options.pop("batch")
        assert strategy.largest == fit(model, tuple(t[:size] for t in inputs), **options).batch, strategy.name
    assert convolves or count <= 6 * len(found)


def test_the_cheapest_change_that_fits() -> None:
    """On a device where only less activations help, a free change is not taken for one that fits."""
    options = {"mode": "train", "optimizer": "adam"}
    base = analyzer.analyze(Tower(), INPUTS, device="h200", **options)  # type: ignore[arg-type]
    found = what_if(Tower(), INPUTS, device=base.device_used - 1, **options)
    chosen = cheapest(found)
    assert chosen is not None and chosen.estimate is not None
    assert chosen.estimate.fits()
    assert all(s.cost >= chosen.cost for s in found if s.estimate is not None and s.estimate.fits())
    assert cheapest(what_if(Tower(), INPUTS, device="1MiB")) is None


def test_onnx_strategies_and_forms() -> None:
    found = what_if(MODELS / "cnn.onnx", batch=8, device="h200")
    names = [strategy.name for strategy in found]
    assert names[0] == "as it is" and "arena_extend_strategy=kSameAsRequested" in names
    for form in formats.names("strategies"):
        text = formats.render("strategies", form, found)
        assert isinstance(text, str) and "kSameAsRequested" in text


def test_the_default_command_ends_with_what_would_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """A gigabyte is less than this training takes; on one megabyte nothing helps. Where it fits nothing is said."""
    asked = [str(MODELS / "feedforward.py"), "--batch", "8192", "--mode", "train"]
    assert main([*asked, "--device", "1MiB"]) == 1
    assert "nor does a smaller batch: parameters, context" in " ".join(capsys.readouterr().out.split())
    estimate = analyzer.analyze(MODELS / "feedforward.py", batch=8192, mode="train", device="h200")
    assert main([*asked, "--device", str(estimate.device_used - 1)]) == 1
    assert capsys.readouterr().out.split("\n\n")[-1].startswith("cheapest change that fits: ")
    assert main([*asked, "--device", str(estimate.device_used)]) == 0
    assert "cheapest" not in capsys.readouterr().out


def test_over_a_budget_it_ends_with_what_stays_within(capsys: pytest.CaptureFixture[str]) -> None:
    """The change named takes no more than the budget; lines are within 80 columns; JSON and files have no advice."""
    asked = [str(MODELS / "feedforward.py"), "--batch", "8192", "--mode", "train", "--top", "0"]
    estimate = analyzer.analyze(MODELS / "feedforward.py", batch=8192, mode="train", device="h200")
    budget = estimate.device_used - 1
    assert main([*asked, "--budget", str(budget)]) == 1
    *_, said = capsys.readouterr().out.split("\n\n")
    taken = re.match(r"cheapest change that fits: .+: ([\d,.]+) MiB of ([\d,.]+)", " ".join(said.split()))
    assert taken is not None and float(taken[1].replace(",", "")) <= budget / 2**20
    assert taken[2] == f"{budget / 2**20:,.1f}"
    assert max(map(len, said.splitlines())) <= 80
    assert main([*asked, "--budget", "1MiB", "--device", "h200"]) == 1
    assert "allow more" in " ".join(capsys.readouterr().out.split("\n\n")[-1].split())
    assert main([*asked, "--budget", str(estimate.device_used)]) == 0
    assert "cheapest" not in capsys.readouterr().out
    assert main([*asked, "--budget", str(budget), "--format", "json"]) == 1
    json.loads(capsys.readouterr().out)


def test_more_gpus_are_offered_once_and_cost_most() -> None:
    options = Options(mode="train", optimizer="adam", inputs=INPUTS, device="h200", steps=1)
    target = Tower()
    offered = {
        name: (cost, changes) for name, cost, changes in variants(analysis(target, options), options, target)
    }
    assert offered["FSDP2 on 8 GPUs"] == (3, {"parallel": "fsdp2:8"})
    assert max(cost for cost, _ in offered.values()) == 3
    copies = replace(options, parallel="ddp:4")
    offered = {
        name: (cost, changes) for name, cost, changes in variants(analysis(target, copies), copies, target)
    }
    assert offered["FSDP2 on 4 GPUs"] == (1, {"parallel": "fsdp2:4"})
    sharded = replace(options, parallel="fsdp2:4")
    assert not [
        entry for entry in variants(analysis(target, sharded), sharded, target) if "parallel" in entry[2]
    ]


def test_state_of_8_bits_by_hand() -> None:
    """Two weights of 262,144 elements: two states of a byte each, and of each 256 elements a float32 scale a state;
    two biases below 4,096 elements in 32 bits; two tables of 256 float32."""
    pytest.importorskip("bitsandbytes")
    model = nn.Sequential(nn.Linear(256, 1024), nn.Linear(1024, 256))
    inputs = (torch.empty(8, 256, device="meta"),)
    found = what_if(model, inputs, mode="train", optimizer="adamw", device="h200")
    eight = next(strategy for strategy in found if strategy.name == "adamw_8bit")
    assert eight.estimate is not None, eight.error
    state = 2 * 2 * 262_144 + 2 * 2 * 1024 * 4 + 2 * (1024 + 256) * 4 + 2 * 256 * 4
    assert eight.estimate.breakdown["optimizer state"] == state
    assert not eight.estimate.certainty.unknown_operators
