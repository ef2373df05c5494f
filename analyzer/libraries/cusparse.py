"""cuSPARSE's buffers for products of a sparse matrix with a dense one, in bytes.

Source: `aten/src/ATen/native/sparse/cuda/SparseCUDABlas.cpp` and `SparseBlasImpl.cpp` (which algorithm is
asked, and that the buffer is taken for the product alone); sizes as recorded in
`tests/programs/word_vectors.py` and `sparse_matrices.py`, up to 792,052 entries (H200, torch 2.11).

Not modelled: cuSPARSE on other GPUs; other algorithms.
"""

from __future__ import annotations


def product_bytes(entries: int) -> int:
    """Return the buffer of `CUSPARSE_SPMM_CSR_ALG1`: 8 bytes for every 512 entries, and 7 more."""
    return 8 * -(-entries // 512) + 7


def compressed_product_bytes(rows: int, entries: int) -> int:
    """Return the buffer of `CUSPARSE_SPMM_CSR_ALG2`, or of `CUSPARSE_SPMV_ALG_DEFAULT` with a vector: assumed
    16 bytes for every 64 rows and entries, plus 528. No request was recorded; it fits one program (GCN2 on
    2,708 nodes, 13,264 entries), whose buffer was 4,608 bytes at the peak after rounding."""
    return 16 * -(-(rows + entries) // 64) + 528
