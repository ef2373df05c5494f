"""Sparse tensors (COO) on the pretended GPU: what operators do to their indices and values.

A sparse gradient of an embedding, a graph's adjacency matrix: two dense tensors, `indices` of one row a
sparse dimension and `values` of one row an entry, and a size. PyTorch has sparse meta tensors that hold such
parts, but hardly a kernel for them. Here each operator is the sequence of dense ones that CUDA's kernel is
made of, on the parts; only these are recorded.

1. Questions about the parts (`_values`, `is_coalesced`) and aliases take nothing.
2. **coalesce** sorts a copy of the flattened indices with the positions, keeps one of each, and adds the
   values up. How many are left only data tells: counted where the indices are known (they came from the
   host), else as many as there were (`--assume` says another number).
3. **add** to a dense tensor adds rows in place: by `index_add_` where entries may repeat. Two sparse ones are
   concatenated.
4. **sparse_mask** gathers the rows a mask names and multiplies them by ones, beside a copy of the indices.
5. Multiplying, dividing by a number, negating and raising to a power make new values and copy the indices.
6. A gradient nobody else holds becomes `.grad` as it is (`accumulate_grad.h`), like a dense one.
7. **Matrix products** with a dense matrix coalesce, turn rows into 32-bit row offsets and call cuSPARSE,
   which writes a column-major result that is copied. A transposed sparse matrix is a copy that must be sorted
   again. Those of two sparse matrices (`products.py`) turn both into 32-bit rows; the rows and columns of the
   result are 64-bit ones again.
8. **From a dense tensor** positions are found by `nonzero`, then copied, or, of entries that are vectors,
   each place is kept once (`unique_dim`); then values are gathered. From a compressed matrix
   (`compressed.py`) rows are written out beside the columns.

Source: `aten/src/ATen/native/sparse/cuda/SparseCUDATensor.cu` (`_coalesce_sparse_cuda`),
`SparseCUDATensorMath.cu` (`add_out_dense_sparse_cuda`, `add_out_sparse_cuda`,
`s_addmm_out_csr_sparse_dense_cuda_worker`), `sparse/SparseTensor.cpp` (`sparse_mask`),
`sparse/SparseTensorMath.cpp` (`_mul_dense_sparse_out`), `SparseTensorUtils.cpp` (`flatten_indices`),
`sparse/cuda/SparseMatMul.cu` (`sparse_sparse_matmul_cuda_kernel`), `TensorConversions.cpp`
(`dense_to_sparse`); orders and sizes as in the recorded run of `tests/programs/word_vectors.py` on an H200
(`tests/data/h200`).

Not modelled: sums and softmaxes but those of `sparse_reductions.py`, what was not measured of
products of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.kernels import compressed, entries, products, sampled, sparse_reductions
from analyzer.capture.pytorch.recording.copies import to_host
from analyzer.capture.pytorch.recording.fan_in import called_by_engine
from analyzer.capture.pytorch.recording.parts import coo_parts as parts
from analyzer.capture.pytorch.recording.parts import is_compressed, is_sparse
from analyzer.capture.pytorch.recording.recorder import CompositeTensorOperators, Recorder

aten = torch.ops.aten
_META = torch.device("meta")
MAKE = aten._sparse_coo_tensor_with_dims_and_tensors.default
# Operators that make a sparse tensor, also of what is none.
MAKERS = frozenset({MAKE, aten._to_sparse.default, aten._to_sparse.sparse_dim, *compressed.MAKERS})
_FUNCTIONS = "abs ceil expm1 floor log1p relu round sgn sign sin sqrt tan tanh trunc"
_ASKED = frozenset(
    {
        aten._indices.default, aten._values.default, aten.indices.default, aten.values.default,
        aten._nnz.default,
        aten.is_coalesced.default, aten._coalesced_.default, aten.sparse_dim.default, aten.dense_dim.default,
        aten._dimI.default, aten._dimV.default, aten.detach.default, aten.alias.default, aten.zero_.default,
    }
)  # fmt: skip


def sparse_tensor(indices: Any, values: Any, shape: Any, coalesced: bool | None = None) -> torch.Tensor:
    """Return the sparse tensor that consists of these parts."""
    dims = int(indices.shape[0])
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        return MAKE(  # type: ignore[no-any-return]
            dims, len(shape) - dims, tuple(shape), indices, values, dtype=values.dtype,
            layout=torch.sparse_coo,
            device=values.device, is_coalesced=coalesced,
        )  # fmt: skip


def _is_coalesced(tensor: torch.Tensor) -> bool:
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        return bool(aten.is_coalesced.default(tensor))


def _make(
    recorder: Recorder, sparse_dim: int, dense_dim: int, size: Any, indices: Any, values: Any, **kwargs: Any
) -> Any:
    recorder.values.load(indices)
    return sparse_tensor(indices, values, size, kwargs.get("is_coalesced"))


def _flattened(recorder: Recorder, indices: Any, shape: Any, clone: bool) -> Any:
    """Return one linear index for each entry (`flatten_indices`)."""
    if indices.shape[0] == 1:
        flat = indices.squeeze(0)
        return flat.clone() if clone else flat
    flat = indices.new_empty(indices.shape[1])  # one kernel fills it
    value = recorder.values.known(indices)
    recorder.values.forget(flat)
    if value is not None:
        recorder.values.learn(flat, entries.numbered(value, shape))
    return flat


def _differing(recorder: Recorder, most: int) -> int:
    """Return how many distinct indices there are taken to be, where they are not known: at most `most`."""
    bound = recorder.values.how_many("entries of a sparse tensor differ", most)
    return most if bound is None else bound


def _coalesce(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """`_coalesce_sparse_cuda`, `SparseCUDATensor.cu`: sort the flat indices, add up equal ones."""
    indices, values = parts(tensor)
    dims, before = indices.shape
    shape = tensor.shape
    if before < 2:
        return _copied(tensor, True)
    flat = _flattened(recorder, indices, shape, clone=True)
    positions, offsets = torch.empty_like(flat), torch.empty_like(flat)
    known = entries.coalesced(recorder, tensor)
    count = known[0].shape[1] if known else _differing(recorder, min(before, math.prod(shape[:dims])))
    with _disable_current_modes():
        result = torch.empty((count, *values.shape[1:]), dtype=values.dtype, device=_META)
    named = {"flat_indices": flat, "values": values, "positions": positions, "offsets": offsets}
    recorder.record(aten._coalesce.default, (), named, result)
    recorder.values.forget(flat)  # sorted now
    if known and known[1] is not None:
        recorder.values.learn(result, known[1])
    if known and dims == 1:
        recorder.values.learn(flat, torch.nn.functional.pad(known[0][0], (0, before - count)))
    flat = flat.as_strided((1, count), (before, 1))
    if dims == 1:
        return sparse_tensor(flat, result, shape, True)
    unflat = flat.new_empty((dims, count))
    for dim in reversed(range(dims)):
        row = unflat.narrow(0, dim, 1)
        row.copy_(flat)
        flat.div_(shape[dim], rounding_mode="trunc")
        row.add_(flat, alpha=-shape[dim])
    if known:
        recorder.values.learn(unflat, known[0])
    return sparse_tensor(unflat, result, shape, True)


def _coalesced(recorder: Recorder, tensor: torch.Tensor) -> Any:
    return tensor if _is_coalesced(tensor) else _coalesce(recorder, tensor)


def _clone(_: Recorder, tensor: torch.Tensor, **kwargs: Any) -> Any:
    indices, values = parts(tensor)
    is_contiguous = indices.is_contiguous() and values.is_contiguous()
    if is_contiguous and called_by_engine() and not torch.is_grad_enabled():
        return sparse_tensor(indices, values, tensor.shape)
    return _copied(tensor, _is_coalesced(tensor))


def _copied(tensor: torch.Tensor, coalesced: bool) -> Any:
    """Copy values before indices: they are the later argument (`copy_into_sparse`)."""
    indices, values = parts(tensor)
    values = values.clone()
    return sparse_tensor(indices.clone(), values, tensor.shape, coalesced)


def _to_copy(recorder: Recorder, tensor: torch.Tensor, **kwargs: Any) -> Any:
    """Copy indices and values to another device or type."""
    kwargs = {name: value for name, value in kwargs.items() if name in ("dtype", "device", "non_blocking")}
    where = kwargs.get("device")
    indices, values = parts(tensor)
    is_coalesced = _is_coalesced(tensor)
    if where is not None and where.type == "cpu":
        return _host_copy(recorder, tensor, kwargs.get("dtype"))
    if where is None:
        return sparse_tensor(indices.clone(), values.to(kwargs["dtype"]), tensor.shape, is_coalesced)
    of_indices = {name: value for name, value in kwargs.items() if name != "dtype"}
    copy = entries.learn_copy(recorder, aten._to_copy.default(indices, **of_indices), indices)
    copied = entries.learn_copy(recorder, aten._to_copy.default(values, **kwargs), values)
    return sparse_tensor(copy, copied, tensor.shape, is_coalesced)


def _host_copy(recorder: Recorder, tensor: torch.Tensor, dtype: Any = None) -> torch.Tensor:
    """Return the copy in host memory: of real parts, if both are real there."""
    if is_compressed(tensor):
        return compressed.host_copy(recorder, tensor, dtype)
    indices, values = parts(tensor)
    indices, values = to_host(recorder, indices), to_host(recorder, values, dtype)
    if indices.device != values.device:
        indices, values = (
            part if part.is_meta else recorder.storages.host(torch.empty_like(part, device=_META))
            for part in (indices, values)
        )
    return sparse_tensor(indices, values, tensor.shape, _is_coalesced(tensor))


def _add_(recorder: Recorder, one: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Entries added to a dense tensor in place; a sparse one consists of other parts afterwards."""
    if is_sparse(one):
        both = _add(recorder, one, other, alpha=alpha)
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            one.data = both
        return one
    indices, values = parts(other)
    if indices.shape[1] == 0:
        return one
    values = values.to(one.dtype)
    if _is_coalesced(other) or indices.shape[1] < 2:  # one kernel, which finds each place by itself
        after = entries.added(recorder, one, other, alpha)
        recorder.values.forget(one)
        one.view(-1)[:1].add_(values.reshape(-1)[:1])
        if after is not None:
            recorder.values.learn_scattered(one, after, one.numel())
        return one
    flat = _flattened(recorder, indices, one.shape, clone=False)
    rows = one.view(math.prod(one.shape[: indices.shape[0]]), -1)
    rows.index_add_(0, flat, values.reshape(values.shape[0], -1), alpha=alpha)
    return one


def _add(recorder: Recorder, one: Any, other: Any, *, alpha: Any = 1) -> Any:
    if is_sparse(one) and is_sparse(other):
        (first, values), (second, more) = parts(one), parts(other)
        if alpha != 1:
            more = more.mul(alpha)
        return sparse_tensor(torch.cat((first, second), 1), torch.cat((values, more), 0), one.shape)
    dense, sparse = (other, one) if is_sparse(one) else (one, other)
    return _add_(recorder, dense.clone(), sparse, alpha=alpha)


def _sparse_mask(_: Recorder, dense: Any, mask: Any) -> Any:
    indices, values = parts(mask)
    if is_sparse(dense):
        raise NotImplementedError("sparse_mask of a sparse tensor cannot be followed")
    ones = values.new_ones(1)
    gathered = dense[tuple(indices)]
    copied = indices.clone()
    result = gathered.mul(ones.expand_as(values))
    del gathered, ones  # in the order of C++
    return sparse_tensor(copied, result, mask.shape, _is_coalesced(mask))


def _on_values(operator: Callable[..., Any], coalesces: bool = False) -> Callable[..., Any]:
    """Return an operator that leaves every entry where it is: new values, and a copy of the indices."""

    def on_values(recorder: Recorder, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_sparse(tensor):  # number times sparse
            tensor, args = args[0], (tensor,)
        tensor = _coalesced(recorder, tensor) if coalesces else tensor
        indices, values = parts(tensor)
        return sparse_tensor(
            indices.clone(), operator(values, *args, **kwargs), tensor.shape, _is_coalesced(tensor)
        )

    return on_values


def _of_each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of each number that is zero at zero: of a coalesced tensor, values before indices
    (`coalesced_unary_ufunc`, `sparse/SparseUnaryOps.cpp`)."""

    def of_each(recorder: Recorder, tensor: Any) -> Any:
        indices, values = parts(_coalesced(recorder, tensor))
        new = function(values)
        return sparse_tensor(indices.clone(), new, tensor.shape, True)

    return of_each


def _in_place(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same on the values themselves."""

    def in_place(_: Recorder, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        operator(parts(tensor)[1], *args, **kwargs)
        return tensor

    return in_place


def _norm(recorder: Recorder, tensor: Any, power: Any = 2, *_: Any, **__: Any) -> Any:
    return parts(_coalesced(recorder, tensor))[1].norm(power)


def _to_dense(recorder: Recorder, tensor: Any, *_: Any, **__: Any) -> Any:
    values = parts(tensor)[1]
    dense = _add_(recorder, values.new_zeros(tensor.shape), tensor)
    return entries.learn_written_out(recorder, tensor, dense)


def _transposed(_: Recorder, tensor: Any, first: int = 0, second: int = 1) -> Any:
    """Copy with two rows of indices exchanged through a temporary row."""
    indices, values = parts(_copied(tensor, False))
    spare = torch.empty_like(indices[first]).copy_(indices[first])
    indices[first].copy_(indices[second])
    indices[second].copy_(spare)
    shape = list(tensor.shape)
    shape[first], shape[second] = shape[second], shape[first]
    return sparse_tensor(indices, values, shape, False)


def _product(recorder: Recorder, result: Any, sparse: Any, dense: Any) -> Any:
    """`result` (rows, columns) becomes the product, through cuSPARSE's column-major one."""
    coalesced = _coalesced(recorder, sparse)
    indices, values = parts(coalesced)
    rows = coalesced.shape[0]

    def integers(count: int) -> Any:
        return torch.empty(count, dtype=torch.int32, device=_META)

    offsets = integers(rows + 1)
    integers(indices.shape[1]).copy_(indices[0])  # rows, from which the offsets are made
    columns = integers(indices.shape[1]).copy_(indices[1])
    columnwise = result.transpose(0, 1).clone(memory_format=torch.contiguous_format)
    matrix = {"row_offsets": offsets, "columns": columns, "values": values}
    if dense.stride() != (1, dense.shape[0]):  # by columns without gaps
        dense = dense.contiguous()  # what lies by rows without gaps is taken as it is
    recorder.record(aten._sparse_mm.default, (), {"result": columnwise, **matrix, "dense": dense}, ())
    result.copy_(columnwise.transpose(0, 1))
    return result


def _rows(recorder: Recorder, matrix: Any) -> products.Rows:
    """Return a matrix as cuSPARSE takes it, from its entries in order."""
    indices, values = parts(matrix)
    indices, values = indices.contiguous(), values.contiguous()
    count, length = matrix.shape[0], indices.shape[1]
    offsets = torch.empty(count + 1, dtype=torch.int32, device=_META)
    rows = torch.empty(length, dtype=torch.int32, device=_META).copy_(indices[0])
    recorder.record(aten._convert_indices_from_coo_to_csr.default, (rows, count), {"out_int32": True}, ())
    value = recorder.values.known(rows)
    if value is not None:
        recorder.values.learn(offsets, torch._convert_indices_from_coo_to_csr(value, count, out_int32=True))
    del rows
    columns = torch.empty(length, dtype=torch.int32, device=_META).copy_(indices[1])
    return products.Rows(offsets, columns, values, tuple(matrix.shape))


def _product_of_two(recorder: Recorder, one: Any, other: Any) -> Any:
    """`sparse_sparse_matmul_cuda`: 32-bit rows of both, rows and columns of cuSPARSE's result."""
    second = _coalesced(recorder, other)  # the later argument
    first = _coalesced(recorder, one)
    shape = (one.shape[0], other.shape[1])
    rows_of_both = _rows(recorder, first), _rows(recorder, second)
    offsets = torch.empty(shape[0] + 1, dtype=torch.int32, device=_META)
    columns, values = products.multiplied(recorder, *rows_of_both, offsets)
    indices = parts(one)[0].new_empty(2, columns.shape[0])
    recorder.values.forget(indices)
    known_values = recorder.values.known(offsets), recorder.values.known(columns)
    if known_values[0] is not None and known_values[1] is not None:
        rows = torch.arange(shape[0]).repeat_interleave(known_values[0].diff())
        recorder.values.learn(indices, torch.stack([rows, known_values[1].long()]))
    return sparse_tensor(indices, values, shape, True)


def _to_coo(recorder: Recorder, tensor: Any, sparse_dim: Any = None, **kwargs: Any) -> Any:
    """Return the non-zero entries of a dense tensor, or a compressed matrix's with shared values."""
    if is_sparse(tensor):
        return tensor
    if is_compressed(tensor):
        indices, values, is_coalesced = compressed.coordinates(tensor)
        return sparse_tensor(indices, values, tensor.shape, is_coalesced)
    places = tensor.nonzero().t()
    all_sparse = sparse_dim in (None, tensor.dim())
    indices = (
        places.clone() if all_sparse else _places(recorder, places.narrow(0, 0, sparse_dim), tensor.shape)
    )
    values = (tensor[tuple(indices)] if tensor.dim() else tensor.unsqueeze(0)).clone()
    del places  # at the end of the C++ function
    return sparse_tensor(indices, values, tensor.shape, True)


def _places(recorder: Recorder, rows: Any, shape: Any) -> Any:
    """Return the distinct index columns in `rows` (`unique_dim`)."""
    dims, row_count = rows.shape
    value = recorder.values.known(rows)
    distinct = None if value is None else value.unique(dim=1)
    most = min(row_count, math.prod(shape[:dims]))
    count = _differing(recorder, most) if distinct is None else distinct.shape[1]
    with _disable_current_modes():
        results = [torch.empty(size, dtype=rows.dtype, device=_META) for size in ((dims, count), 0, 0)]
    recorder.record(aten.unique_dim.default, (rows, 1), {}, tuple(results))
    if distinct is not None:
        recorder.values.learn(results[0], distinct)
    return results[0]


def _sum(recorder: Recorder, tensor: Any, dims: Any, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if keepdim or dtype is not None:
        raise NotImplementedError(
            "sums of sparse tensors that keep their dimensions or change their type cannot be followed"
        )
    indices, values, shape = sparse_reductions.sums(*parts(tensor), tensor.shape, dims)
    return values if indices is None else _coalesce(recorder, sparse_tensor(indices, values, shape))


def _sum_of_all(recorder: Recorder, tensor: Any, *, dtype: Any = None) -> Any:
    return parts(_coalesced(recorder, tensor))[1].sum(dtype=dtype)


def _sum_backward(recorder: Recorder, grad: Any, tensor: Any, dims: Any) -> Any:
    tensor = _coalesced(recorder, tensor)
    if is_sparse(grad):
        grad = parts(_coalesced(recorder, grad))
    gradient = sparse_reductions.gradient_of_sum(grad, *parts(tensor), tensor.shape, dims)
    return sparse_tensor(*gradient, tensor.shape, True)


def _softmax(func: Any) -> Callable[..., Any]:
    def softmax(recorder: Recorder, tensor: Any, dim: int, half_to_float: bool = False) -> Any:
        tensor = _coalesced(recorder, tensor)
        result_parts = sparse_reductions.softmax(recorder, func, *parts(tensor), tensor.shape, dim)
        return sparse_tensor(*result_parts, tensor.shape, True)

    return softmax


def _mm(recorder: Recorder, sparse: Any, dense: Any, *_: Any) -> Any:
    if is_sparse(sparse) and is_sparse(dense):
        return _product_of_two(recorder, sparse, dense)
    if not is_sparse(sparse):
        raise NotImplementedError("products with a sparse second matrix cannot be followed")
    start = dense.new_zeros((sparse.shape[0], dense.shape[1]))
    return _addmm(recorder, start, sparse, dense, beta=0)


def _addmm(recorder: Recorder, start: Any, sparse: Any, dense: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if not is_sparse(sparse):
        raise NotImplementedError("products with a sparse second matrix cannot be followed")
    result = dense.new_empty((sparse.shape[0], dense.shape[1]))
    if beta:
        result.copy_(start.expand_as(result))
    else:
        result.zero_()
    return _product(recorder, result, sparse, dense)


_HANDLERS: dict[Any, Callable[..., Any]] = {
    MAKE: _make,
    aten._coalesce.default: _coalesce,
    aten.clone.default: _clone,
    aten._to_copy.default: _to_copy,
    aten.add.Tensor: _add,
    aten.add_.Tensor: _add_,
    aten.sparse_mask.default: _sparse_mask,
    aten.mul.Tensor: _on_values(torch.mul),
    aten.mul.Scalar: _on_values(torch.mul),
    aten.div.Tensor: _on_values(torch.div),
    aten.div.Scalar: _on_values(torch.div),
    aten.neg.default: _on_values(torch.neg, coalesces=True),
    aten.pow.Tensor_Scalar: _on_values(torch.pow, coalesces=True),
    aten.mul_.Tensor: _in_place(torch.Tensor.mul_),
    aten.mul_.Scalar: _in_place(torch.Tensor.mul_),
    aten.div_.Tensor: _in_place(torch.Tensor.div_),
    aten.div_.Scalar: _in_place(torch.Tensor.div_),
    **{getattr(aten, name).default: _of_each(getattr(torch, name)) for name in _FUNCTIONS.split()},
    aten.norm.Scalar: _norm,
    aten.norm.ScalarOpt_dim: _norm,
    aten._to_dense.default: _to_dense,
    aten.t.default: _transposed,
    aten.transpose.int: _transposed,
    aten.mm.default: _mm,
    aten._sparse_mm.default: _mm,
    aten.addmm.default: _addmm,
    aten._sparse_addmm.default: _addmm,
    aten._sparse_sparse_matmul.default: _mm,
    aten._sparse_sum.dim: _sum,
    aten.sum.dim_IntList: _sum,
    aten.sum.default: _sum_of_all,
    aten._sparse_sum_backward.default: _sum_backward,
    aten._sparse_softmax.default: _softmax(aten._sparse_softmax.default),
    aten._sparse_log_softmax.default: _softmax(aten._sparse_log_softmax.default),
    aten._to_sparse.default: _to_coo,
    aten._to_sparse.sparse_dim: _to_coo,
    **compressed.MAKERS,
}
_OF_COMPRESSED = {
    **compressed.HANDLERS,
    **sampled.HANDLERS,
    aten._to_sparse.default: _to_coo,
    aten._to_sparse.sparse_dim: _to_coo,
}


def _call(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the handler of an operator with a sparse argument. Raises NotImplementedError if it has none."""
    rows = any(map(is_compressed, args))
    if func in (compressed.ASKED if rows else _ASKED):
        return func(*args, **kwargs)
    handler = (_OF_COMPRESSED if rows else _HANDLERS).get(func)
    if handler is None:
        raise NotImplementedError(
            f"{func.name()} on sparse tensors cannot be followed: nobody has described what CUDA does"
        )
    with recorder:
        return handler(recorder, *args, **kwargs)


COMPOSITES = CompositeTensorOperators(MAKERS, _call, _host_copy)
