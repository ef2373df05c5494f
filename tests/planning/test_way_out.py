"""What makes a program fit that runs out of memory: each change is followed before it is named."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzer.graph.calls import ModelCall
from analyzer.options import Options
from analyzer.pipeline.diagnosis import diagnosed
from analyzer.pipeline.program import follow
from analyzer.planning.batch_edits import smaller
from analyzer.planning.script_edits import Symptoms, edits
from analyzer.planning.way_out import ways_out
from analyzer.report.formats import PLAIN, View, render
from analyzer.results.diagnosis import Remedy

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
    found = ways_out(str(script), (), options, {}, "end", diagnosed(analysis))
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
    (card,) = ways_out(str(script), (), options, {}, "end", diagnosed(analysis))
    assert card.kind == "device" and analysis.estimate.fits(card.typed.removeprefix("--device "))


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
