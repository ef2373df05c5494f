"""Which CTC loss CUDA takes, of a program that follows each of PyTorch's forms."""

from __future__ import annotations

from pathlib import Path

import pytest

import analyzer

PROGRAM = """
import sys
import torch
import torch.nn.functional as F
kind = sys.argv[1]
words = torch.randint(1, 32, (80,), dtype=torch.int64 if kind == "long" else torch.int32)
likely = F.log_softmax(torch.randn(100, 8, 32, device="cuda", requires_grad=True), -1)
heard, said = [90 if kind == "short" else 100] * 8, [10] * 8
if kind == "tensors":
    words, heard, said = (torch.tensor(each, dtype=torch.int32).cuda() for each in (words.tolist(), heard, said))
F.ctc_loss(likely, words, heard, said, blank=int(kind == "blank"), zero_infinity=kind == "infinite").backward()
"""


@pytest.mark.parametrize(
    ("kind", "cudnn"),
    [
        ("host", True),
        ("tensors", True),
        ("infinite", True),
        ("long", False),
        ("short", False),
        ("blank", False),
    ],
)
def test_cudnns_ctc_is_taken_as_on_cuda_and_named_as_unknown(tmp_path: Path, kind: str, cudnn: bool) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    estimate = analyzer.run(str(program), [kind], device="h200")
    assert any("_cudnn_ctc_loss" in name for name in estimate.certainty.unknown_operators) == cudnn
