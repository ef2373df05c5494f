"""Products that cuSPARSE computes of compressed sparse matrices, and how many entries a product of two has.

1. **With a dense matrix or vector**: one whose elements lie neither row by row nor column by column is copied
   first; the buffer cuSPARSE asks for is in `scratch/sparse.py`.
2. **Of two**: the entries that are multiplied are pairs of one in column k of the first and one in row k of
   the second. The result has an entry wherever a pair meets, whatever the sum is: counted on the host by
   multiplying matrices of ones.
3. Where indices are not known, or there are more than `_MOST_COUNTED` pairs, both matrices are taken to have
   their entries anywhere, no place more likely than another: that many pairs meet, and that many places are
   met by one. The most there can be says nothing (a matrix of 20,000 entries may have a product of 400
   million). It is noted, with the line; rows of uneven length have more (`--assume` says another number).

Source: `aten/src/ATen/native/sparse/cuda/SparseBlasImpl.cpp` (`spmm`, `spgemm`), `SparseMatMul.cu`
(`sparse_sparse_matmul_cuda_kernel`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

aten = torch.ops.aten
_META = torch.device("meta")
_MOST_COUNTED = 1 << 26


class Rows(NamedTuple):
    """A matrix as cuSPARSE takes it: 32-bit row offsets and columns, values."""

    offsets: Any
    columns: Any
    values: Any
    shape: tuple[int, int]


class _Counted(NamedTuple):
    """Size of a sparse product: its entries, the pairs multiplied, and the positions of the entries."""

    entries: int
    pairs: int
    offsets: torch.Tensor
    columns: torch.Tensor


def _named(parts: tuple[Any, Any, Any], which: str = "") -> dict[str, Any]:
    return {f"{which}row_offsets": parts[0], f"{which}columns": parts[1], f"{which}values": parts[2]}


def with_dense(recorder: Recorder, result: Any, parts: tuple[Any, Any, Any], dense: Any) -> None:
    """Write the product of a CSR matrix, given by its parts, and a dense one into `result`."""
    if not _in_order(dense):
        dense = dense.clone(memory_format=torch.contiguous_format)
    named = {"result": result, **_named(parts), "dense": dense}
    recorder.record(aten._sparse_addmm.default, (), named, ())
    recorder.values.forget(result)


def _in_order(dense: Any) -> bool:
    """Return whether a matrix lies row by row or column by column (`is_blas_compatible_row_major_order`)."""
    if dense.dim() == 1:
        return bool(dense.stride(0) == 1 or dense.shape[0] < 2)
    (rows, columns), (down, across) = dense.shape, dense.stride()
    return bool((across == 1 and down >= max(1, columns)) or (down == 1 and across >= max(1, rows)))


def multiplied(recorder: Recorder, one: Rows, other: Rows, offsets: Any) -> tuple[Any, Any]:
    """32-bit columns and values of the product; its row offsets have been made before."""
    counted = _counted(recorder, one, other)
    entries, pairs = counted[:2] if counted is not None else _assumed(recorder, one, other)
    with _disable_current_modes():
        columns = torch.empty(entries, dtype=torch.int32, device=_META)
        values = torch.empty(entries, dtype=one.values.dtype, device=_META)
    matrices = {**_named(one[:3]), **_named(other[:3], "other_")}
    named = {**matrices, "result_row_offsets": offsets, "pairs": pairs}
    recorder.record(aten._sparse_sparse_matmul.default, (), named, (columns, values))
    recorder.values.forget(offsets)
    if counted is not None:
        recorder.values.learn(offsets, counted.offsets)
        recorder.values.learn(columns, counted.columns)
    return columns, values


def _counted(recorder: Recorder, one: Rows, other: Rows) -> _Counted | None:
    """Count entries and pairs if all indices are known and there are not too many pairs."""
    values = [
        recorder.values.known(part) for part in (one.offsets, one.columns, other.offsets, other.columns)
    ]
    if any(part is None for part in values):
        return None
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        begins, columns, other_begins, other_columns = (part.long() for part in values if part is not None)
        pairs = int(other_begins.diff()[columns].sum())
        if pairs > _MOST_COUNTED:
            return None
        ones = [
            _pattern_of_ones(rows, across, matrix.shape)
            for rows, across, matrix in ((begins, columns, one), (other_begins, other_columns, other))
        ]
        product = torch.sparse.mm(*ones).coalesce()
        row, column = product.indices()
        ends = torch.bincount(row, minlength=one.shape[0]).cumsum(0)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), ends])
        return _Counted(int(column.numel()), pairs, offsets.int(), column.int())


def _pattern_of_ones(begins: torch.Tensor, columns: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    rows = torch.arange(shape[0]).repeat_interleave(begins.diff())
    indices = torch.stack([rows, columns])
    return torch.sparse_coo_tensor(
        indices, torch.ones(len(columns)), shape, check_invariants=False
    ).coalesce()


def _assumed(recorder: Recorder, one: Rows, other: Rows) -> tuple[int, int]:
    """Assume entries and pairs for unknown values: those of matrices with entries anywhere."""
    (rows, inner), columns = one.shape, other.shape[1]
    first = min(one.columns.shape[0], rows * inner)
    second = min(other.columns.shape[0], inner * columns)
    pairs = -(-first * second // max(1, inner))
    places = rows * columns
    even = min(pairs, math.ceil(-places * math.expm1(-pairs / max(1, places))))
    count = recorder.values.how_many(
        "entries a product of sparse matrices has",
        even,
        "as if those of both lay anywhere, none more likely than another",
    )
    entries = even if count is None else count
    return entries, max(entries, pairs)
