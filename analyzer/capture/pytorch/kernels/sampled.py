"""`torch.sparse.sampled_addmm`: a product of dense matrices at the places a CSR matrix has entries, and its
gradients.

1. **The result** begins as a matrix without rows, one offset, and is made as large as the sampled one; then
   its parts are copied. A product of nothing, or at no place, is a multiplication of the values.
2. **The gradient** is first cut down to the places (`sparse_mask`): of a mask without entries a copy of the
   mask, else a product with ones at the mask's places. Both are turned into COO, a number an entry is hashed
   and sought among the other's, matches are counted, and what is found is turned into CSR again. As many are
   found as the mask has entries: a gradient has those of the result, which are the mask's.

Source: `aten/src/ATen/native/sparse/cuda/SparseBlas.cpp` (`sparse_sampled_addmm_out_sparse_csr_cuda`),
`SparseCsrTensorImpl.cpp` (`resize_as_sparse_compressed_tensor_`), `sparse/SparseCsrTensor.cpp`
(`empty_like_sparse_csr`), `TensorConversions.cpp` and `sparse/SparseCsrTensorMath.cpp`
(`sparse_mask_sparse_compressed`, `mul_out_sparse_csr`), `sparse/SparseBinaryOpIntersectionCommon.h`; orders
as PyTorch's own host code asks under the emulated runtime (torch 2.11).

Not modelled: products of matrices that have elements, whose buffer is cuSPARSE's
(`cusparseSDDMM_bufferSize`), which nobody has recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from analyzer.capture.pytorch.kernels.compressed import clone, compressed_tensor
from analyzer.capture.pytorch.recording.parts import compressed_parts as parts
from analyzer.capture.pytorch.recording.parts import is_compressed

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

aten = torch.ops.aten


def _as_large(compressed: Any, plain: Any, values: Any) -> tuple[Any, Any, Any]:
    """Return the parts of a matrix without rows, once it has been made as large as these are."""
    offsets = compressed.new_empty(1, dtype=torch.int64)
    if compressed.shape[0] != 1:
        larger = compressed.new_empty(compressed.shape, dtype=torch.int64)
        offsets = larger
    columns = plain.new_empty(plain.shape, dtype=torch.int64)
    new = values.new_empty(values.shape)
    offsets.copy_(compressed)
    columns.copy_(plain)
    return offsets, columns, new.copy_(values)


def _sampled(
    _: Recorder, matrix: Any, one: Any, other: Any, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    """Handle `sampled_addmm`. Raises NotImplementedError where cuSPARSE would need a buffer."""
    offsets, columns, values = _as_large(*parts(matrix))
    if one.numel() and other.numel() and columns.numel():
        raise NotImplementedError(
            "a sampled product cannot be followed: nobody has recorded what buffer cuSPARSE asks for"
        )
    values.mul_(beta)
    return compressed_tensor(offsets, columns, values, matrix.shape, matrix.layout)


def _ones_like(_: Recorder, matrix: Any, **kwargs: Any) -> torch.Tensor:
    """Make the values before copying the indices: they are the later argument."""
    compressed, plain, values = parts(matrix)
    ones = torch.ones_like(values, dtype=kwargs.get("dtype"))
    plain = plain.clone()
    return compressed_tensor(compressed.clone(), plain, ones, matrix.shape, matrix.layout)


def _masked(recorder: Recorder, matrix: Any, mask: Any) -> Any:
    """`sparse_mask_sparse_compressed`, of a matrix of the same layout."""
    if not is_compressed(matrix) or {matrix.layout, mask.layout} != {torch.sparse_csr}:
        raise NotImplementedError("only CSR matrices masked by CSR ones can be followed")
    if matrix is mask:
        return matrix
    if not (mask.numel() and parts(mask)[1].numel()):
        copied = clone(recorder, mask)
        return copied if copied.dtype is matrix.dtype else copied.to(matrix.dtype)
    return _multiplied(matrix, _ones_like(recorder, mask))


def _multiplied(one: Any, other: Any) -> torch.Tensor:
    """`mul_out_sparse_csr`: entry by entry, of which as many are found as the second matrix has."""
    empty = parts(one)[0].new_empty(1, dtype=torch.int64)
    first, second = (
        aten._convert_indices_from_csr_to_coo(*parts(matrix)[:2], out_int32=False) for matrix in (one, other)
    )
    numbers = torch.arange(max(first.shape[1], second.shape[1]), device=first.device)
    hashed = first.new_empty(first.shape[1])
    matches = second.new_empty(2, second.shape[1])
    matches[0].sum()
    indices = torch.empty_like(second)
    values = torch.empty_like(parts(other)[2])
    del matches, hashed, numbers
    begins = aten._convert_indices_from_coo_to_csr(indices[0], one.shape[0], out_int32=False)
    offsets = torch.empty_like(begins)
    del empty
    columns = torch.empty_like(indices[1])
    new = torch.empty_like(values)
    del begins, values, indices, second, first  # in the order of C++
    return compressed_tensor(offsets, columns, new, one.shape, one.layout)


HANDLERS: dict[Any, Callable[..., Any]] = {
    aten.sparse_sampled_addmm.default: _sampled,
    aten.ones_like.default: _ones_like,
    aten.sparse_mask.default: _masked,
}
