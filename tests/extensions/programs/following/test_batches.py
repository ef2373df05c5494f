"""Batches of drawn sizes (`program/batches.py`): said where the numbers are another run's, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402

POISSON = """
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

class Drawn:
    generator = None
    def __iter__(self):
        for _ in range(6):
            yield (torch.rand(100, generator=self.generator) < 0.3).nonzero().reshape(-1).tolist()

class Shrinking(Drawn):
    def __iter__(self):
        order = torch.randperm(100).tolist()
        yield order[:60]
        yield order[60:]

data, sampler = TensorDataset(torch.arange(100.0)), Drawn()
{before}
for (batch,) in DataLoader(data, {loader}):
    batch.cuda()
"""


@pytest.mark.parametrize(
    ("before", "loader", "said"),
    [
        ("", "batch_sampler=sampler", True),
        ("", "batch_sampler=sampler, num_workers=2", True),
        ("torch.manual_seed(7)", "batch_sampler=sampler", False),
        ("sampler.generator = torch.Generator()", "batch_sampler=sampler", False),
        ("", "batch_sampler=Shrinking()", False),
        ("", "batch_size=30, shuffle=True", False),
    ],
)
def test_drawn_sizes_of_batches_are_said(before: str, loader: str, said: bool, tmp_path: Path) -> None:
    """A generator without a seed that is drawn from between two batches of different sizes."""
    script = tmp_path / "train.py"
    script.write_text(POISSON.format(before=before, loader=loader))
    estimate = analyzer.run(script, device="h200")
    assert estimate.incomplete is None, estimate.incomplete
    note = "train.py:19 draws how many samples a batch has, without a seed: another run may decide otherwise"
    assert (note in estimate.notes) == said, estimate.notes
    assert sum("samples a batch has" in one for one in estimate.notes) == said
