"""Sparse tensors and gradients: what their operators ask for, worked out by hand from CUDA's kernels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyzer.options import Options  # noqa: E402
from analyzer_programs.program import follow  # noqa: E402

ROWS, WIDTH, BATCH = 1000, 64, 200
EMBEDDING = f"""
import torch
from torch import nn
words = torch.arange({BATCH}) % 150
table = nn.Embedding({ROWS}, {WIDTH}, sparse=True).cuda()
"""


def test_the_gradient_is_the_rows_that_were_read_and_coalescing_sorts_them(asked: Any) -> None:
    """200 indices, of which 150 differ: 8 bytes an index, 256 bytes a row; CUB's parts are multiples of 256, and 255 more."""
    requests = asked(
        EMBEDDING
        + """
table(words.cuda()).sum().backward()
grad = table.weight.grad
once = grad.coalesce()  # from here
"""
    )
    aligned = BATCH * 8 + -BATCH * 8 % 256
    assert requests == [
        ("aten::clone", BATCH * 8),
        ("aten::empty_like", BATCH * 8),
        ("aten::empty_like", BATCH * 8),
        ("aten::_coalesce", 2 * aligned + 256 + 255),
        ("aten::_coalesce", 3 * 256 + 255 + 512),
        ("aten::_coalesce", 150 * WIDTH * 4),
    ]


def test_plain_descent_adds_the_rows_in_place(asked: Any) -> None:
    requests = asked(
        EMBEDDING
        + """
optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
table(words.cuda()).sum().backward()
optimizer.step()  # from here
"""
    )
    assert requests == []


def test_adam_asks_for_rows_and_never_for_a_table(asked: Any) -> None:
    """Two moments as large as the table, in the first step; then rows alone: gathered, multiplied, subtracted."""
    requests = asked(
        EMBEDDING
        + """
optimizer = torch.optim.SparseAdam(table.parameters())
for _ in range(2):
    table(words.cuda()).sum().backward()
    optimizer.step()  # from here
    optimizer.zero_grad()
"""
    )
    tables = [nbytes for _, nbytes in requests if nbytes == ROWS * WIDTH * 4]
    assert len(tables) == 2
    rows = [name for name, nbytes in requests if nbytes == 150 * WIDTH * 4]
    one = [
        "_coalesce",
        "index.Tensor",
        "mul.Tensor",
        "sub.Tensor",
        "index.Tensor",
        "mul.Tensor",
        "pow.Tensor_Scalar",
    ]
    assert rows == 2 * [f"aten::{name}" for name in (*one, "mul.Tensor")]


def test_two_gradients_of_one_table_are_put_one_behind_the_other(asked: Any) -> None:
    requests = asked(
        EMBEDDING
        + """
first, second = words.cuda(), words[:50].cuda()
table(first).sum().backward()
table(second).sum().backward()  # from here
assert table.weight.grad._nnz() == 250
"""
    )
    assert ("aten::cat", 250 * WIDTH * 4) in requests and ("aten::cat", 250 * 8) in requests


def test_rows_that_only_data_tells_are_bounded_and_may_be_said(asked: Any, tmp_path: Path) -> None:
    text = EMBEDDING + (
        f"words = torch.randint(0, {ROWS}, ({BATCH},), device='cuda')\n"
        "table(words).sum().backward()\n"
        "once = table.weight.grad.coalesce()  # from here\n"
    )
    assert asked(text)[-1] == ("aten::_coalesce", BATCH * WIDTH * 4)
    line = next(n for n, line in enumerate(text.splitlines(), 1) if "from here" in line)
    assert asked(text, assume={f"program.py:{line}": 33})[-1] == ("aten::_coalesce", 33 * WIDTH * 4)
    script = tmp_path / "program.py"
    analysis, _ = follow(script, (), Options.of({"device": "h200"}), {})
    assert any("entries of a sparse tensor differ" in note for note in analysis.notes)
    assert analysis.estimate.certainty.bounded == BATCH * WIDTH * 4


def test_a_matrix_times_a_dense_one_needs_row_offsets_and_a_second_result(asked: Any) -> None:
    requests = asked(
        """
import torch
index = torch.stack([torch.arange(300), torch.arange(300).flip(0)])
matrix = torch.sparse_coo_tensor(index, torch.ones(300), (300, 300)).coalesce().cuda()
x = torch.randn(300, 16).cuda()
y = torch.sparse.mm(matrix, x)  # from here
"""
    )
    sizes = [nbytes for _, nbytes in requests]
    assert sizes.count(300 * 16 * 4) >= 2 and 301 * 4 in sizes and sizes.count(300 * 4) == 2


def test_values_on_the_host_are_sparse_too(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        EMBEDDING
        + """
table(words.cuda()).sum().backward()
grad = table.weight.grad
assert grad.is_sparse and grad.is_cuda and grad.device.type == "cuda" and grad.shape == table.weight.shape
here = grad.cpu()
assert here.is_sparse and not here.is_cuda
assert grad.to_dense().shape == (1000, 64) and (grad * 2).is_sparse
"""
    )
    follow(script, (), Options.of({"device": "h200"}), {})


def test_entries_that_are_vectors_are_those_of_rows_with_any_element(asked: Any) -> None:
    """Positions of all elements; the rows among them, each once; then their vectors, copied."""
    text = "import torch\nx = torch.zeros(50, 8)\nx[3] = x[7, 1] = 1\nx = x.cuda()\n"
    requests = asked(text + "y = x.to_sparse(1)  # from here\nassert y._nnz() == 2\n")
    assert ("aten::nonzero", 9 * 2 * 8) in requests
    assert requests[-3:] == [
        ("aten::unique_dim", 2 * 8),
        ("aten::index.Tensor", 2 * 8 * 4),
        ("aten::clone", 2 * 8 * 4),
    ]
    unknown = "import torch\nx = torch.randn(50, 8, device='cuda')\n"
    requests = asked(unknown + "y = x.to_sparse(1)  # from here\nassert y._nnz() == 50\n")
    assert requests[-1] == ("aten::clone", 50 * 8 * 4)


def test_what_nobody_described_is_named(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(EMBEDDING + "table(words.cuda()).sum().backward()\ntable.weight.grad.erfinv()\n")
    found, _ = follow(script, (), Options.of({"device": "h200"}), {})
    assert re.search(r"program.py:7.*sparse tensors cannot be followed", found.estimate.incomplete or "")
