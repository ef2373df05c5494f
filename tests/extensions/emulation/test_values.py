"""What decides sizes is decided alike under the emulated runtime and in a traced program (`analyzer/values`)."""

from __future__ import annotations

from pathlib import Path

import pytest

import analyzer
from tests.sizes_by_numbers import NUMBERED

SIZES = f"""{NUMBERED}h = torch.randint(0, 100, (2, 1 << 21))
assert torch.unique(h.cuda()).shape == (100,)
"""
NEWTON = """
x = torch.linspace(1.0, 50.0, 1 << 18).cuda()
kept = []
while ((x * x - 2).abs() > 1e-3).any():
    kept.append(x)
    x = x - (x * x - 2) / (2 * x)
assert 5 < len(kept) < 12
"""
DRAWN = """
x = torch.rand(4096, 4096, device="cuda")
kept = x[x > 0.9]
"""
ORDERED = """
_, order = torch.rand(4096, 2048, device="cuda").sort(dim=1)
kept = (order == 7).nonzero()
"""
HOST_DRAWS = """
torch.manual_seed(1)
expected = torch.rand(2)
torch.manual_seed(1)
torch.nn.functional.dropout(torch.ones(1000, device="cuda"))
assert torch.equal(torch.rand(2), expected)
"""
DECIDED = """
drawn = torch.rand(1 << 23, device="cuda") > 2
assert (drawn | torch.ones(1 << 23, dtype=torch.bool, device="cuda")).all().item() is True
"""
COUNTED = """
scores, points = torch.randn(1 << 24, device="cuda"), torch.zeros(1 << 24)
kept = scores.log() > 0
assert len(scores[kept]) == len(points[kept.cpu()]) == 1 << 24
"""
COMPARED = """
import warnings
warnings.filterwarnings("error", "(?s).*does not match")
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).cuda()
traced = torch.jit.trace(net, torch.randn(64, 3, 128, 128, device="cuda"))
"""
SPARSE = """
x = torch.randn(3000, 3000, device="cuda")
kept = x.to_sparse(), x.view(3000, 1500, 2).to_sparse(2), x.to_sparse_csr()
assert [t._nnz() for t in kept] == [9_000_000, 4_500_000, 9_000_000]
many = torch.zeros(3000, 3000)
many[::10, ::10] = 1.0
assert many.cuda().to_sparse()._nnz() == many.cuda().to_sparse_csr().values().numel() == 90_000
half = torch.ones(100, 100).mul(torch.arange(100) % 2).cuda()
assert half.to_sparse()._nnz() == half.to_sparse_csc()._nnz() == 5000
assert half.to_sparse_csr().values().numel() == half.to_sparse_csc().values().numel() == 5000
pairs = torch.arange(3000, device="cuda").repeat(2, 1) % 2000
loose = torch.sparse_coo_tensor(pairs, torch.ones(3000, device="cuda"), (2000, 2000))
assert loose.to_sparse_csr().values().numel() == loose.to_sparse_csc().values().numel() == 2000
tight = loose.coalesce()
assert tight.to_sparse_csr().values().numel() == tight.to_sparse_csc().values().numel() == 2000
assert len(tight.to_sparse_csr().to_sparse_bsr((4, 4)).values()) == 2000  # of 250,000 blocks at most
crossed = tight.to_sparse_bsr((4, 4)), tight.to_sparse_bsc((4, 4)), loose.to_sparse_bsr((4, 4))
crossed += tight.to_sparse_csc().to_sparse_bsr((4, 4)), tight.to_sparse_csr().to_sparse_bsc((4, 4))
assert [len(blocks.values()) for blocks in crossed] == [2000] * 5
"""


@pytest.mark.parametrize(
    "text", [SIZES, NEWTON, DRAWN, ORDERED, HOST_DRAWS, DECIDED, COUNTED, COMPARED, SPARSE]
)
def test_sizes_are_those_of_a_traced_program(text: str, python: Path, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(f"import torch\n{text}")
    emulated = analyzer.emulate(script, python=python, device="h100")
    assert emulated.incomplete is None, (emulated.incomplete, emulated.notes)
    # One is of a release with another CUB, and one that is traced as eager code.
    if text not in (SIZES, HOST_DRAWS, SPARSE, COMPARED):
        traced = analyzer.run(script, device="h100", engine="trace")
        assert emulated.peak_allocated == traced.peak_allocated
