"""CSR and CSC matrices, and products of two sparse ones: what is asked for, worked out by hand from CUDA's kernels."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyzer.options import Options  # noqa: E402
from analyzer_programs.program import follow  # noqa: E402

NODES, ENTRIES, WIDTH = 300, 900, 16
# Every row has three entries: in the columns i, 7i + 1 and 13i + 5, which differ in every row.
MATRIX = f"""
import torch
i = torch.arange({NODES})
index = torch.stack([i.repeat(3), torch.cat([i, (7 * i + 1) % {NODES}, (13 * i + 5) % {NODES}])])
coo = torch.sparse_coo_tensor(index, torch.ones({ENTRIES}), ({NODES}, {NODES})).coalesce()
"""
ON_GPU = (
    MATRIX + f"a = coo.to_sparse_csr().cuda()\nx = torch.randn({NODES}, {WIDTH}).cuda().requires_grad_()\n"
)
BEGINS, INDICES, VALUES, DENSE = (NODES + 1) * 8, ENTRIES * 8, ENTRIES * 4, NODES * WIDTH * 4
BUFFER = 16 * math.ceil((NODES + ENTRIES) / 64) + 528

# cuSPARSE's buffers for the square: a scan of 900 numbers has 2 tiles and 32 more, of 16 bytes, in multiples of 256; each pair
# is kept twice in 12 bytes.
FIRST = 12 * ENTRIES + 768 + 255 + 56
SECOND = 2 * 12 * 9 * NODES + 9 * NODES // 4 + 16384


def columns(row: int) -> set[int]:
    return {row, (7 * row + 1) % NODES, (13 * row + 5) % NODES}


# Entries of the square, counted by hand: where any of a row's columns leads to.
SQUARED = sum(len({column for middle in columns(row) for column in columns(middle)}) for row in range(NODES))


def test_rows_have_three_entries() -> None:
    assert all(len(columns(row)) == 3 for row in range(NODES))
    assert NODES * 3 < SQUARED < NODES * 9


def test_a_matrix_that_moves_is_its_three_parts_values_first(asked: Any) -> None:
    requests = asked(MATRIX + "a = coo.to_sparse_csr()\nb = a.to('cuda')  # from here\n")
    assert requests == [("aten::_to_copy", nbytes) for nbytes in (VALUES, BEGINS, INDICES)]


def test_a_matrix_is_made_of_parts_that_are_there(asked: Any) -> None:
    text = (
        ON_GPU
        + "b = torch.sparse_csr_tensor(a.crow_indices(), a.col_indices(), a.values(), a.shape)  # from here\n"
    )
    assert asked(text + "assert b.is_cuda and b.layout is torch.sparse_csr and b.values().is_cuda\n") == []
    moved = MATRIX + (
        "a = coo.to_sparse_csr()\n"
        "b = torch.sparse_csr_tensor(a.crow_indices(), a.col_indices(), a.values(), a.shape, device='cuda')  # from here\n"
    )
    assert sorted(nbytes for _, nbytes in asked(moved)) == sorted((VALUES, BEGINS, INDICES))


def test_a_product_makes_zeros_and_then_the_result(asked: Any) -> None:
    """`_sparse_csr_mm` adds the product to zeros, out of place."""
    expected = [("aten::new_zeros", DENSE), ("aten::new_empty", DENSE), ("aten::_sparse_addmm", BUFFER)]
    assert asked(ON_GPU + "y = a @ x  # from here\n") == expected


def test_the_backward_pass_sorts_the_transposed_matrix(asked: Any) -> None:
    """900 entries: rows and columns written out (2 x 8 bytes each), one number each sorted, both and the values gathered. The sum that is
    copied into the pointers is made before them, as PyTorch's own host code asks under the emulated runtime (torch 2.11)."""
    gradient = f"g = torch.ones({NODES}, {WIDTH}).cuda()\ny = a @ x\n"
    requests = asked(ON_GPU + gradient + "y.backward(g)\n# from here\n")
    assert requests == []  # autograd's operators belong to the line that made their node
    requests = asked(ON_GPU + gradient.replace("a @ x", "a @ x  # from here") + "y.backward(g)\n")[3:]
    flip = [
        2 * INDICES,  # _convert_indices_from_csr_to_coo
        INDICES,  # div: the matrix of the batch
        INDICES,  # mul
        INDICES,  # one number for each entry
        *3 * [INDICES],  # sort: values, positions, a temporary row
        2 * INDICES,  # index_select
        VALUES,
        BEGINS,  # _convert_indices_from_coo_to_csr
        BEGINS,
        BEGINS - 8,  # sub
        DENSE,
        DENSE,
        BUFFER,
    ]
    sizes = [nbytes for _, nbytes in requests]
    assert sizes[-len(flip) :] == flip
    assert sizes[: -len(flip)][:2] == [8, 8] and sizes[: -len(flip)][-2:] == [BEGINS - 8, BEGINS]


def test_a_vector_and_a_matrix_on_the_left(asked: Any) -> None:
    requests = asked(ON_GPU + "v = x.detach()[:, 0].contiguous()\ny = a @ v  # from here\n")
    assert requests == [("aten::new_empty", NODES * 4), ("aten::_sparse_addmm", BUFFER)]
    sizes = [
        nbytes for _, nbytes in asked(ON_GPU + f"z = torch.ones(4, {NODES}).cuda()\ny = z @ a  # from here\n")
    ]
    assert sizes[:2] == 2 * [4 * NODES * 4] and sizes[-1] == BUFFER and 2 * INDICES in sizes


def test_a_dense_matrix_in_no_order_is_copied(asked: Any) -> None:
    requests = asked(
        ON_GPU + f"z = torch.ones(1, {WIDTH}).cuda().expand({NODES}, {WIDTH})\ny = a @ z  # from here\n"
    )
    assert requests[2:] == [("aten::clone", DENSE), ("aten::_sparse_addmm", BUFFER)]


def test_the_entries_of_a_product_of_two_are_counted_where_indices_are_known(asked: Any) -> None:
    """Both matrices in 32-bit indices; 3 x 3 pairs a row."""
    small = [VALUES, (NODES + 1) * 4]
    expected = [
        BEGINS, 8, BEGINS, *small, *small, (NODES + 1) * 4, FIRST, SECOND, SQUARED * 4, SQUARED * 4,
    ]  # fmt: skip
    requests = asked(ON_GPU + f"p = a @ a  # from here\nassert p._nnz() == {SQUARED}\n")
    assert [nbytes for _, nbytes in requests] == expected


def test_a_product_of_two_as_coordinates_has_64_bit_ones_again(asked: Any) -> None:
    lines = f"p = a @ a\nc = p.to_sparse_coo()  # from here\nassert c.is_coalesced() and c.indices().shape == (2, {SQUARED})\n"
    assert [nbytes for _, nbytes in asked(ON_GPU + lines)] == [2 * SQUARED * 8]
    both = asked(
        MATRIX + f"a = coo.cuda()\np = torch.sparse.mm(a, a)  # from here\nassert p._nnz() == {SQUARED}\n"
    )
    assert [nbytes for _, nbytes in both][-3:] == [SQUARED * 4, SQUARED * 4, 2 * SQUARED * 8]


def test_a_product_of_what_only_data_tells_is_estimated_and_said(asked: Any, tmp_path: Path) -> None:
    """200 entries of 100 x 100, twice: 400 pairs, which hit 10000 (1 - exp(-0.04)) places."""
    text = """
import torch
index = torch.randint(0, 100, (2, 200), device="cuda")
a = torch.sparse_coo_tensor(index, torch.ones(200, device="cuda"), (100, 100)).coalesce()
p = a @ a  # from here
"""
    even = math.ceil(10_000 * (1 - math.exp(-0.04)))
    assert even == 393
    assert asked(text)[-1][1] == 2 * even * 8
    assert asked(text, assume={"program.py:5": 1000})[-1][1] == 2 * 1000 * 8
    script = tmp_path / "program.py"
    found, _ = follow(script, (), Options.of({"device": "h200"}), {})
    assert any("entries a product of sparse matrices has" in note for note in found.notes)
    assert found.estimate.certainty.bounded


def test_layouts_turn_into_each_other(asked: Any) -> None:
    requests = asked(ON_GPU + "c = a.to_sparse_coo()  # from here\nassert c.is_coalesced()\n")
    assert [nbytes for _, nbytes in requests] == [2 * INDICES]  # the values are shared
    requests = asked(
        MATRIX
        + "a = coo.cuda()\nb = a.to_sparse_csr()  # from here\nassert b.col_indices().shape == (900,)\n"
    )
    assert [nbytes for _, nbytes in requests] == [BEGINS]  # so are the columns
    follow_all = ON_GPU + (
        "b = a.to_sparse_csc()\nassert b.layout is torch.sparse_csc and b.ccol_indices().shape == (301,)\n"
        "assert a.t().layout is torch.sparse_csc and a.t().row_indices().is_cuda\n"
        "assert b.to_sparse_csr().layout is torch.sparse_csr and a.to_dense().shape == (300, 300)\n"
        "assert (2 * a).layout is torch.sparse_csr and a.half().values().dtype is torch.float16\n"
        "assert 'cuda' in repr(a) and a.cpu().layout is torch.sparse_csr and not a.cpu().is_cuda\n"
        "d = torch.eye(7).cuda()\nassert d.to_sparse().layout is torch.sparse_coo and d.to_sparse_csr().is_cuda\n"
    )
    asked(follow_all)


def test_a_sum_over_rows_coalesces_and_a_softmax_sorts(asked: Any) -> None:
    requests = asked(MATRIX + "a = coo.cuda()\ns = torch.sparse.sum(a, 1)  # from here\n")
    assert [nbytes for _, nbytes in requests][:2] == [VALUES, INDICES] and requests[-1] == (
        "aten::_coalesce",
        NODES * 4,
    )
    requests = asked(MATRIX + "a = coo.cuda()\ns = torch.sparse.softmax(a, 1)  # from here\n")
    assert requests[:3] == [
        ("aten::empty_like", VALUES),
        ("aten::empty_like", 2 * INDICES),
        ("aten::new_empty", INDICES),
    ]
    assert requests[-1] == ("aten::_sparse_softmax", NODES * 4)
    gradient = "g = coo.cuda().requires_grad_()\ntorch.sparse.sum(g, 1).to_dense().sum().backward()\nassert g.grad._nnz() == 900\n"
    asked(MATRIX + gradient)


def test_a_sampled_product_of_nothing_is_the_sampled_matrix(asked: Any) -> None:
    """A result of one offset is made as large; the gradient is cut down to the places, by a product of two in COO."""
    text = (
        ON_GPU + f"one, other = torch.empty({NODES}, 0).cuda(), torch.empty(0, {NODES}).cuda()\n"
        "a.requires_grad_()\n"
        "b = torch.sparse.sampled_addmm(a, one, other, beta=0.5)  # from here\n"
    )
    copied = [VALUES, INDICES, BEGINS]  # the later argument first
    result = [8, BEGINS, INDICES, VALUES]
    assert [nbytes for _, nbytes in asked(text)] == result
    taken = [nbytes for _, nbytes in asked(text + "b.backward(torch.ones_like(b))\n")]
    assert taken[:11] == [*result, *copied, *copied, 8]
    hashed = [2 * INDICES, 2 * INDICES, INDICES, INDICES, 2 * INDICES, 8, 2 * INDICES, VALUES]
    assert taken[11:23] == [*hashed, BEGINS, BEGINS, INDICES, VALUES]
    assert taken[23:] == [*copied, *copied]  # times beta; a gradient that is sparse is copied


def test_the_buffer_of_a_sampled_product_is_not_known(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(ON_GPU + "torch.sparse.sampled_addmm(a, x.detach(), x.detach().t())\n")
    found, _ = follow(script, (), Options.of({"device": "h200"}), {})
    assert "nobody has recorded what buffer cuSPARSE asks for" in (found.estimate.incomplete or "")


def test_what_nobody_described_is_named(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(ON_GPU + "a.sin()\n")
    found, _ = follow(script, (), Options.of({"device": "h200"}), {})
    assert re.search(r"program.py:8.*sparse tensors cannot be followed", found.estimate.incomplete or "")
