"""Jagged nested tensors: their own Python code runs, in the forward and the backward pass."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from analyzer.graph import Phase
from analyzer.options import Options
from analyzer_programs.program import follow


def test_a_jagged_tensor_s_backward_pass_is_followed(tmp_path: Path) -> None:
    """The engine looks for the GPU that a tensor of a subclass names, and there is none."""
    program = tmp_path / "jagged.py"
    program.write_text(
        "import torch\n"
        "parts = [torch.randn(n, 64, device='cuda') for n in (3, 7, 5)]\n"
        "layer = torch.nn.Linear(64, 32, device='cuda')\n"
        "nt = torch.nested.nested_tensor(parts, layout=torch.jagged)\n"
        "layer(nt).values().sum().backward()\n"
        "one, other = layer(nt).chunk(2, -1)\n"
        "torch.nested.to_padded_tensor(one + other, 0.0).sum().backward()\n"
        "assert layer.weight.grad.shape == (32, 64) and nt.device.type == 'cuda'\n"
    )
    found = follow(str(program), (), Options.of({"device": "h100"}), {}, whole=True)[0]
    assert found.estimate.incomplete is None
    backward = [operator.name for operator in found.graph.operators if operator.phase is Phase.BACKWARD]
    assert backward.count("aten::mm.default") == 2
