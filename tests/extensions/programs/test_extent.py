"""A long program ends where its epochs repeat, and says what was followed of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from analyzer import Estimate
from analyzer.cli import main
from analyzer.options import Options
from analyzer_programs.following import extent, owners
from analyzer_programs.following.loaders import Loaders
from analyzer_programs.following.repetition import ENOUGH, Repetition
from analyzer_programs.program import follow

LOOP = """
import sys, torch
from torch import nn
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).to("cuda")
optimizer = torch.optim.Adam(model.parameters())
kept = []
for step in range(int(sys.argv[1])):
    size = 640 if step == int(sys.argv[2]) else 64
    model(torch.randn(size, 256, device="cuda")).square().mean().backward()
    if "leak" in sys.argv:
        kept.append(torch.ones(300, device="cuda"))
    optimizer.step()
    optimizer.zero_grad()
"""
EPOCHS = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
epochs, every, last = map(int, sys.argv[1:])
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(64 * 16 + last, 512)), 16, shuffle=True)
checks = DataLoader(TensorDataset(torch.randn(40 * 256, 512)), 256)
for epoch in range(epochs):
    for count, (x,) in enumerate(loader, 1):
        (model(x.cuda()).square().mean() / every).backward()
        if count % every == 0:
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        for (x,) in checks:
            model(x.cuda())
"""


def figures(estimate: Estimate) -> tuple[int, ...]:
    return estimate.peak_allocated, estimate.peak_reserved, estimate.peak_requested, estimate.device_used


def part(estimate: Estimate) -> str:
    return next((note for note in estimate.notes if "--until end" in note), "")


@pytest.fixture
def no_layout_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator never is as it was."""
    monkeypatch.setattr(Repetition, "_repeats", lambda self, period: False)


@pytest.mark.usefixtures("no_layout_repeats")
def test_steps_that_are_alike_end_a_program(run: Any) -> None:
    estimate = run(LOOP, "400", "-1", until="steady")
    note = part(estimate)
    steps = int(note.removeprefix("steady after ").split()[0])
    assert ENOUGH < steps <= ENOUGH + 5
    assert f"the last {ENOUGH} steps asked for the same" in note and "any evaluation" in note
    assert figures(estimate) == figures(run(LOOP, "60", "-1", until="end"))


@pytest.mark.usefixtures("no_layout_repeats")
def test_a_larger_step_begins_the_count_again(run: Any) -> None:
    estimate = run(LOOP, "400", "14", until="steady")
    assert int(part(estimate).removeprefix("steady after ").split()[0]) > 14 + ENOUGH
    assert figures(estimate) == figures(run(LOOP, "60", "14", until="end"))


@pytest.mark.usefixtures("no_layout_repeats")
def test_steps_that_leave_more_alive_are_not_alike(run: Any) -> None:
    assert not part(run(LOOP, "60", "-1", "leak", until="steady"))


@pytest.mark.usefixtures("no_layout_repeats")
def test_a_loss_in_a_list_is_told_and_does_not_keep_a_program_going(run: Any) -> None:
    losses = LOOP.replace("    model(torch", "    loss = model(torch").replace(
        ".mean().backward()", ".mean()\n    loss.backward()"
    )
    kept = losses.replace(
        "    optimizer.zero_grad()\n", "    optimizer.zero_grad()\n    kept.append(loss.detach())\n"
    )
    note = part(run(kept, "60", "-1", until="steady"))
    assert note.startswith("steady after ") and "but for 512 bytes that stay each time" in note


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("last", [0, 8])
def test_a_long_program_is_followed_through_an_epoch_and_its_evaluation(
    run: Any, monkeypatch: pytest.MonkeyPatch, every: int, last: int
) -> None:
    whole = run(EPOCHS, "2", str(every), str(last), until="end")
    assert not part(whole)
    monkeypatch.setattr(extent, "_LONG_OPERATORS", 700)
    short = run(EPOCHS, "5", str(every), str(last), until="auto")
    assert figures(short) == figures(whole)
    note = part(short)
    assert note.startswith("followed in part: ") and "left out before: " in note
    assert "calls without gradients" in note and "not followed" not in note, "all five epochs, to the end"


COUNTED = EPOCHS.replace(
    "        if count % every == 0:\n",
    "        if count == 40:\n            model(torch.randn(4096, 512, device='cuda'))\n        if count % every == 0:\n",
)
LAST = EPOCHS + "model(torch.randn(4096, 512, device='cuda'))\n"


def test_a_very_long_program_that_leaves_more_alive_ends_too(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extent, "_MOST_OPERATORS", 700)
    leaks = run(LOOP.replace("torch.ones(300", "torch.ones(3000"), "1000", "-1", "leak", until="auto")
    assert part(leaks).startswith("followed as far as ")


@pytest.mark.parametrize("program", [COUNTED, LAST], ids=["by a count", "behind the loops"])
def test_a_larger_step_behind_those_that_repeat_is_followed(
    run: Any, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    whole = run(program, "2", "1", "0", until="end")
    assert figures(whole) != figures(run(EPOCHS, "2", "1", "0", until="end"))
    monkeypatch.setattr(extent, "_LONG_OPERATORS", 700)
    short = run(program, "2", "1", "0", until="auto")
    assert figures(short) == figures(whole) and "left out before" in part(short)


def test_nothing_is_left_out_of_a_loop_that_is_not_the_scripts_own(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loop, head = EPOCHS[EPOCHS.index("for epoch") :], EPOCHS[: EPOCHS.index("for epoch")]
    lines = "".join(f"    {line}\n" for line in loop.splitlines())
    names = "epochs, loader, model, every, optimizer, checks"
    (tmp_path / "trainer_of_others.py").write_text(f"import torch\ndef fit({names}):\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(extent, "_LONG_OPERATORS", 700)
    program = f"{head}from trainer_of_others import fit\nfit({names})\n"
    assert not part(run(program, "2", "1", "0", until="auto"))


def test_a_very_long_program_ends_and_the_verdict_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extent, "_MOST_OPERATORS", 700)
    script = tmp_path / "train.py"
    script.write_text(
        LOOP.replace("    model(torch", "    if step == 900:\n        size = 1\n    model(torch")
    )
    assert main(["run", "--device", "h100", str(script), "1000", "-1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("fits as far as followed: ") and " followed as far as " in out
    assert (
        "the `if` in line 9 always went one way; not followed, so the whole run may take more: further steps"
        in out
    )


IN_A_FUNCTION = """
import torch
def train(steps):
    model = torch.nn.Linear(1024, 1024, device="cuda")
    seen = []
    for step in range(steps):
        if step == 2:
            first = torch.ones(64, 1024, 1024, device="cuda")
            del first
        loss = model(torch.randn(4096, 1024, device="cuda")).square().mean()
        loss.backward()
        big = torch.ones(16, 1024, 1024, device="cuda") if step == 3 else None
        optimizer = torch.optim.SGD(model.parameters())
        optimizer.step()
        del big
        another = torch.ones(64, 1024, 1024, device="cuda")
        del another
train(6)
"""


def test_looking_at_a_functions_variables_keeps_none_of_them(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = run(IN_A_FUNCTION, until="end")
    monkeypatch.setattr(owners.Owners, "look", lambda self, frame, step: None)
    assert figures(looked) == figures(run(IN_A_FUNCTION, until="end"))


def test_a_short_program_is_followed_to_its_end(run: Any) -> None:
    short, whole = (run(EPOCHS, "3", "1", "0", until=until) for until in ("auto", "end"))
    assert not part(short) and short.notes == whole.notes and figures(short) == figures(whole)


def test_progress_says_what_a_step_is_followed_for(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(EPOCHS)
    said: list[str] = []
    options = Options.of({"device": "h100"})
    follow(str(script), ("1", "1", "0"), options, {}, "auto", progress=said.append)
    first = [line.partition(", peak")[0].rpartition(", ")[0] for line in said if "peak" in line]
    assert first[0] == "step 1" and first[2] == "step 3, steps differ", first[:4]
    assert any(line.startswith("step 5, waiting for the allocator to repeat") for line in first)
    assert "step 64, call 40 without gradients" in first
    assert said[-1] == "computing the figures after 64 steps"


def test_the_second_line_says_what_was_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extent, "_LONG_OPERATORS", 700)
    script = tmp_path / "train.py"
    script.write_text(EPOCHS)
    assert main(["run", "--device", "h100", str(script), "3", "1", "0"]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("fits: ") and second.startswith("followed in part: ")
    assert main(["run", "--device", "h100", "--until", "end", str(script), "3", "1", "0"]) == 0
    assert "steady after" not in capsys.readouterr().out


def test_a_shortened_epoch_ends_as_the_whole_one_does() -> None:
    loaders = Loaders()
    iterator = iter(DataLoader(range(103), 10))
    draw = loaders.drawing(lambda it: next(it._sampler_iter))
    assert [draw(iterator)[0] for _ in range(3)] == [0, 10, 20]
    assert loaders.place.drawn == 3 and loaders.length == 11
    assert loaders.shorten(4)
    assert [draw(iterator) for _ in range(4)] == [
        list(range(start, min(start + 10, 103))) for start in (70, 80, 90, 100)
    ]
    assert loaders.batches == 4 and not loaders.shorten(1)


def test_a_batch_of_another_size_is_not_left_out() -> None:
    class Sizes(BatchSampler):
        def __iter__(self) -> Any:
            return iter([[0], [1], [2], [3], [4, 5], [6], [7], [8]])

        def __len__(self) -> int:
            return 8

    loaders = Loaders()
    iterator = iter(DataLoader(range(9), batch_sampler=Sizes(SequentialSampler(range(9)), 1, False)))
    draw = loaders.drawing(lambda it: next(it._sampler_iter))
    draw(iterator)
    assert loaders.shorten(1)
    assert draw(iterator) == [4, 5]
