"""A program that runs out of memory is judged by what it would have done."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer.cli import main
from analyzer.report.sentences import fragmented, uncertain
from analyzer.report.verdicts import verdicts
from analyzer.results.estimate import UNREAD, Estimate
from analyzer_programs import program
from tests.paths import ROOT

STEP = """
import torch, torch.nn as nn
net = nn.Sequential(*[nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(6)]).cuda()
opt = torch.optim.{optimizer}(net.parameters())
for step in range(3):
    loss = net(torch.randn({batch}, 512, device="cuda")).square().mean()
    loss.backward(); opt.step(); opt.zero_grad()
"""
FORWARD, BACKWARD, OPTIMIZER = (
    (STEP.format(optimizer="SGD", batch=16384), "1100MiB"),
    (STEP.format(optimizer="SGD", batch=16384), "2600MiB"),
    (STEP.format(optimizer="Adam", batch=16), "960MiB"),
)


def in_vain(estimate: Estimate) -> int:
    return sum(row.nbytes for row in estimate.tensors if row.path[:1] and row.path[0] in UNREAD)


def without_a_second_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the program cannot be followed any further with room."""
    monkeypatch.setattr(program, "with_room", lambda tight, free: tight)


@pytest.mark.parametrize(
    ("text", "device"), [FORWARD, BACKWARD, OPTIMIZER], ids=["forward", "backward", "step"]
)
def test_it_is_judged_as_with_room(run: Any, text: str, device: str) -> None:
    """Figures, categories and phases are those of the program on a card that has room."""
    tight, roomy = run(text, device=device), run(text, device="24GiB")
    assert tight.out_of_memory is not None and roomy.out_of_memory is None
    assert (tight.mode, tight.breakdown, tight.peak_at) == (roomy.mode, roomy.breakdown, roomy.peak_at)
    assert (tight.peak_reserved, tight.graph_peak) == (roomy.peak_reserved, roomy.graph_peak)
    # The loss, a number: the variable keeps it while its backward pass runs, which does not read it.
    assert in_vain(tight) == in_vain(roomy) <= 512 and tight.verdict() == "does not fit"


@pytest.mark.parametrize(
    ("text", "device"), [FORWARD, BACKWARD, OPTIMIZER], ids=["forward", "backward", "step"]
)
def test_nothing_that_is_still_to_be_read_is_held_in_vain(
    run: Any, monkeypatch: pytest.MonkeyPatch, text: str, device: str
) -> None:
    without_a_second_run(monkeypatch)
    estimate = run(text, device=device)
    assert estimate.stopped and estimate.mode == "train" and in_vain(estimate) <= 512
    # The graph has the tensor that found no room, and no workspaces of a library.
    failed = estimate.out_of_memory
    assert failed is not None
    assert estimate.graph_peak - failed.requested_bytes <= estimate.peak_allocated
    assert estimate.peak_allocated - estimate.breakdown["workspace"] <= estimate.graph_peak
    if (text, device) == FORWARD:
        assert max(estimate.breakdown, key=lambda name: estimate.breakdown[name]) == "saved for backward"
        saved = [row for row in estimate.tensors if row.category == "saved for backward"]
        assert {row.path[0] for row in saved} <= {"the backward pass", "its last reader"}
    if (text, device) == OPTIMIZER:
        assert estimate.breakdown["optimizer state"] > 0.9 * estimate.breakdown["parameters"]


def test_a_leak_is_still_one(run: Any) -> None:
    """Losses of an evaluation summed with their graphs: followed with room, nothing ever reads them."""
    text = """
import torch
net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
total = 0.0
for _ in range(40):
    total += net(torch.randn(4096, 512, device="cuda")).square().mean()
print(float(total))
"""
    estimate = run(text, device="768MiB")
    assert estimate.out_of_memory is not None and in_vain(estimate) > estimate.peak_allocated // 2


def test_parameters_without_a_module_are_the_optimizers(run: Any) -> None:
    text = """
import torch
w = [torch.nn.Parameter(torch.zeros(1 << 20, device="cuda")) for _ in range(4)]
opt = torch.optim.AdamW(w)
for p in w:
    p.grad = torch.zeros_like(p)
opt.step()
"""
    estimate = run(text, device="24GiB")
    assert estimate.mode == "train" and in_vain(estimate) == 0
    assert estimate.breakdown["gradients"] == estimate.breakdown["parameters"] == 16 << 20


def test_calls_that_leave_more_alive_are_named(run: Any) -> None:
    text = """
import torch
net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
total = 0.0
for _ in range(40):
    total += net(torch.randn(4096, 512, device="cuda")).square().mean()
print(float(total))
"""
    tight, roomy = run(text, device="768MiB"), run(text, device="24GiB")
    for estimate in (tight, roomy):
        assert estimate.growth is not None and estimate.growth.held_by == "a graph"
        # The input and four outputs of 4096 x 512 numbers of four bytes, with the loss's scalars.
        assert 0 <= estimate.growth.step_bytes - (5 << 23) < 1 << 10
    assert tight.growth is not None and roomy.growth is not None
    fitting = run(text.replace("range(40)", f"range({tight.growth.full_at - 1})"), device="768MiB")
    assert fitting.out_of_memory is None and tight.growth.full_at < 20 < roomy.growth.full_at
    full = run(text.replace("range(40)", f"range({tight.growth.full_at})"), device="768MiB")
    assert full.out_of_memory is not None


def test_steps_of_a_training_do_not_grow(run: Any) -> None:
    estimate = run(STEP.format(optimizer="Adam", batch=64).replace("range(3)", "range(9)"), device="24GiB")
    assert estimate.growth is None and estimate.fragmentation is None


def test_memory_in_holes_is_said_with_what_settings_would_hold(run: Any) -> None:
    text = """
import torch
for i in range(10, 40):
    a = torch.empty(i << 22, dtype=torch.uint8, device="cuda")
    b = torch.empty(i << 21, dtype=torch.uint8, device="cuda")
    del a, b
"""
    estimate = run(text, device="16GiB")
    found = estimate.fragmentation
    assert found is not None and found.missed_count > 5 and found.source.startswith("train.py:")
    least = found.settings[0]
    assert least.setting == "expandable_segments:True" and least.fits
    real = run(text, device="16GiB", runtime_options={"alloc_conf": least.setting})
    assert (least.peak_allocated, least.peak_reserved) == (real.peak_allocated, real.peak_reserved)
    assert least.peak_reserved < estimate.peak_reserved // 4
    divided = next(row for row in found.settings if row.setting.startswith("roundup"))
    real = run(text, device="16GiB", runtime_options={"alloc_conf": divided.setting})
    assert divided.peak_reserved == real.peak_reserved


def test_a_setting_that_fits_says_what_it_holds_here(run: Any) -> None:
    """Large blocks that are not split are given back whole: the figure behind "fits" is the device's."""
    text = """
import torch
kept = []
for i in range(10):
    a = torch.empty((300 + 40 * i) << 20, dtype=torch.uint8, device="cuda")
    del a
    kept.append(torch.empty(200 << 20, dtype=torch.uint8, device="cuda"))
"""
    estimate = run(text, device="3.4GiB")
    assert estimate.out_of_memory is not None and estimate.fragmentation is not None
    row = next(row for row in estimate.fragmentation.settings if row.setting == "max_split_size_mb:128")
    assert row.fits and row.device_used > estimate.usable_bytes
    real = run(text, device="3.4GiB", runtime_options={"alloc_conf": row.setting})
    assert real.verdict() == "fits" and row.here_bytes == real.peak_reserved < row.peak_reserved
    for shown in re.findall(r"([\d.]+) GiB \(fits", fragmented(estimate)):
        assert float(shown) <= 3.4


CONVOLUTIONS = """
import sys, torch
net = torch.nn.Sequential(torch.nn.Conv2d(4, 64, 3), *[torch.nn.Conv2d(64, 64, 3) for _ in range(2)]).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    x = torch.randn(1, 4, int(sys.argv[1]), int(sys.argv[1]), device="cuda")
    net(x).mean().backward(); opt.step(); opt.zero_grad()
"""


def test_what_depends_on_a_workspace_nobody_asked_about_may_not_fit(run: Any, tmp_path: Path) -> None:
    """A program near the limit goes on to plans of cuDNN that are unknown: so does a target, and the words are the same."""
    estimate = run(CONVOLUTIONS, "4000", device="rtx3090")
    assert estimate.out_of_memory is None and estimate.within(estimate.usable_bytes)
    assert estimate.doubt and estimate.verdict() == "may not fit"
    assert verdicts(estimate)[0][1].startswith("may not fit: ")
    assert main(["run", "--device", "rtx3090", "-q", "--no-advice", str(tmp_path / "train.py"), "4000"]) == 1
    assert run(CONVOLUTIONS, "1000", device="rtx3090").verdict() == "fits"


def test_memory_given_back_near_the_limit_is_noted(run: Any) -> None:
    """Growing blocks: with room each stays cached, on a smaller GPU the earlier ones are given back."""
    text = """
import torch
for i in range(10):
    a = torch.empty((300 + 40 * i) << 20, dtype=torch.uint8, device="cuda")
    del a
"""
    roomy, tight = run(text, device="24GiB"), run(text, device="3GiB")
    assert tight.peak_reserved < roomy.peak_reserved
    (note,) = (note for note in tight.notes if "given back" in note)
    assert note.startswith("near the GPU's limit ") and not any("given back" in n for n in roomy.notes)


def test_a_range_says_what_it_depends_on(run: Any) -> None:
    """With room for its workspaces as they are, and none for the largest they may be: cuDNN, not the driver."""
    estimate = run(CONVOLUTIONS, "2000", device="rtx3090")
    (cause, (least, most)), *others = estimate.certainty.causes.items()
    assert cause == "workspaces that cuDNN was not asked about" and least < estimate.peak_reserved < most
    assert all(end[1] - end[0] <= most - least for _, end in others)
    assert (min(least, *(e[0] for _, e in others)) if others else least) == estimate.reserved_range[0]
    assert any(line.startswith(f"reserved memory depends on {cause} (") for line in uncertain(estimate))


def test_without_cudnn_the_range_holds_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """Images of many sizes without cuDNN within reach: an H200 reserved 7,158 MiB (`docs/evidence/OOM.md`), and the screen says
    that the figure is between bounds."""
    program = ROOT / "benchmarks/subjects/oom/sizes.py"
    assert (
        main(["run", "--device", "h200", "--engine", "trace", "--no-advice", "--top", "0", str(program)]) == 0
    )
    assert "between bounds: " in " ".join(capsys.readouterr().out.split())
    estimate = analyzer.run(str(program), device="h200")
    least, most = estimate.reserved_range
    assert least <= 7158 * 2**20 <= most and any("are between bounds" in note for note in estimate.notes)


def test_a_program_that_is_followed_again_says_nothing_twice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its warnings and records are on standard error once; a file it keeps itself has those of each time."""
    script = tmp_path / "talks.py"
    script.write_text(
        """
import logging, sys, warnings
import torch

warnings.warn("beware of batches")
logger = logging.getLogger("talks")
logger.addHandler(logging.StreamHandler(sys.stderr))
logger.addHandler(logging.FileHandler("kept.log"))
logger.warning("no mask is given")
print(open("kept.log").read().count("no mask"), file=sys.stderr, end=" times\\n")
torch.empty(2 << 30, device="cuda")
"""
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        estimate = analyzer.run(script, device="1GiB")
    said = capfd.readouterr().err
    assert estimate.out_of_memory is not None
    assert said.count(" times") == 2 and "0 times" not in said  # it was followed twice
    assert said.count("no mask") == [str(each.message) for each in warned].count("beware of batches") == 1


def test_the_verdict_is_said_before_the_program_is_followed_with_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes behind it may take minutes: the line is there when the second run begins."""
    script = tmp_path / "train.py"
    script.write_text(FORWARD[0])
    before: list[str] = []
    unheard = program.unheard

    def recorded() -> Any:
        before.append(capsys.readouterr().err)
        return unheard()

    monkeypatch.setattr(program, "unheard", recorded)
    assert main(["run", "--no-advice", "--device", FORWARD[1], str(script)]) == 1
    assert "analyze: does not fit: out of memory: " in before[0] and "with room" in before[0]
    capsys.readouterr()
    before.clear()
    assert main(["run", "--no-advice", "-q", "--device", FORWARD[1], str(script)]) == 1
    assert before == [""]
