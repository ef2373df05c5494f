"""Generators of random numbers of the pretended device."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from analyzer.options import Options
from analyzer_programs.program import follow


def test_a_program_may_make_and_use_a_generator_of_the_gpu(tmp_path: Path) -> None:
    script = tmp_path / "random_numbers.py"
    script.write_text(
        """
import torch
own = torch.Generator(device="cuda").manual_seed(3)
assert own.device == torch.device("cuda", 0) and isinstance(own, torch.Generator)
assert isinstance(torch.default_generator, torch.Generator)
state = own.get_state()
assert (state.shape, state.device.type) == ((16,), "cpu")
own.manual_seed(4)
own.set_state(state)
assert own.initial_seed() == 3
own.set_state(torch.cuda.get_rng_state())
for refused, error in ((state.cuda(), TypeError), (state.long(), TypeError), (state[:5], RuntimeError)):
    try:
        own.set_state(refused)
    except error:
        continue
    raise AssertionError("PyTorch refuses it")
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


def test_the_states_of_all_gpus_with_and_without_one_in_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torch.cuda.random` counts the machine's GPUs by itself, and looks into a tuple that is empty before CUDA is used:
    Lightning keeps the states around its check of the validation loop."""
    import torch

    script = tmp_path / "states.py"
    script.write_text(
        """
import torch
from torch.cuda.random import get_rng_state_all, initial_seed, set_rng_state_all
states = get_rng_state_all()
assert [state.shape for state in states] == [(16,)] and states[0].device.type == "cpu"
set_rng_state_all(states)
torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
torch.cuda.random.set_rng_state(torch.cuda.random.get_rng_state("cuda:0"), 0)
for seed in (torch.cuda.seed, torch.cuda.seed_all, torch.cuda.random.seed_all):
    seed()
torch.cuda.random.manual_seed_all(1)
assert isinstance(initial_seed(), int) and torch.cuda.initial_seed() == initial_seed()
own = torch.cuda.default_generators[torch.cuda.current_device()]
own.set_state(own.get_state())
with torch.random.fork_rng():
    torch.manual_seed(0)
torch.randn(1024, 256, device="cuda", generator=own)
"""
    )
    for counted in (0, 1):
        monkeypatch.setattr(torch.cuda.random, "device_count", lambda counted=counted: counted)
        found, error = follow(script, [], Options(device="h200"), {})
        assert error is None and found.estimate.peak_allocated == 2**20
