"""Compressed matrices of blocks (BSR and BSC) on the pretended GPU: conversions to them, and products.

A pruned layer's weights: each entry is a block of `values`, of two more dimensions. All else is as in
`compressed.py`.

1. **To COO** rows and columns of all elements are written out. **From a dense matrix** the values and a mask
   are copied tile by tile; blocks with an entry that is not zero are kept. **From CSR or CSC** the parts are
   copied to the host, which counts the blocks and fills them, and copied back. How many there are is counted
   where the indices are known, else bounded by entries and places (`--assume` says another number).
2. **A product with a dense matrix** is Triton's kernel where types and blocks allow it: it takes two numbers
   it does not read, and copies of tensors none of whose strides is one. Else, of half and single precision,
   the dense rows of every block are gathered and multiplied by it, in single precision, and what belongs to
   one row is summed. In double precision cuSPARSE's bsrmm reads 32-bit copies of the indices and writes a
   column-major result; so does bsrmv with a vector, in each precision it has.
3. Only square blocks of more than one element, and only BSR times dense or dense times BSC, have a kernel.

Source: `aten/src/ATen/native/TensorConversions.cpp` (`_batch_tile_tensor`, `dense_to_sparse_compressed`,
`_compressed_to_block_compressed_cpu`), `sparse/SparseBlasImpl.cpp` (`operands_support_triton_mm_kernel`,
`_compressed_row_strided_mm_out`, `_compressed_row_strided_addmm_out`), `sparse/cuda/SparseBlasImpl.cpp`
(`block_sparse_mm`, `block_sparse_mv`), `torch/sparse/_triton_ops.py` (`bsr_dense_addmm`, `prepare_inputs`);
orders as PyTorch's own host code asks under the emulated runtime (torch 2.11).

Not modelled: products where Triton is not installed, or before torch 2.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.kernels import entries
from analyzer.capture.pytorch.recording.copies import to_device, to_host
from analyzer.capture.pytorch.recording.parts import BY_ROWS
from analyzer.capture.pytorch.recording.parts import compressed_parts as parts

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

aten = torch.ops.aten
_META = torch.device("meta")
_HALVES = (torch.float16, torch.bfloat16)
_LEAST_OF_TRITON = 16  # tl.dot takes no smaller blocks


def size_of(values: torch.Tensor) -> tuple[int, int]:
    """Return rows and columns of a block; one each where entries are numbers."""
    return (int(values.shape[1]), int(values.shape[2])) if values.dim() > 1 else (1, 1)


def tiles(matrix: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """Copy a matrix tile by tile (`_tile_tensor`)."""
    (rows, columns), (down, across) = matrix.shape, block
    return matrix.reshape(rows // down, down, columns // across, across).transpose(1, 2).contiguous()


def coordinates(indices: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """Return rows and columns of all elements for those of their blocks (`sparse_compressed_to_sparse`)."""
    down, across = block
    within = indices.new_zeros(2, down * across)
    numbers = torch.arange(max(block), dtype=indices.dtype, device=indices.device)
    spread = (numbers[:down, None].expand(block), numbers[:across].expand(block))
    both = torch.stack(spread)
    within.copy_(both.flatten(-2, -1))
    del numbers, spread, both
    sizes = torch.tensor(block, dtype=indices.dtype).to(indices.device).unsqueeze(1)
    return indices.mul(sizes).unsqueeze(-1).add(within.unsqueeze(1)).flatten(-2, -1)


def from_compressed(
    recorder: Recorder, matrix: torch.Tensor, block: tuple[int, int], layout: Any
) -> tuple[Any, Any, Any]:
    """Return the parts in blocks of a CSR (for BSR) or CSC matrix (for BSC): gathered on the host."""
    compressed, plain, values = parts(matrix)
    known, has_numbers = entries.on_host(recorder, matrix, places_only=True), recorder.values.known(values)
    for part in (values, compressed, plain):
        to_host(recorder, part)
    by_rows = layout in BY_ROWS
    filled = None
    if known is None:
        begins, places = _unknown(recorder, compressed, plain, matrix.shape, block, by_rows)
    else:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            begins, places, filled = parts(known.to_sparse(layout=layout, blocksize=block))
    with _disable_current_modes():
        empty = torch.empty(len(places), *block, dtype=values.dtype, device=_META)
    values = to_device(recorder, recorder.storages.host(empty))
    if filled is not None and has_numbers is not None:
        recorder.values.learn(values, filled)
    begins = to_device(recorder, begins)
    return begins, to_device(recorder, places), values


def _unknown(
    recorder: Recorder, compressed: Any, plain: Any, shape: Any, block: tuple[int, int], by_rows: bool
) -> tuple[Any, Any]:
    """Return where blocks begin and lie, on the host, as many as there are entries or places for them."""
    down, across = shape[0] // block[0], shape[1] // block[1]
    most = min(int(plain.shape[0]), down * across)
    count = recorder.values.how_many("blocks of a sparse matrix have entries", most)
    own = down if by_rows else across
    lengths = own + 1, most if count is None else count
    with _disable_current_modes():
        begins, places = (
            torch.empty(length, dtype=part.dtype, device=_META)
            for length, part in zip(lengths, (compressed, plain), strict=True)
        )
    return recorder.storages.host(begins), recorder.storages.host(places)


def _check(matrix: torch.Tensor) -> None:
    """Raise PyTorch's error where blocks are not square, or one number."""
    down, across = size_of(parts(matrix)[2])
    if down != across or down == 1:
        raise RuntimeError("mat1.values().size(2) == mat1.values().size(1) INTERNAL ASSERT FAILED")


def multiply(
    recorder: Recorder, result: Any, start: Any, matrix: Any, dense: Any, beta: Any, alpha: Any
) -> None:
    """Write `beta * start + alpha * matrix @ dense` into `result`, of a BSR matrix (`block_sparse_mm`)."""
    _check(matrix)
    begins, places, values = parts(matrix)
    if values.dtype not in (*_HALVES, torch.float32):
        return _by_cusparse(recorder, result, matrix, dense)
    if _is_for_triton(values, dense):
        return _by_triton(recorder, result, start, matrix, dense)
    _by_rows(result, begins, places, values, dense)
    if alpha != 1:
        result.mul_(alpha)
    if beta:
        result.add_(start if beta == 1 else start.mul(beta))
    return None


def _is_for_triton(values: torch.Tensor, dense: torch.Tensor) -> bool:
    """Return whether Triton's kernel can multiply (`operands_support_triton_mm_kernel`)."""
    (down, across), columns = size_of(values), dense.shape[-1]
    powers = not (down & (down - 1) or across & (across - 1))
    return powers and min(down, across) >= _LEAST_OF_TRITON and columns % down == 0


def _by_triton(recorder: Recorder, result: Any, start: Any, matrix: Any, dense: Any) -> None:
    """`bsr_dense_addmm`: scales that stand for ones and are not read, and copies the kernel can walk."""
    scales = dense.new_empty(()), dense.new_empty(())
    begins, places, values = parts(matrix)
    values, start, dense, out = (
        part.contiguous() if min(part.stride()) > 1 else part for part in (values, start, dense, result)
    )
    _record(recorder, out, (begins, places, values), dense, start=start)
    if out is not result:
        result.copy_(out)
    del scales


def _by_rows(result: Any, begins: Any, places: Any, values: Any, dense: Any) -> None:
    """`_compressed_row_strided_mm_out`: every block times the rows it meets, summed by its row."""
    (down, across), columns = size_of(values), dense.shape[-1]
    tiled = dense.reshape(-1, across, 1, columns).transpose(-3, -2)
    out = result.reshape(-1, down, 1, columns).transpose(-3, -2)
    rows = tiled.index_select(-4, places)
    products = values.unsqueeze(-3).to(torch.float32).matmul(rows.to(torch.float32))
    row_of_each = aten._convert_indices_from_csr_to_coo(
        begins, places, out_int32=begins.dtype is torch.int32
    )[0]
    if result.dtype is torch.float32:
        out.zero_()
        out.index_add_(-4, row_of_each, products)
    else:
        sums = torch.zeros(out.shape, dtype=torch.float32, device=out.device)
        sums.index_add_(-4, row_of_each, products)
        out.copy_(sums)
        del sums
    del row_of_each, products, rows  # in the order of C++


def _by_cusparse(recorder: Recorder, result: Any, matrix: Any, dense: Any) -> None:
    """`bsrmm` (a matrix) and `bsrmv` (a vector), neither of which takes a buffer."""
    out = result
    if dense.dim() > 1:
        if 1 not in dense.stride():
            dense = dense.clone(memory_format=torch.contiguous_format)
        if result.stride(0) != 1:
            out = result.mT.clone(memory_format=torch.contiguous_format).mT
    elif dense.stride(0) != 1 and dense.shape[0] > 1:
        dense = dense.clone(memory_format=torch.contiguous_format)
    begins, places, values = parts(matrix)
    begins = begins.to(torch.int32)
    _record(recorder, out, (begins, places.to(torch.int32), values), dense)
    if out is not result:
        result.copy_(out)


def multiply_vector(recorder: Recorder, result: Any, matrix: Any, vector: Any) -> None:
    """Write the product of a BSR matrix and a vector into `result` (`block_sparse_mv`)."""
    _check(matrix)
    _by_cusparse(recorder, result, matrix, vector)


def _record(recorder: Recorder, result: Any, matrix: tuple[Any, Any, Any], dense: Any, **more: Any) -> None:
    named = {"row_offsets": matrix[0], "columns": matrix[1], "values": matrix[2], "dense": dense, **more}
    recorder.record(aten._sparse_addmm.default, (), {"result": result, **named}, ())
    recorder.values.forget(result)
