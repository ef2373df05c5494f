"""Steps that repeat are stored once, and change nothing about the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import analyzer
from analyzer import Estimate, OptionError
from analyzer.cli import main
from analyzer_programs.following.repetition import Repetition

MIB = 1 << 20
LOOP = """
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).to("cuda")
optimizer = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
for step in range(int(sys.argv[1])):
    x, y = torch.randn(64, 256).to("cuda"), torch.randint(0, 10, (64,)).to("cuda")
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    schedule.step()
"""
GAN = """
import torch
from torch import nn
g, d = nn.Linear(16, 256).cuda(), nn.Linear(256, 1).cuda()
og, od = torch.optim.Adam(g.parameters()), torch.optim.SGD(d.parameters(), lr=0.1, momentum=0.9)
for step in range(20):
    od.zero_grad()
    fake = g(torch.randn(32, 16, device="cuda"))
    (d(fake.detach()).mean() - d(torch.randn(32, 256, device="cuda")).mean()).backward()
    od.step()
    og.zero_grad()
    (-d(fake).mean()).backward()
    og.step()
"""
EPOCHS = """
import sys, torch
from torch import nn
model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(int(sys.argv[1])):
    model.train()
    for size in (64, 64, 64, 40):
        optimizer.zero_grad()
        loss = model(torch.randn(size, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for batch in range(3):
            out = model(torch.randn(128, 256, device="cuda"))
"""
GROWING = """
import torch
weight = torch.zeros(1 << 18, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
kept = []
for step in range(8):
    kept.append(weight * 2)
    (weight * 3).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def figures(estimate: Estimate) -> tuple[Any, ...]:
    return (
        estimate.peak_allocated, estimate.peak_reserved, estimate.peak_requested, estimate.device_used,
        estimate.breakdown, estimate.by_module, estimate.by_line, estimate.graph_peak,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "args"), [(LOOP, ("14",)), (GAN, ()), (EPOCHS, ("5",)), (GROWING, ())], ids=["loop", "gan", "epochs", "growing"]
)  # fmt: skip
@pytest.mark.sampled(2)
def test_figures_are_those_of_a_program_stored_whole(
    run: Any, monkeypatch: pytest.MonkeyPatch, text: str, args: tuple[str, ...]
) -> None:
    short = run(text, *args)
    monkeypatch.setattr(Repetition, "_repeats", lambda self, period: False)
    whole = run(text, *args)
    assert figures(short) == figures(whole)
    assert "repeat others" not in str(whole.notes)
    note = str(next((note for note in short.notes if "repeat others" in note), "of 0 steps, 0 of"))
    assert int(note.split(", ")[1].split(maxsplit=1)[0]) <= sum(
        mark.event.endswith(".step") for mark in whole.marks
    )
    assert len(short.timeline.allocated) <= len(whole.timeline.allocated)
    assert (len(short.timeline.allocated) == len(whole.timeline.allocated)) == (text is GROWING)


def test_many_steps_are_stored_like_few(run: Any) -> None:
    few, many = run(LOOP, "12"), run(LOOP, "40")
    assert len(many.timeline.allocated) < 1.3 * len(few.timeline.allocated)
    assert len(many.marks) < 1.3 * len(few.marks)
    note = next(note for note in many.notes if note.startswith("followed through 40 optimizer steps, "))
    assert 24 < int(note.split()[5]) < 40 and note.endswith(
        "of which repeat others to the byte and are shown once"
    )


def test_a_last_smaller_batch_and_evaluations_repeat_by_epochs(run: Any) -> None:
    assert len(run(EPOCHS, "12").timeline.allocated) == len(run(EPOCHS, "6").timeline.allocated)


def test_steady_is_where_the_allocator_repeats_too(run: Any) -> None:
    steady = run(LOOP, "400", until="steady")
    assert figures(steady) == figures(run(LOOP, "40"))
    note = next(note for note in steady.notes if note.startswith("steady after "))
    assert 2 < int(note.split()[2]) < 40


def test_a_program_that_grows_is_never_steady(run: Any) -> None:
    estimate = run(GROWING, until="steady")
    assert "followed through 8 optimizer steps" in estimate.notes
    # The weight, the eight results that are kept, and the gradient with the result being made or the other factor.
    assert estimate.peak_allocated >= 9 * MIB


def test_the_command_line_takes_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOOP)
    assert main(["run", "--until", "steady", str(script), "400"]) == 0
    assert "steady after " in capsys.readouterr().out
    assert main(["run", "--until", "2", str(script), "400"]) == 0
    second = capsys.readouterr().out.splitlines()[1]
    assert second.startswith("followed in part: 2 optimizer steps; not followed, so the whole run may take")
    assert main(["run", "--until", "soon", str(script), "400"]) == 2
    with pytest.raises(OptionError, match="until is 'soon'"):
        analyzer.run(script, until="soon")
