"""What makes a program fit that runs out of memory: each change is followed before it is named."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzer.devices import load
from analyzer.graph.calls import ModelCall
from analyzer.options import Options
from analyzer.pipeline.diagnosis import diagnosed
from analyzer.report import formats, sentences
from analyzer.report.formats import PLAIN, View, render
from analyzer.results.diagnosis import Remedy
from analyzer_programs.program import follow
from analyzer_programs.ways import trial
from analyzer_programs.ways.batch_edits import smaller
from analyzer_programs.ways.script_edits import Symptoms, edits
from analyzer_programs.ways.trial import Program
from analyzer_programs.ways.way_out import ways_out

TRAINING = """
import torch, torch.nn as nn
net = nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(6)]).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(torch.randn(16384, 256, device="cuda")).square().mean()
    loss.backward(); opt.step(); opt.zero_grad()
"""
LEAK = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 512)).cuda()
def validate():
    total = 0.0
    for _ in range(30):
        total += net(torch.randn(8192, 512, device="cuda")).square().mean()
    return total
print(float(validate()))
"""


@pytest.mark.parametrize(("text", "device", "first"), [
    (TRAINING, "1400MiB", "checkpointing"),
    (LEAK, "900MiB", "no_grad around the evaluation"),
])  # fmt: skip
def test_what_is_named_fits(tmp_path: Path, text: str, device: str, first: str) -> None:
    """The figures are those of the changed file, followed by itself."""
    script = tmp_path / "train.py"
    script.write_text(text)
    options = Options.of({"device": device})
    analysis, _ = follow(script, (), options, {})
    assert analysis.estimate.out_of_memory is not None
    found = ways_out(str(script), (), options, {}, "end", diagnosed(analysis)).remedies
    assert found[0].name == first and found[0].kind == "patch" and not found[0].numbers
    models = analysis.graph.models
    line = "7" if text is LEAK else ""
    changed = next(e for e in edits(text, models, Symptoms(text is TRAINING, line)) if e.name == first)
    added = [part[1:] for part in found[0].typed.splitlines() if re.match(r"\+(?!\+\+)", part)]
    assert len(added) <= 2 and all(f"{part}\n" in changed.text for part in added)
    script.write_text(changed.text)
    again = follow(script, (), options, {})[0].estimate
    assert again.verdict() == "fits" and again.peak_reserved == found[0].peak_reserved


def test_the_smallest_card_where_nothing_helps(tmp_path: Path) -> None:
    script = tmp_path / "large.py"
    script.write_text("import torch\nx = torch.zeros(10 << 28, device='cuda')\n")
    options = Options.of({"device": "8GiB"})
    analysis, _ = follow(script, (), options, {})
    (card,) = ways_out(str(script), (), options, {}, "end", diagnosed(analysis)).remedies
    device = card.typed.removeprefix("--device ")
    assert card.kind == "device" and not card.state
    there = follow(script, (), Options.of({"device": device}), {})[0].estimate
    assert there.verdict() == "fits" and there.device_used == card.device_used


@pytest.mark.parametrize(
    ("text", "arguments", "changed"),
    [
        ("loader = DataLoader(data, batch_size=64)\n", (), "loader = DataLoader(data, batch_size=32)\n"),
        ("bs = 8\n", (), "bs = 4\n"),
        ("x = torch.randn(16, 3, device='cuda')\n", (), "x = torch.randn(8, 3, device='cuda')\n"),
        (
            "p.add_argument('--batch-size', type=int, default=12)\n",
            (),
            "p.add_argument('--batch-size', type=int, default=6)\n",
        ),
        ("pass\n", ("--batch_size", "8", "--lr=1"), ("--batch_size", "4", "--lr=1")),
        ("pass\n", ("--train-batch-size=8",), ("--train-batch-size=4",)),
    ],
)
def test_where_a_batch_is_found(text: str, arguments: tuple[str, ...], changed: Any) -> None:
    (edit,) = smaller(text, arguments, [ModelCall("net", "train.py", 9, batch=16)], 2)
    assert (edit.text or edit.arguments) == changed and edit.numbers


def test_a_keyword_of_a_trainers_arguments() -> None:
    text = "args = TrainingArguments(\n    output_dir='out',\n    bf16=False,\n)\n"
    found = {edit.name: edit.text for edit in edits(text, [], Symptoms(True))}
    assert "bf16=True" not in found
    assert "eval_accumulation_steps=1)" in found["eval_accumulation_steps=1"].replace("\n", "")
    compile(found["gradient_checkpointing=True"], "train.py", "exec")


def test_advice_is_short_and_in_plain_words(tmp_path: Path) -> None:
    """Below ways out five of the largest tensors are enough, unless more are asked for."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    analysis, _ = follow(script, (), Options.of({"device": "24GiB"}), {})
    name = "saved tensors wait on the host"
    estimate = replace(analysis.estimate, remedies=(Remedy(name, "arguments", "--offload", 1, 1, 1 << 20),))

    def rows(view: View) -> int:
        shown = str(render("estimate", "text", estimate, view))
        return len(re.findall(r"^ *(?:forward|backward|optimizer|setup) ", shown, re.MULTILINE))

    assert rows(PLAIN) == 5 < rows(View(top=12))
    shown = str(render("estimate", "text", estimate))
    assert name not in shown and "kept in the computer's memory (slower): 1.0 MiB" in shown


GROUPED = """
import torch, torch.nn.functional as F
w = torch.nn.Linear(64, 64, device="cuda", dtype=torch.float16)
x = torch.randn(1, 32, 16384, 64, device="cuda", dtype=torch.float16)
with torch.no_grad():
    F.scaled_dot_product_attention(w(x), x[:, :4], x[:, :4], enable_gqa=True)
"""
# A line that is wider than the screen.
LONG = TRAINING.replace("lr=0.1)", "lr=0.1)  # " + "long " * 30)
ALTERNATING = """
import torch, torch.nn as nn
net = nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(6)]).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(13):
    loss = net(torch.randn(16384 + 832 * step, 256, device="cuda")).square().mean()
    loss.backward(); opt.step(); opt.zero_grad()
"""


def analysed(tmp_path: Path, text: str, device: str) -> tuple[Path, Options, Any]:
    script = tmp_path / "train.py"
    script.write_text(text)
    options = Options.of({"device": device})
    return script, options, diagnosed(follow(script, (), options, {})[0])


def test_the_card_is_followed_itself(tmp_path: Path) -> None:
    """Grouped attention is flash's alone: a T4 has scores of 32 heads of 16384 x 16384 halves, 16 GiB, and in
    float32 as many again; on the next card of 16 GB the same call keeps none."""
    script, options, analysis = analysed(tmp_path, GROUPED, "t4")
    assert analysis.estimate.device_used > 48 << 30
    ways = ways_out(str(script), (), options, {}, "end", analysis)
    card = ways.remedies[0]
    assert card.kind == "device" and card.device_used < 1 << 30
    assert load(card.typed.removeprefix("--device ")).usable_bytes < 16 << 30
    assert any("math kernel on t4" in sentence for sentence in ways.attempts)


@pytest.mark.parametrize("device", ["1400MiB", "2300MiB"])
@pytest.mark.parametrize("take", ["git", "patch"])
def test_what_is_printed_can_be_applied(tmp_path: Path, take: str, device: str) -> None:
    """Each patch of the screen, copied as it stands, makes the text that was followed."""
    script, options, analysis = analysed(tmp_path, LONG.replace("\nfor", "\n \nfor"), device)
    ways = ways_out("train.py" if Path.cwd() == tmp_path else str(script), (), options, {}, "end", analysis)
    estimate = replace(analysis.estimate, remedies=tuple(ways.remedies), attempts=tuple(ways.attempts))
    screen = str(formats.render("estimate", "text", estimate, View(width=80)))
    patches = re.findall(r"^--- a/.*\n(?:[-+@ ].*\n|\n(?=[-+@ ]))+", screen, re.MULTILINE)
    assert len(patches) == sum(one.kind == "patch" for one in ways.remedies) > 0
    before = script.read_text()
    for patch, remedy in zip(patches, (one for one in ways.remedies if one.kind == "patch"), strict=True):
        assert patch.splitlines() == remedy.typed.splitlines()
        words = ["git", "apply", "-"] if take == "git" else ["patch", "-p1", "--quiet"]
        if shutil.which(words[0]) is None:
            pytest.skip(f"{words[0]} is not installed")
        copy = re.sub(r"(?<=[ab]/).*?train\.py", "train.py", patch)
        (tmp_path / "train.py").write_text(before)
        subprocess.run(words, input=copy, text=True, cwd=tmp_path, check=True)
        compile((tmp_path / "train.py").read_text(), "train.py", "exec")
        assert (tmp_path / "train.py").read_text() != before


def test_what_offloading_costs(tmp_path: Path) -> None:
    """Six blocks save the input and two results of 1024 columns: 16384 rows of 2304 floats each, on the host."""
    script, options, analysis = analysed(tmp_path, TRAINING, "1400MiB")
    ways = ways_out(str(script), (), options, {}, "end", analysis)
    (one,) = [remedy for remedy in ways.remedies if "host" in remedy.name]
    saved = 6 * 16384 * (256 + 2 * 1024) * 4
    assert saved <= one.host_bytes < 1.1 * saved
    estimate = replace(analysis.estimate, remedies=(one,))
    assert "of host memory" in sentences.remedies(estimate)[0][0]


def test_changes_stop_where_steps_repeat(tmp_path: Path) -> None:
    """A change that frees memory in the first step needs no more than a few."""
    text = TRAINING.replace("range(3)", "range(60)")
    script, options, analysis = analysed(tmp_path, text, "1400MiB")
    told: list[str] = []
    program = Program(str(script), (), options, {}, "end", analysis)
    assert analysis.steps == program.least == 0
    ways = ways_out(str(script), (), options, {}, "end", analysis, told.append)
    assert ways.remedies[0].name == "checkpointing"
    first, *tries = told
    assert first.startswith(("out of memory: ", "does not fit: "))
    assert all(re.search(r"after \d+ s: change \d+, ", line) for line in tries) and tries


def test_steps_of_other_sizes_are_followed_to_their_end(tmp_path: Path) -> None:
    """Later steps take more: what fits at first is not said to fit."""
    script, options, analysis = analysed(tmp_path, ALTERNATING, "2300MiB")
    ways = ways_out(str(script), (), options, {}, "end", analysis)
    assert any(one.kind == "patch" for one in ways.remedies)
    for one in ways.remedies:
        if one.kind == "patch" and not one.state:
            subject = tmp_path / "changed.py"
            subject.write_text(ALTERNATING)
            subprocess.run(["patch", "--quiet", subject], input=one.typed, text=True, check=True)
            assert follow(subject, (), options, {})[0].estimate.peak_reserved == one.peak_reserved


@pytest.mark.parametrize(("at", "known"), [(1, []), (2, ["checkpointing"])])
def test_ctrl_c_keeps_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, known: list[str]
) -> None:
    """Nothing is followed behind it, no other GPU either."""
    script, options, analysis = analysed(tmp_path, TRAINING, "1400MiB")
    real, calls = trial.watched, []

    def interrupted(*args: Any, **keywords: Any) -> Any:
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(*args, **keywords)

    monkeypatch.setattr(trial, "watched", interrupted)
    ways = ways_out(str(script), (), options, {}, "end", analysis)
    assert [one.name for one in ways.remedies] == known and len(calls) == at
    (sentence,) = [one for one in ways.attempts if "interrupted" in one]
    assert (
        "saved tensors wait on the host" in sentence
        and "\nanalyze run --device 1400MiB --until 1" in sentence
    )


def test_one_that_took_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, options, analysis = analysed(tmp_path, TRAINING, "1400MiB")
    monkeypatch.setattr(trial, "_SECONDS", 0.0)
    ways = ways_out(str(script), (), options, {}, "end", analysis)
    assert any(
        one.startswith("checkpointing: not known, 0 of 1 steps") and "--until 1" in one
        for one in ways.attempts
    )


@pytest.mark.parametrize(("form", "searches"), [("snapshot", False), ("json", True)])
def test_advice_that_nothing_shows_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, searches: bool
) -> None:
    from click.testing import CliRunner

    from analyzer_programs import command as run
    from analyzer_programs.ways import way_out

    (tmp_path / "train.py").write_text(TRAINING)
    searched: list[int] = []
    monkeypatch.setattr(way_out, "ways_out", lambda *_: searched.append(1) or way_out.Ways())
    monkeypatch.setattr(run, "keep_apart", lambda *_: None)
    words = ["--device", "1400MiB", "--format", form, "-o", str(tmp_path / "out"), str(tmp_path / "train.py")]
    CliRunner().invoke(run.command, words, standalone_mode=False, catch_exceptions=False)
    assert (tmp_path / "out").exists() and bool(searched) is searches
