"""Largest batches of many devices: one after the other they are what each is alone, and captures are shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from analyzer.capture.pytorch.recording.compatible import CompatibleDevices
from analyzer.cli import _output, main
from analyzer.devices import load, names
from analyzer.errors import AnalyzerError, OptionError
from analyzer.pipeline import workload
from analyzer.planning import search
from analyzer.planning.fit import fit, fits
from analyzer.results.fit import Fit
from tests.capture.pytorch.captures import inference, traced
from tests.paths import MODELS
from tests.planning.targets import Small, small_batch

DEVICES = ("1GiB", "1100MiB", "1200MiB")


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batches at which something is captured from now on."""
    made: list[int] = []
    original = workload.Workload.captured

    def counted(self: workload.Workload, batch: int, *rest: Any, **more: Any) -> Any:
        before = sum(map(len, self._known.captures.values()))
        found = original(self, batch, *rest, **more)
        if sum(map(len, self._known.captures.values())) > before:
            made.append(batch)
        return found

    monkeypatch.setattr(workload.Workload, "captured", counted)
    return made


def test_devices_share_what_was_captured(captures: list[int]) -> None:
    found = dict(fits(Small(), DEVICES, inputs=small_batch, mode="train"))
    together = len(captures)
    captures.clear()
    alone = {device: fit(Small(), small_batch, mode="train", device=device) for device in DEVICES}
    for device, one in alone.items():
        other = found[device]
        assert isinstance(other, Fit)
        assert (other.batch, other.limit, other.at, other.gaps) == (one.batch, one.limit, one.at, one.gaps)
        # The request without room is an evaluated batch's; an analysis of that batch says the same.
        assert other.failure is not None and other.beyond is not None
        assert other.failure == one.failure == other.beyond.out_of_memory
    # Of further devices hardly anything is captured.
    assert together <= len(captures) / len(DEVICES) + len(DEVICES)


def asking(name: str, *arguments: Any) -> Callable[[], Any]:
    """Looked up when it is asked: while captured, another function answers."""
    return lambda: getattr(torch.cuda, name)(*arguments)


class Asks(nn.Module):
    """Asks the device about itself."""

    def __init__(self, question: Callable[[], Any]) -> None:
        super().__init__()
        self.question = question

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.question()
        return x + 1


EVERY = frozenset(load(name).compute_capability for name in names())


def test_a_program_that_asks_nothing_is_the_same_everywhere() -> None:
    assert inference(nn.Linear(4, 4), torch.randn(2, 4)).alike == EVERY


@pytest.mark.parametrize(
    "name", ["get_device_name", "get_device_capability", "get_device_properties", "mem_get_info"]
)
def test_a_program_that_asks_which_gpu_it_is_on_is_that_gpus_alone(name: str) -> None:
    assert inference(Asks(asking(name, 0)), torch.randn(2, 4)).alike == frozenset()


def test_attention_is_the_same_where_the_same_kernel_runs() -> None:
    """Half precision: cuDNN on 9.x and 10.x, flash from 8.0 on, else efficient (`sdp_utils.cpp`)."""

    def attend() -> Any:
        q = torch.empty(2, 4, 16, 64, dtype=torch.float16, device="cuda")
        return nn.functional.scaled_dot_product_attention(q, q, q)

    alike = {device: traced(attend, load(device)).alike for device in ("h200", "rtx4090", "t4")}
    assert alike["h200"] == {c for c in EVERY if c[0] in (9, 10)}
    assert alike["rtx4090"] == {c for c in EVERY if c[0] in (8, 12)}
    assert alike["t4"] == {c for c in EVERY if c < (8, 0)}


def test_bfloat16_is_asked_for_by_what_is_decided() -> None:
    """Before compute capability 8 PyTorch tries a tensor, which takes memory."""
    graph = inference(Asks(asking("is_bf16_supported")), torch.randn(2, 4))
    assert graph.alike == {c for c in EVERY if c >= (8, 0)}


@pytest.mark.parametrize("device", ["t4", "v100", "rtx2080ti", "h100"])
def test_every_gpu_takes_bfloat16_which_old_ones_emulate(device: str) -> None:
    """`torch.cuda.is_bf16_supported`, and with it autocast."""

    def step() -> Any:
        assert torch.cuda.is_bf16_supported(including_emulation=False) == (device == "h100")
        assert torch.cuda.is_tf32_supported() == (device == "h100")
        with torch.autocast("cuda", torch.bfloat16):
            product = torch.ones(2, 4, device="cuda") @ torch.ones(4, 2, device="cuda")
        assert product.dtype is torch.bfloat16
        return product

    traced(step, load(device))


def test_what_one_device_decides_is_its_own() -> None:
    alike = CompatibleDevices(load("t4"))
    assert alike.decided(lambda architecture: architecture.ampere) is False
    assert (7, 5) in alike.capabilities and (9, 0) not in alike.capabilities


def test_a_device_that_nobody_knows_is_a_warning_among_others() -> None:
    found = dict(fits(Small(), ("1GiB", "t5"), inputs=small_batch, mode="train"))
    assert isinstance(found["1GiB"], Fit) and isinstance(found["t5"], OptionError)
    with pytest.raises(AnalyzerError, match="unknown device"):
        fit(Small(), small_batch, device="t5")
    assert main(["fit", str(MODELS / "linear.py"), "--device", "t5"]) == 2


def test_progress_says_how_many_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 30.0, 90.0])
    monkeypatch.setattr(_output.time, "monotonic", lambda: next(now))
    said: list[str] = []
    stages = _output.Stages(said.append, ["t4", "l4", "h200"])
    stages.tell("batch 16")
    stages.count_done()
    stages.tell("batch 1")
    stages.count_done()
    stages.tell("batch 2")
    assert said == [
        "0 of 3 done: t4, batch 16",
        "1 of 3 done, about 60 s left: l4, batch 1",
        "2 of 3 done, about 45 s left: h200, batch 2",
    ]
    alone: list[str] = []
    monkeypatch.setattr(_output.time, "monotonic", lambda: 0.0)
    _output.Stages(alone.append, ["t4"]).tell("batch 16")
    assert alone == ["batch 16"]


def test_off_a_terminal_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(_output.time, "monotonic", lambda: now[0])
    with _output.working("m.py") as tell:
        for second in range(0, 100, 10):
            now[0] = float(second)
            tell(f"batch {second}")
    assert capsys.readouterr().err.splitlines() == [
        f"analyze: working: m.py: batch {second}" for second in (30, 60, 90)
    ]
    with _output.working("m.py", quiet=True) as tell:
        now[0] = 1000.0
        tell("batch 1")
    assert not capsys.readouterr().err


def test_a_tiny_model_s_batches_are_not_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """One linear layer in 2 GiB: a fourth of 420,000 batches frees cached blocks, which decides nothing."""
    looked: list[int] = []
    real = search.Search.runs

    def runs(self: search.Search, batch: int) -> bool:
        looked.append(batch)
        return real(self, batch)

    monkeypatch.setattr(search.Search, "runs", runs)
    answer = fit(MODELS / "linear.py", device="2GiB", mode="train")
    assert (answer.batch, answer.gaps) == (421_888, ())
    assert len(looked) < 5_000
