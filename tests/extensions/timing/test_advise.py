"""The fastest way that fits: every way is an analysis, what is named fits, what cannot is proven."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonschema import validate
from torch import nn

import analyzer
from analyzer.cli import main
from analyzer.errors import OptionError
from analyzer.report import formats
from analyzer.report.formats import View
from analyzer_timing.advise import advise
from analyzer_timing.results import Advice
from tests.paths import MODELS

GPT2 = str(MODELS / "gpt2.py")
JOB: dict[str, Any] = {"mode": "train", "optimizer": "adamw", "device": "h100"}


@pytest.fixture(scope="module")
def gpt2() -> Callable[..., Advice]:
    """Advice on GPT-2 with short sequences, each asked for once."""
    known: dict[str, Advice] = {}

    def asked(**said: Any) -> Advice:
        key = repr(sorted(said.items()))
        if key not in known:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("GPT2_SEQUENCE_LENGTH", "128")
                known[key] = advise(GPT2, **{**JOB, **said})
        return known[key]

    return asked


# Of 4 samples: as it is 3,884 MiB; one by one 3,480; all blocks computed again 3,348.
BUDGETS = ("4GiB", "3500MiB", "3360MiB")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("budget", BUDGETS)
def test_what_is_named_fits_and_is_proven(
    gpt2: Callable[..., Advice], budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options that are printed, analysed again, take to the byte what was said, within the budget."""
    monkeypatch.setenv("GPT2_SEQUENCE_LENGTH", "128")
    found = gpt2(batch=4, budget=budget)
    best = found.best
    assert best is not None and best.estimate is not None
    again = analyzer.analyze(GPT2, **{**JOB, "batch": 4, "budget": budget, **best.changes})
    assert again.fits() and again.verdict() == "fits"
    assert (again.peak_reserved, again.device_used) == (
        best.estimate.peak_reserved,
        best.estimate.device_used,
    )
    assert again.samples == 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize("budget", BUDGETS)
def test_ways_are_in_the_order_of_their_time(gpt2: Callable[..., Advice], budget: str) -> None:
    found = gpt2(batch=4, budget=budget)
    times = [way.seconds for way in found.ways if way.verdict == "fits"]
    assert None not in times and times == sorted(times, key=lambda time: time or 0.0)
    assert all(way.verdict not in ("fits", "may not fit") for way in found.others)
    assert not any(way.numbers for way in (*found.ways, *found.others))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("budget", BUDGETS)
def test_never_slower_than_everything_computed_again(
    gpt2: Callable[..., Advice], budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPT2_SEQUENCE_LENGTH", "128")
    everything = analyzer.analyze(GPT2, **JOB, batch=4, budget=budget, checkpoint="transformer.h.*")
    best = gpt2(batch=4, budget=budget).best
    assert best is not None and best.seconds is not None and everything.step_seconds is not None
    if everything.verdict() == "fits":
        assert best.seconds <= everything.step_seconds.seconds


def test_what_fits_as_it_is_is_not_made_slower(gpt2: Callable[..., Advice]) -> None:
    found = gpt2(batch=4, budget="4GiB")
    assert found.best is not None and set(found.best.changes) <= {"optimizer"}
    assert {way.name for way in found.ways} == {"adamw_fused", "as it is"}


def test_what_cannot_fit_is_proven(gpt2: Callable[..., Advice]) -> None:
    """GPT-2's weights, gradients and moments are 1,899 MiB."""
    found = gpt2(batch=4, budget="2GiB")
    assert found.best is None and found.bound is not None
    parameters = 124_439_808 * 4
    assert found.bound.device_bytes >= 4 * parameters + found.bound.beside_bytes
    assert found.missing_bytes == found.bound.device_bytes - 2 * 2**30 > 0
    text = formats.render("advice", "text", found)
    assert isinstance(text, str) and text.startswith("cannot fit: one sample needs at least ")
    # The bound is one: no way that was tried is below it.
    used = [way.estimate.needed.device_used for way in found.others if way.estimate is not None]
    assert used and min(used) >= found.bound.device_bytes


class Tower(nn.Module):
    """Blocks that keep a hundred times what stays of them."""

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Layer(norm) for _ in range(6)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.blocks(x)
        return out


class Layer(nn.Module):
    def __init__(self, norm: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(128, 4096), nn.Linear(4096, 128)
        self.norm = nn.BatchNorm1d(4096) if norm else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.norm(self.up(x))))


def tower(norm: bool = False, **said: Any) -> Advice:
    inputs = (torch.empty(8192, 128, device="meta"),)
    return advise(Tower(norm), inputs, loss="sum", **{**JOB, "optimizer": "adam", **said})


def test_as_few_blocks_as_fit_are_computed_again() -> None:
    """One sample cannot be divided: a batch of 8,192 rows given as one tensor can, so it is told what does not divide."""
    found = tower(norm=True, budget="1900MiB")
    best = found.best
    assert best is not None and "checkpoint" in best.changes
    assert best.changes["checkpoint"] != "blocks.*"
    everything = next(way for way in found.ways if way.changes.get("checkpoint") == "blocks.*")
    assert best.seconds is not None and everything.seconds is not None and best.seconds < everything.seconds
    assert any(note.startswith("accumulation is left out") for note in found.notes)
    assert any(note.startswith("batch norm's running statistics") for note in found.notes)
    assert found.patch == ""  # a module has no file


def test_what_changes_numbers_is_named_so() -> None:
    found = tower(budget="1900MiB", change_numbers=True)
    changing = {way.name for way in (*found.ways, *found.others) if way.numbers}
    assert {"adam_fused + amp bf16", "adam_fused + pure bf16"} <= changing
    assert not changing & {"as it is", "adam_fused", "adam_fused + checkpoint blocks.*"}
    best = found.best
    assert best is not None
    if best.numbers:
        assert "(changes numbers)" in str(formats.render("advice", "text", found))


def test_a_device_of_unknown_speed_is_ordered_by_operations() -> None:
    found = tower(device="2GiB", budget="1900MiB")
    best = found.best
    assert best is not None and best.seconds is None
    assert any(note.startswith("no time is known of ") for note in found.notes)
    fitting = [way.operations for way in found.ways if way.verdict == "fits"]
    assert fitting == sorted(fitting)


@pytest.mark.campaign
def test_a_rate_is_asked_for_at_whatever_batch() -> None:
    target = str(MODELS / "linear_mnist.py")
    found = advise(target, mode="train", device="h100", samples_per_second=20_000)
    assert found.reached and found.best is not None and found.best.estimate is not None
    speed = found.best.estimate.samples_per_second
    assert speed is not None and speed[0] >= 20_000
    with pytest.raises(OptionError, match="whatever batch"):
        advise(target, mode="train", device="h100", samples_per_second=10, batch=4)
    with pytest.raises(OptionError, match="no time is known of"):
        advise(str(MODELS / "cnn.onnx"), device="t4", samples_per_second=10)


def test_a_session_has_settings_and_no_time() -> None:
    found = advise(str(MODELS / "resnet50.onnx"), device="h100", budget="4.5GiB", batch=256)
    assert found.best is not None and found.best.seconds is None
    assert "runtime_options" in found.best.changes
    text = str(formats.render("advice", "text", found))
    assert "no time is known of an ONNX session" in " ".join(text.split())


def test_it_must_be_said_what_it_shall_fit() -> None:
    with pytest.raises(OptionError, match="nothing says what it shall fit"):
        advise(GPT2, batch=1)


FIGURES = ("peak_allocated", "peak_reserved", "device_used", "batch")
ROW = {
    "type": "object",
    "required": ["name", "options", "changes", "changes_numbers", "verdict", *FIGURES, "step_seconds",
        "step_range", "samples_per_second", "samples_per_second_range", "bound", "error"],
    "properties": {
        "name": {"type": "string"},
        "verdict": {"enum": ["fits", "may not fit", "does not fit", "does not run"]},
        "changes_numbers": {"type": "boolean"},
        **{name: {"type": ["integer", "null"], "minimum": 0} for name in FIGURES},
        "step_seconds": {"type": ["number", "null"], "exclusiveMinimum": 0},
        "step_range": {"type": ["array", "null"], "minItems": 2, "maxItems": 2, "items": {"type": "number"}},
    },
    "additionalProperties": True,
}  # fmt: skip
SCHEMA = {
    "type": "object",
    "required": ["schema", "best", "base", "ways", "others", "infeasible", "missing_bytes", "bound",
        "wanted_samples_per_second", "reached", "patch", "patch_proven", "analyses", "notes"],
    "properties": {
        "schema": {"const": 1},
        "best": {"type": ["string", "null"]},
        "base": ROW,
        "ways": {"type": "array", "items": ROW},
        "others": {"type": "array", "items": ROW},
        "infeasible": {"type": "boolean"},
        "missing_bytes": {"type": "integer", "minimum": 0},
        "bound": {"type": ["object", "null"], "required": ["device_bytes", "beside_bytes", "place"]},
        "wanted_samples_per_second": {"type": ["number", "null"]},
        "reached": {"type": ["boolean", "null"]},
        "patch": {"type": "string"},
        "patch_proven": {"type": "boolean"},
        "analyses": {"type": "integer", "minimum": 1},
        "notes": {"type": "array", "items": {"type": "string"}},
    },
    "additionalProperties": False,
}  # fmt: skip


@pytest.mark.parametrize("budget", ["4GiB", "2GiB"])
def test_the_json_has_its_schema(gpt2: Callable[..., Advice], budget: str) -> None:
    document = json.loads(str(formats.render("advice", "json", gpt2(batch=4, budget=budget))))
    validate(document, SCHEMA)
    assert document["infeasible"] is (budget == "2GiB")
    assert (document["best"] is None) is (budget == "2GiB")


@pytest.mark.parametrize("width", [52, 64, 79])
@pytest.mark.parametrize("budget", ["3500MiB", "2GiB"])
def test_nothing_sticks_out(gpt2: Callable[..., Advice], width: int, budget: str) -> None:
    text = str(formats.render("advice", "text", gpt2(batch=4, budget=budget), View(width=width)))
    assert [line for line in text.partition("\nOr as a patch")[0].splitlines() if len(line) > width] == []


MODEL = """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(128, 4096), nn.BatchNorm1d(4096), nn.Linear(4096, 128)

    def forward(self, x):
        return x + self.down(torch.relu(self.norm(self.up(x))))


def make_model():
    return nn.Sequential(*(Block() for _ in range(6)))


def make_batch(batch):
    return (torch.empty(batch, 128),), ()


def loss(output):
    return output.sum()
"""


def test_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer, what to type, the table, the patch, which `patch` applies and whose file takes what was said."""
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    words = ["model.py", "--mode", "train", "--batch", "8192", "--device", "h100", "--budget", "1900MiB"]
    assert main(["advise", *words, "-q"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    said = re.match(r"fastest way that fits: (.+?): ([\d,.]+) MiB of 1,900\.0;", " ".join(out.split()))
    assert said is not None and "checkpoint" in said[1]
    assert "the changed file was analysed: the same bytes" in out
    assert "+    return checkpointed(nn.Sequential(*(Block() for _ in range(6))))\n" in out
    assert main(["advise", *words, "--format", "json", "-o", "advice.json", "-q"]) == 0
    document = json.loads(Path("advice.json").read_text())
    validate(document, SCHEMA)
    best = document["ways"][0]
    assert document["patch_proven"] is True and best["options"] in " ".join(out.split())
    with pytest.raises(analyzer.InputError, match="another command's result"):
        from analyzer.report.json import read

        read(Path("advice.json"))


@pytest.mark.campaign
def test_the_command_line_where_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        str(MODELS / "resnet50.py"),
        "--mode",
        "train",
        "--batch",
        "2",
        "--device",
        "h100",
        "--budget",
        "800MiB",
    ]
    assert main(["advise", *words, "-q"]) == 1
    assert capsys.readouterr().out.startswith("cannot fit: one sample needs at least ")
    assert main(["advise", str(MODELS / "linear.py"), "-q"]) == 2
    assert "nothing says what it shall fit" in capsys.readouterr().err
