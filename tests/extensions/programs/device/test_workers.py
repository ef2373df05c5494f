"""Data loaders' workers read tensors of any size, by whichever way they are started."""

from __future__ import annotations

from pathlib import Path

import pytest

import analyzer
from analyzer.capture.pytorch.device.workers import NOTE

PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

class Parts(IterableDataset):
    def __init__(self, rows):
        self.rows = rows
    def __iter__(self):
        yield from self.rows.split(5000)

if __name__ == "__main__":
    how, options = sys.argv[1], {"num_workers": 1, "multiprocessing_context": sys.argv[1]}
    rows, labels = torch.ones(20000, 64), torch.zeros(20000, dtype=torch.long)
    loader = DataLoader(TensorDataset(rows, labels), batch_size=5000, pin_memory=True, persistent_workers=True, **options)
    for x, y in loader:
        assert x.sum().item() == 5000 * 64 and x.is_pinned(), x
    if how == "fork":
        for _ in loader:
            pass
        parts = list(DataLoader(Parts(rows), batch_size=None, **options))
        assert [part.sum().item() for part in parts] == [5000 * 64] * 4
    x.cuda()
    assert torch.cuda.max_memory_allocated() == 5000 * 64 * 4
"""


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_of_several_megabytes(how: str, tmp_path: Path) -> None:
    """Before: "Attempted to set the storage of a tensor on device meta", "_share_fd_: only available on CPU"."""
    (script := tmp_path / "loads.py").write_text(PROGRAM)
    estimate = analyzer.run(script, [how], device="h200")
    assert estimate.incomplete is None, estimate.incomplete
    assert estimate.peak_allocated == 5000 * 64 * 4
    assert NOTE in estimate.notes
