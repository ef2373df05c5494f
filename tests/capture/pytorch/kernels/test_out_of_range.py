"""An index out of range ends a program on a GPU: said beside the verdict, where its value is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402

BEFORE = """
import torch
import torch.nn.functional as F
table = torch.nn.Embedding(10, 4).cuda()
x = torch.randn(5, 10, device="cuda")
def on_gpu(*numbers):
    return torch.tensor(numbers).cuda()
"""


def caveats(tmp_path: Path, line: str) -> str:
    script = tmp_path / "program.py"
    script.write_text(BEFORE + line + "\n")
    estimate = analyzer.run(script, device="h200")
    assert estimate.incomplete is None
    return "\n".join(estimate.caveats)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("table(on_gpu(1, 10))", "10 is out of range of 10"),
        ("table(on_gpu(-1, 3))", "-1 is out of range of 10"),
        ("F.embedding_bag(on_gpu(1, 12), table.weight, on_gpu(0, 1))", "12 is out of range of 10"),
        ("F.cross_entropy(x, on_gpu(0, 1, 2, 3, 10))", "10 is out of range of 10"),
        ("F.cross_entropy(x, on_gpu(0, 1, 2, 3, -1))", "-1 is out of range of 10"),
        ("x.index_select(1, on_gpu(0, 10))", "10 is out of range of 10"),
        ("x.gather(0, on_gpu(5, 1)[:, None])", "5 is out of range of 5"),
        ("x[on_gpu(0, 5)]", "5 is out of range of 5"),
        ("x[:, on_gpu(0, -11)]", "-11 is out of range of 10"),
        ("x[on_gpu(7)] = 1.0", "7 is out of range of 5"),
        ("F.one_hot(on_gpu(0, 3), 3)", "3 is out of range of 3"),
        (
            "torch.zeros(3, device='cuda').scatter_add_(0, on_gpu(0, 3), on_gpu(1, 1).float())",
            "3 is out of range",
        ),
    ],
)
def test_an_index_out_of_range_is_said(line: str, wrong: str, tmp_path: Path) -> None:
    """Before, the program "fits"."""
    said = caveats(tmp_path, line)
    assert re.search(rf"program.py:8: index {wrong}.*device-side assert", said)


@pytest.mark.parametrize(
    "line",
    [
        "table(on_gpu(0, 9))",
        "F.cross_entropy(x, on_gpu(0, 1, 2, 9, -100))",
        "F.cross_entropy(x, on_gpu(0, 1, 2, 9, 255), ignore_index=255)",
        "x[on_gpu(0, -5)]",
        "x[x > 0]",
        "x[on_gpu(0, 4), on_gpu(9, -10)]",
        "table(torch.randint(0, 50, (3,), device='cuda'))",  # drawn on the device: nobody knows
        "n = int(x.argmax().item())\ntable(on_gpu(n + 10))",  # one was assumed
    ],
)
def test_an_index_within_range_or_unknown_is_not(line: str, tmp_path: Path) -> None:
    assert "out of range" not in caveats(tmp_path, line)
