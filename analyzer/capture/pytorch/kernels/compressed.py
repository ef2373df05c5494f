"""Compressed sparse matrices (CSR and CSC; BSR and BSC, of blocks) on the pretended GPU: what their operators
do to the three tensors they are made of.

A graph's adjacency matrix as graph libraries hand it to the GPU: `crow_indices`, where each row's entries
begin, `col_indices` and `values` (for CSC: `ccol_indices`, `row_indices`). PyTorch has compressed meta
tensors that hold such parts, but hardly a kernel for them. Here each operator is the sequence of dense ones
that CUDA's kernel is made of, on the parts; only these are recorded.

1. Questions about the parts and aliases take nothing; neither does **transposing**: the parts of a CSR matrix
   are those of the transposed CSC one. Making one of parts takes nothing, copying one copies its values
   first.
2. **CSC to CSR and back** (`sparse_compressed_to_flipped`) writes the indices out, sorts one number an entry
   and gathers indices and values in the new order. Every backward pass of `matrix @ x` does so, for its
   transposed matrix.
3. **A product with a dense matrix** first makes a matrix of zeros, then the result, which cuSPARSE writes; a
   dense matrix that is neither row by row nor column by column is copied before. CSC is turned into CSR,
   dense times CSR is the transposed product. So is a product with a vector, without the zeros.
4. **A product of two** turns all indices into 32-bit ones and leaves the result with such (`spgemm`). How
   many entries it has is counted where the indices are known (they came from the host), else estimated, which
   is noted (`--assume` says another number). cuSPARSE's workspace goes by the multiplications
   (`scratch/sparse.py`).
5. **To COO** the rows are written out beside the columns, the values are shared. From COO the entries are
   coalesced and the rows counted. **To dense** entries are added into zeros; from dense, positions are found
   by `nonzero`, twice.
6. Multiplying by a number, and functions of each entry that leave zero zero, make new values and copy the
   indices.

Source: `aten/src/ATen/native/TensorConversions.cpp` (`sparse_compressed_to_flipped`,
`sparse_compressed_to_sparse`, `coo_to_sparse_csr`, `dense_to_sparse_compressed`,
`sparse_compressed_to_dense`, `_to_copy`), `sparse/SparseCsrTensorMath.cpp` (`_sparse_csr_mm`,
`addmm_sparse_compressed_dense`), `sparse/cuda/SparseBlas.cpp`, `SparseBlasImpl.cpp` (`spmm`, `spgemm`,
`addmv_out_sparse_csr`), `SparseCsrTensor.cpp` (`transpose_sparse_csr`).

The rest that blocks need is in `blocks.py`.

Not modelled: batches of matrices, entries that are vectors, sums of two compressed
matrices, reductions other than the sum of everything, gradients for the matrix's values in its own layout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.kernels import blocks, entries, products
from analyzer.capture.pytorch.recording.copies import to_host
from analyzer.capture.pytorch.recording.parts import BY_ROWS, COMPRESSED_LAYOUTS, is_compressed
from analyzer.capture.pytorch.recording.parts import compressed_parts as parts

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

aten = torch.ops.aten
_META = torch.device("meta")
_FLIPPED = dict(zip(COMPRESSED_LAYOUTS, (*COMPRESSED_LAYOUTS[2:], *COMPRESSED_LAYOUTS[:2]), strict=True))
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
_PLAIN = "batches of compressed sparse tensors, and entries that are vectors, cannot be followed"
UNSAFE = aten._sparse_compressed_tensor_unsafe.default
MADE = aten.sparse_compressed_tensor.comp_plain_value_size
_SIZED_BY_DATA = aten.sparse_compressed_tensor.comp_plain_value
_ASKED = """
    crow_indices col_indices ccol_indices row_indices values _nnz sparse_dim dense_dim detach alias
"""
ASKED = frozenset(getattr(aten, name).default for name in _ASKED.split())


def compressed_tensor(compressed: Any, plain: Any, values: Any, shape: Any, layout: Any) -> torch.Tensor:
    """Return the compressed tensor that consists of these parts."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        return UNSAFE(  # type: ignore[no-any-return]
            compressed, plain, values, tuple(shape), dtype=values.dtype, layout=layout, device=values.device
        )


def _new(
    recorder: Recorder,
    compressed: Any,
    plain: Any,
    values: Any,
    size: Any = None,
    *,
    layout: Any,
    **kwargs: Any,
) -> Any:
    """Make a tensor of these parts; without a size the host reads the largest column index."""
    if compressed.dim() != 1 or values.dim() != (3 if layout in BLOCKED else 1):
        raise NotImplementedError(_PLAIN)
    recorder.values.load(compressed)
    recorder.values.load(plain)
    if size is None:
        own = compressed.shape[0] - 1
        other = int(plain.max().item()) + 1 if plain.numel() else 0
        down, across = blocks.size_of(values)
        size = (own * down, other * across) if layout in BY_ROWS else (other * down, own * across)
    return compressed_tensor(compressed, plain, values, size, layout)


def clone(_: Recorder, tensor: torch.Tensor, **kwargs: Any) -> Any:
    """Return a copy of every part, the last argument first (`clone_sparse_compressed`,
    `SparseCsrTensor.cpp`)."""
    compressed, plain, values = parts(tensor)
    values = values.clone()
    plain = plain.clone()
    return compressed_tensor(compressed.clone(), plain, values, tensor.shape, tensor.layout)


def _to_copy(recorder: Recorder, tensor: torch.Tensor, **kwargs: Any) -> Any:
    """Copy every part to another device or type, the values first."""
    kwargs = {name: value for name, value in kwargs.items() if name in ("dtype", "device", "non_blocking")}
    where = kwargs.get("device")
    if where is not None and where.type == "cpu":
        return host_copy(recorder, tensor, kwargs.get("dtype"))
    compressed, plain, values = parts(tensor)
    values = entries.learn_copy(recorder, aten._to_copy.default(values, **kwargs), values)
    kwargs.pop("dtype", None)
    compressed, plain = (
        entries.learn_copy(recorder, aten._to_copy.default(part, **kwargs), part)
        for part in (compressed, plain)
    )
    return compressed_tensor(compressed, plain, values, tensor.shape, tensor.layout)


def host_copy(recorder: Recorder, tensor: torch.Tensor, dtype: Any = None) -> torch.Tensor:
    """Return the copy in host memory: of real parts, if all are real there."""
    compressed, plain, values = parts(tensor)
    copies = [to_host(recorder, values, dtype), to_host(recorder, compressed), to_host(recorder, plain)]
    if len({copy.device for copy in copies}) > 1:
        copies = [
            copy if copy.is_meta else recorder.storages.host(torch.empty_like(copy, device=_META))
            for copy in copies
        ]
    return compressed_tensor(copies[1], copies[2], copies[0], tensor.shape, tensor.layout)


def _transposed(_: Recorder, tensor: torch.Tensor, first: int = 0, second: int = 1) -> Any:
    """Return the same parts, read the other way."""
    if first % 2 == second % 2:
        return tensor
    compressed, plain, values = parts(tensor)
    values = values.mT if values.dim() > 1 else values
    return compressed_tensor(compressed, plain, values, reversed(tensor.shape), _FLIPPED[tensor.layout])


def _flipped(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """Return a CSC tensor of the same matrix for a CSR one, and the other way round; so with BSR and BSC."""
    compressed, plain, values = parts(tensor)
    by_rows = tensor.layout in BY_ROWS
    places = [length // size for length, size in zip(tensor.shape, blocks.size_of(values), strict=True)]
    own, other = places if by_rows else reversed(places)
    count, small = plain.shape[0], compressed.dtype is torch.int32
    offset = _batch_offset(compressed, count)
    past = compressed.narrow(0, 0, own).add(offset.expand(own))
    pointers = compressed.new_empty(own + 1)
    pointers.narrow(0, 0, own).copy_(past)
    del past
    pointers.narrow(0, own, 1).fill_(count)
    written = aten._convert_indices_from_csr_to_coo(pointers, plain, out_int32=small, transpose=True)
    _within_one_matrix(written, own, other)
    hashed = written.new_empty(count, dtype=torch.int64)  # one kernel fills it
    value = recorder.values.known(written)
    recorder.values.forget(hashed)
    if value is not None:
        recorder.values.learn(hashed, value[0].long() * own + value[1])
    order = hashed.sort()[1]
    in_order = written.index_select(1, order)
    values = values.index_select(0, order)
    begins = aten._convert_indices_from_coo_to_csr(in_order[0], other, out_int32=small)
    result = begins.new_zeros(other + 1)  # `compressed_to_batched_compressed_indices`
    result.narrow(0, 1, other).copy_(begins.narrow(0, 1, other) - begins.narrow(0, 0, 1))
    return compressed_tensor(result, in_order[1], values, tensor.shape, _FLIPPED[tensor.layout])


def _batch_offset(compressed: Any, count: int) -> Any:
    """Return the entries in earlier matrices of a batch: zero here, but computed on the GPU."""
    wrapped = torch.tensor([count], dtype=compressed.dtype).to(compressed.device)
    return wrapped.cumsum(-1).sub_(wrapped)


def _within_one_matrix(both: Any, own: int, other: int) -> None:
    """Convert the indices of matrices laid side by side to each matrix's own, in place."""
    place, plain = both[1], both[0]
    matrix = place.div(own, rounding_mode="trunc")
    place.fmod_(own)
    plain.add_(matrix * other)


def _to_compressed(
    recorder: Recorder, tensor: torch.Tensor, dense_dim: Any = None, *, layout: Any = torch.sparse_csr
) -> Any:
    """Any matrix as a CSR or CSC one."""
    if tensor.layout is layout:
        return tensor
    if dense_dim or tensor.dim() != 2:
        raise NotImplementedError(_PLAIN)
    if tensor.layout in BLOCKED:
        raise RuntimeError(f"expected SparseCsr or SparseCsc layout but got {tensor.layout}")
    if is_compressed(tensor):
        return _flipped(recorder, tensor)
    if tensor.layout is torch.sparse_coo:
        return _compressed_coo(tensor, layout)
    return _compressed_dense(tensor, layout)


def _to_blocks(
    recorder: Recorder, tensor: torch.Tensor, block: Any, dense_dim: Any = None, *, layout: Any
) -> Any:
    """Any matrix as a BSR or BSC one; of another order of rows and columns by way of its own."""
    if dense_dim or tensor.dim() != 2:
        raise NotImplementedError(_PLAIN)
    if tensor.layout is layout:
        return tensor
    if tensor.layout in BLOCKED:
        return _flipped(recorder, tensor)
    if tensor.layout is torch.strided:
        return _compressed_dense(tensor, layout, (block[0], block[1]))
    own = torch.sparse_csr if layout in BY_ROWS else torch.sparse_csc
    matrix = _to_compressed(recorder, tensor, layout=own)
    new = blocks.from_compressed(recorder, matrix, (block[0], block[1]), layout)
    return compressed_tensor(*new, tensor.shape, layout)


def _compressed_coo(tensor: torch.Tensor, layout: Any) -> Any:
    """Compress a COO tensor: coalesce it (for CSC its transpose), then count the rows."""
    by_rows = layout is torch.sparse_csr
    coalesced = (tensor if by_rows else tensor.t()).coalesce()
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        indices, values = aten._indices.default(coalesced), aten._values.default(coalesced)
    small = indices.dtype is torch.int32
    begins = aten._convert_indices_from_coo_to_csr(indices[0], coalesced.shape[0], out_int32=small)
    return compressed_tensor(begins, indices[1].contiguous(), values, tensor.shape, layout)


def _compressed_dense(tensor: torch.Tensor, layout: Any, block: tuple[int, int] | None = None) -> Any:
    """Compress a dense tensor: non-zero positions are found as rows and columns, then as numbers."""
    by_rows, shape = layout in BY_ROWS, tensor.shape
    not_zero = mask = tensor != 0
    if block is not None:
        tensor = blocks.tiles(tensor, block)
        tiles = blocks.tiles(not_zero, block)
        mask = tiles.sum((2, 3)) != 0
        del tiles
    if not by_rows:
        mask, tensor = mask.t(), tensor.transpose(0, 1)
    indices = mask.nonzero()
    begins = aten._convert_indices_from_coo_to_csr(indices[:, 0], mask.shape[0], out_int32=False)
    positions = mask.flatten().nonzero().flatten()
    values = tensor.flatten(0, 1).index_select(0, positions)
    return compressed_tensor(begins, indices[:, 1], values, shape, layout)


def coordinates(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """Return rows and columns of each element, the values, and whether they are in order
    (`sparse_compressed_to_sparse`)."""
    compressed, plain, values = parts(tensor)
    by_rows, block = tensor.layout in BY_ROWS, blocks.size_of(values)
    indices = aten._convert_indices_from_csr_to_coo(compressed, plain, out_int32=False, transpose=not by_rows)
    if values.dim() > 1:
        indices, values = blocks.coordinates(indices, block), values.flatten()
    return indices, values, (by_rows and block[0] == 1) or plain.shape[0] < 2


def _to_dense(recorder: Recorder, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """`sparse_compressed_to_dense`: zeros, and the entries added at the places of one number each."""
    return entries.learn_written_out(recorder, tensor, _written_out(tensor))


def _written_out(tensor: torch.Tensor) -> Any:
    compressed, plain, values = parts(tensor)
    block = blocks.size_of(values)
    rows, columns = tensor.shape[0] // block[0], tensor.shape[1] // block[1]
    by_rows = tensor.layout in BY_ROWS
    dense = values.new_zeros(tensor.shape)
    batch = compressed.new_zeros(1).repeat_interleave(plain.shape[0])
    begins = _begins_in_batch(compressed, plain.shape[0])
    indices = aten._convert_indices_from_csr_to_coo(begins, plain, out_int32=False, transpose=not by_rows)
    row, column = indices[0], indices[1]
    (row if by_rows else column).sub_(batch * (rows if by_rows else columns))
    # Temporaries of one expression, all of which live until its end.
    down, before = row * columns, batch * rows
    within, past = column + down, before * columns
    places = within + past
    del down, before, within, past
    if values.dim() == 1:
        dense.view(-1).index_add_(0, places, values)
        return dense
    dense.view(-1, *block).index_add_(0, places, values)
    return dense.view(rows, columns, *block).transpose(1, 2).reshape(tensor.shape)


def _begins_in_batch(compressed: Any, count: int) -> Any:
    """Concatenate the compressed indices of all matrices of a batch, of which there is one."""
    own = compressed.shape[0] - 1
    zero = compressed.new_zeros(1)  # lives, as all of one expression
    matrix = zero.repeat_interleave(own)
    past = count * matrix
    begins = compressed.narrow(0, 0, own) + past
    one = compressed.new_ones(1)
    end = count * one
    return torch.cat([begins, end])


def _mm(recorder: Recorder, one: Any, other: Any) -> Any:
    """`_sparse_csr_mm`: zeros, and their sum with the product."""
    if is_compressed(one) and is_compressed(other):
        _no_blocks(one, other)
        one, other = (_to_compressed(recorder, part) for part in (one, other))
        return _product_of_two(recorder, one, other)
    if is_compressed(one) and one.layout is torch.sparse_csc:
        one = _to_compressed(recorder, one)
    dense = other if is_compressed(one) else one
    start = dense.new_zeros(one.shape[0], other.shape[1])
    return _addmm(recorder, start, one, other, beta=0)


def _product_of_two(recorder: Recorder, one: Any, other: Any) -> Any:
    """`spgemm`; the zeros added and the result they are copied into are only row offsets."""
    shape = (one.shape[0], other.shape[1])
    zeros = parts(other)[0].new_zeros(shape[0] + 1, dtype=torch.int64)
    empty = zeros.new_empty(1)  # a result without rows, which is made as large as the zeros
    offsets = torch.empty_like(zeros)
    del empty
    offsets.copy_(zeros)
    factors = []
    for matrix in (one, other):
        begins, columns, values = parts(matrix)
        columns = columns.to(torch.int32)  # the later argument
        factors.append(products.Rows(begins.to(torch.int32), columns, values, tuple(matrix.shape)))
    offsets = offsets.to(torch.int32)
    columns, values = products.multiplied(recorder, factors[0], factors[1], offsets)
    return compressed_tensor(offsets, columns, values, shape, torch.sparse_csr)


def _addmm(recorder: Recorder, start: Any, one: Any, other: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Copy `start` to the result, to which cuSPARSE adds the product."""
    if is_compressed(start) or (is_compressed(one) and is_compressed(other)):
        raise NotImplementedError("sums with a product of two compressed sparse matrices cannot be followed")
    result = start.new_empty(one.shape[0], other.shape[1])
    result.copy_(start.expand_as(result))
    if not all(matrix.numel() and _entries(matrix) for matrix in (one, other)):
        return result
    if one.layout is torch.sparse_bsr:
        blocks.multiply(recorder, result, start.expand_as(result), one, other, beta, alpha)
    elif other.layout is torch.sparse_bsc:
        turned, spread = _transposed(recorder, other), start.expand_as(result).t()
        blocks.multiply(recorder, result.t(), spread, turned, one.t(), beta, alpha)
    elif is_compressed(one):
        _no_blocks(one, other)
        turned = _to_compressed(recorder, one)
        products.with_dense(recorder, result, parts(turned), other)
    else:
        _no_blocks(one, other)
        turned = _to_compressed(recorder, _transposed(recorder, other))
        products.with_dense(recorder, result.t(), parts(turned), one.t())
    return result


def _no_blocks(one: Any, other: Any) -> None:
    """Raise PyTorch's error for a product of blocks that has no kernel."""
    if one.layout in BLOCKED or other.layout in BLOCKED:
        raise RuntimeError(f"addmm: computation on CUDA is not implemented for {one.layout} @ {other.layout}")


def _mv(recorder: Recorder, matrix: Any, vector: Any) -> Any:
    """`addmv_out_sparse_csr`: the result, then the matrix by rows, and cuSPARSE's buffer."""
    result = vector.new_empty(matrix.shape[0])
    if matrix.layout is not torch.sparse_bsr:
        matrix = _to_compressed(recorder, matrix)
    if not _entries(matrix):
        return result.zero_()
    if matrix.layout is torch.sparse_bsr:
        blocks.multiply_vector(recorder, result, matrix, vector)
        return result
    products.with_dense(recorder, result, parts(matrix), vector)
    return result


def _entries(matrix: Any) -> int:
    """Return the number of stored entries of a matrix; of a dense one, its number of elements."""
    return int(parts(matrix)[2].shape[0]) if is_compressed(matrix) else int(matrix.numel())


def _on_values(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Apply to the values and copy the indices (`get_result_tensor_for_unary_op`)."""

    def replacement(_: Recorder, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_compressed(tensor):  # number times matrix
            tensor, args = args[0], (tensor, *args[1:])
        if any(is_compressed(arg) or (isinstance(arg, torch.Tensor) and arg.dim()) for arg in args):
            raise NotImplementedError(
                "a compressed sparse tensor can be multiplied by numbers here, not by tensors"
            )
        compressed, plain, values = parts(tensor)
        new = operator(values, *args, **kwargs)
        plain = plain.clone()
        return compressed_tensor(compressed.clone(), plain, new, tensor.shape, tensor.layout)

    return replacement


def _sum(_: Recorder, tensor: Any, *, dtype: Any = None) -> Any:
    return parts(tensor)[2].sum(dtype=dtype)


# Operators that make a sparse tensor of what is none.
MAKERS: dict[Any, Callable[..., Any]] = {
    UNSAFE: _new,
    MADE: _new,
    _SIZED_BY_DATA: _new,
    aten._to_sparse_csr.default: _to_compressed,
    aten._to_sparse_csc.default: functools.partial(_to_compressed, layout=torch.sparse_csc),
    aten._to_sparse_bsr.default: functools.partial(_to_blocks, layout=torch.sparse_bsr),
    aten._to_sparse_bsc.default: functools.partial(_to_blocks, layout=torch.sparse_bsc),
}

HANDLERS: dict[Any, Callable[..., Any]] = {
    **MAKERS,
    aten.clone.default: clone,
    aten._to_copy.default: _to_copy,
    aten.t.default: _transposed,
    aten.transpose.int: _transposed,
    aten._to_dense.default: _to_dense,
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten._sparse_addmm.default: _addmm,
    aten.mv.default: _mv,
    aten.sum.default: _sum,
    aten.mul.Tensor: _on_values(torch.mul),
    aten.mul.Scalar: _on_values(torch.mul),
    aten.neg.default: _on_values(torch.neg),
    aten.abs.default: _on_values(torch.abs),
    aten.sqrt.default: _on_values(torch.sqrt),
    aten.relu.default: _on_values(torch.relu),
}
