"""A target's file with blocks checkpointed: what is changed, and that the changed file does it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import analyzer
from analyzer_timing.advisor.patch import diff, patched

SOURCE = '''"""A model."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))

    def forward(self, x):
        return x + self.inner(x)


@torch.no_grad()
def make_model(small=True):
    def width():
        return 64

    if not small:
        return nn.Sequential(
            Block(),
            Block())
    return nn.Sequential(Block(), Block(), nn.Linear(width(), 8))  # "é" is two bytes


def make_batch(batch):
    return (torch.empty(batch, 64),), ()
'''


def test_what_the_function_returns_is_handed_through() -> None:
    changed = patched(SOURCE, "make_model", ["0"])
    assert 'for path in ("0",):' in changed
    assert "        return 64\n" in changed
    assert (
        "        return checkpointed(nn.Sequential(\n            Block(),\n            Block()))\n" in changed
    )
    assert '    return checkpointed(nn.Sequential(Block(), Block(), nn.Linear(width(), 8)))  # "é"' in changed
    assert changed.index("def checkpointed") < changed.index("@torch.no_grad()")


@pytest.mark.parametrize(
    ("source", "function"),
    [
        ("def make_model(:\n", "make_model"),
        ("make_model = Net\n", "make_model"),
        ("def make_model():\n    pass\n", "make_model"),
        ("def checkpointed(m): return m\ndef make_model():\n    return checkpointed(Net())\n", "make_model"),
    ],
)
def test_what_cannot_be_patched_is_left(source: str, function: str) -> None:
    assert patched(source, function, ["0"]) == ""


def test_the_changed_file_takes_what_the_option_takes(tmp_path: Path) -> None:
    """The diff is applied by `patch`, and the file analysed."""
    path = tmp_path / "model.py"
    path.write_text(SOURCE, encoding="utf-8")
    said = {"batch": 4096, "mode": "train", "optimizer": "adam", "device": "h100", "loss": "sum"}
    option = analyzer.analyze(path, checkpoint="[01]", **said)
    plain = analyzer.analyze(path, **said)
    changed = diff(SOURCE, patched(SOURCE, "make_model", ["0", "1"]), "model.py")
    subprocess.run(["patch", "-p1"], cwd=tmp_path, input=changed, text=True, check=True, capture_output=True)
    found = analyzer.analyze(path, **said)
    assert found.peak_allocated == option.peak_allocated < plain.peak_allocated
    assert (found.peak_reserved, found.device_used) == (option.peak_reserved, option.device_used)
