"""Results of matrix products that PyTorch's meta kernels refuse, or do not refuse though CUDA does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from analyzer.capture.pytorch.kernels.layouts import META

aten = torch.ops.aten
PRODUCTS = tuple(
    product.default
    for product in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.mv, aten.addmv, aten.dot)
)


def same_types(product: Any) -> Callable[..., Any]:
    """A matrix product with CUDA's check (`cuda/Blas.cpp`), which PyTorch's meta kernels leave out."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtypes = {value.dtype for value in args if isinstance(value, torch.Tensor)}
        if len(dtypes) > 1:
            names = " and ".join(sorted(str(dtype)[6:] for dtype in dtypes))
            raise RuntimeError(f"the matrices of {product.name()} must have the same dtype, but got {names}")
        return product(*args, **kwargs)

    return kernel


def of_type(*operands: Any, out: Any = None, beta: Any = 1, alpha: Any = 1) -> Any:
    """A product summed in another type than its matrices' (`out_dtype`, since torch 2.8): contiguous
    (`cuda/Blas.cpp`: `_mm_dtype_out_cuda`, `_addmm_dtype_out_cuda`, `baddbmm_out_dtype_cuda`). The meta
    kernels of torch 2.11 multiply by the type as if it were `beta`."""
    left, right, dtype = operands[-3:]
    if out is not None:
        return out
    return torch.empty((*left.shape[:-1], right.shape[-1]), dtype=dtype, device=META)


RESULTS: dict[Any, Callable[..., Any]] = {product: same_types(product) for product in PRODUCTS}
for _product in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm):
    for _overload in set(_product.overloads()) & {"dtype", "dtype_out"}:
        RESULTS[getattr(_product, _overload)] = of_type
