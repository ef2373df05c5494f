"""Sparse tensors: sorting their entries, and products by cuSPARSE.

Source: `aten/src/ATen/native/sparse/cuda/SparseCUDATensor.cu` (`_coalesce_sparse_cuda`), `SparseBlasImpl.cpp`
(`spmm`, `spgemm`: which buffers are asked for, and when), `SparseMatMul.cu`; order and sizes as in the
recorded runs of `tests/programs/word_vectors.py` and `sparse_matrices.py`, up to 792,052 entries (H200, torch
2.11, `tests/data/h200`).

Not modelled: cuSPARSE on other GPUs.

The dense parts sparse operators consist of are recorded in `capture/pytorch/kernels/sparse.py` and
`compressed.py`.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, dtype_bytes
from analyzer.libraries import cusparse
from analyzer.runtimes.pytorch.scratch.cub import (
    aliased_bytes,
    look_back_bytes,
    merge_sort_bytes,
    scan_bytes,
    thrust_unique_bytes,
)
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, filled, present, rule


@rule("aten::_coalesce", name="coalesce")
def coalesce(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Thrust sorts the indices with their positions by merging, then keeps one of each: temporaries one after
    the other. The result follows; values that are not contiguous are copied.
    """
    flat, values = present(operator, "flat_indices"), present(operator, "values")
    count = flat.element_count
    script.release(script.temporary(merge_sort_bytes(count)))
    script.release(script.temporary(thrust_unique_bytes(device, count)))
    script.outputs()
    script.copies(values)


@rule("aten::_sparse_mm", name="sparse-product", sure=Basis.MEASURED)
def sparse_product(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """cuSPARSE's buffer while it multiplies, of 8 bytes for every 512 entries and 7 more."""
    values = filled(operator, "values")
    script.temporary(cusparse.product_bytes(values.element_count), Basis.MEASURED)


@rule("aten::_sparse_addmm", name="compressed-product", sure=Basis.BOUNDED)
def compressed_product(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """cuSPARSE's buffer while it multiplies a CSR matrix (`CUSPARSE_SPMM_CSR_ALG2`, a vector's
    `CUSPARSE_SPMV_ALG_DEFAULT`), taken to be 16 bytes for every 64 rows and entries, and 528. No request of
    it was recorded; at the peak of one program (GCN2 on 2,708 nodes with 13,264 entries) it was 4,608 bytes
    once rounded, which this gives. Of blocks (BSR) neither Triton's kernel nor cuSPARSE's bsrmm and bsrmv
    take one (cuSPARSE's documentation: "requires no extra storage").
    """
    offsets, values = present(operator, "row_offsets"), filled(operator, "values")
    if len(values.shape) > 1:
        return
    nbytes = cusparse.compressed_product_bytes(offsets.element_count - 1, values.element_count)
    script.temporary(nbytes, Basis.BOUNDED)


@rule("aten::_sparse_sparse_matmul", name="product-of-sparse", sure=(Basis.MEASURED, Basis.BOUNDED))
def product_of_sparse(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """cuSPARSE's two buffers, then the columns and values of the result. The first is 12 bytes for every
    entry of the first matrix, a scan of so many and 56, as in all 147 products of Graph U-Net's recorded run
    (`pyg_graph_unet`, H200). In the second its default algorithm keeps all that is multiplied, row, column
    and value of every pair, twice: 24 bytes a pair of 32-bit values in that run (published for 64-bit ones:
    "~6 GB" for 216 million pairs, CuPy's issue 7044; this says 32). The sort's own memory, 27,919 bytes
    for 75,538 pairs, is bounded by a quarter byte a pair and 16 KiB.
    """
    values, pairs = operator.tensor("values"), operator.integer("pairs")
    if values is not None and pairs:
        entries = values.element_count
        script.temporary(12 * entries + aliased_bytes(look_back_bytes(entries)) + 56, Basis.MEASURED)
        script.temporary(2 * pairs * (8 + dtype_bytes(values.dtype)) + pairs // 4 + (16 << 10), Basis.BOUNDED)
    script.outputs()


@rule(
    "aten::_sparse_softmax",
    "aten::_sparse_log_softmax",
    name="sparse-softmax",
    sure=(Basis.EXACT, Basis.BOUNDED),
)
def sparse_softmax(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Strides; positions sorted by their row's number with thrust; how long each row is, by thrust's
    reduction, whose temporary is bounded by half a byte an entry; where each begins, and its largest value.
    """
    indices, rows = filled(operator, "indices"), operator.integer("rows")
    entries = indices.shape[1]
    script.release(script.temporary(8 * indices.shape[0]))
    script.temporary(8 * entries)  # positions
    script.release(script.temporary(merge_sort_bytes(entries)))
    script.temporary(8 * entries)  # lengths
    script.release(script.temporary(entries // 2 + 1024, Basis.BOUNDED))
    script.temporary(8 * rows)  # beginnings
    script.release(script.temporary(scan_bytes(device, rows), Basis.BOUNDED))
    script.outputs()
