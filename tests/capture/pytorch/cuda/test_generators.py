"""Generators of random numbers of the pretended device."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from analyzer.options import Options
from analyzer.pipeline.program import follow


def test_a_program_may_make_and_use_a_generator_of_the_gpu(tmp_path: Path) -> None:
    script = tmp_path / "random_numbers.py"
    script.write_text(
        """
import torch
own = torch.Generator(device="cuda").manual_seed(3)
assert own.device == torch.device("cuda", 0) and isinstance(own, torch.Generator)
assert isinstance(torch.default_generator, torch.Generator)
own.set_state(own.get_state())
assert own.initial_seed() == 3
x = torch.randn(1024, 256, device="cuda", generator=own)
x.normal_(generator=own)
torch.multinomial(x.abs(), 2, generator=own)
host = torch.Generator()
assert host.device.type == "cpu" and torch.randn(3, generator=host).shape == (3,)
assert torch.cuda.max_memory_allocated() >= 2**20
"""
    )
    found, error = follow(script, [], Options(device="h200"), {})
    assert error is None and found.estimate.peak_allocated is not None
