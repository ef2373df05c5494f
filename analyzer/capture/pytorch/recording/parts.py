"""Tensors that are made of others: a sparse tensor of its indices and values, a wrapper of what it wraps."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

aten = torch.ops.aten
_functorch = torch._C._functorch
BY_ROWS = (torch.sparse_csr, torch.sparse_bsr)
BY_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)
COMPRESSED_LAYOUTS = (*BY_ROWS, *BY_COLUMNS)


def is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse (COO) tensor."""
    return isinstance(value, torch.Tensor) and value.layout is torch.sparse_coo


def is_compressed(value: Any) -> bool:
    """Return whether a value is a CSR, CSC, BSR or BSC tensor."""
    return isinstance(value, torch.Tensor) and value.layout in COMPRESSED_LAYOUTS


def has_parts(value: Any) -> bool:
    """Return whether a value is sparse in any layout: made of indices and values."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is not torch.strided
        and (value.layout is torch.sparse_coo or is_compressed(value))
    )


def coo_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return indices and values of a sparse tensor without copies."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        return aten._indices.default(tensor), aten._values.default(tensor)


def compressed_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compressed and plain indices, and values, of a compressed tensor."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        values = aten.values.default(tensor)
        if tensor.layout in BY_ROWS:
            return aten.crow_indices.default(tensor), aten.col_indices.default(tensor), values
        return aten.ccol_indices.default(tensor), aten.row_indices.default(tensor), values


def untransformed(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that `torch.func`'s transforms have wrapped, level by level; itself outside any."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


# Those of tensors with memory of their own.
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
# Types of wrappers that a program made, by `torch.Tensor._make_wrapper_subclass`.
_wrappers = weakref.WeakSet[type]()


def wraps(kind: type) -> None:
    """Register a wrapper type without memory: its `__torch_dispatch__` runs its operators."""
    if kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:  # type: ignore[attr-defined]
        _wrappers.add(kind)


def unwraps_itself(kind: type) -> bool:
    """Return whether tensors of this type are wrappers that run operators on their parts."""
    return hasattr(kind, "__tensor_flatten__") or kind in _wrappers


def inside(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors that hold a tensor's memory: itself, or those a wrapper is made of (a rank's shard of
    a `DTensor`), or a sparse one's indices and values."""
    tensor = untransformed(tensor)
    if has_parts(tensor):
        yield from coo_parts(tensor) if is_sparse(tensor) else compressed_parts(tensor)
        return
    if type(tensor) in PLAIN or not unwraps_itself(type(tensor)):
        yield tensor
        return
    if hasattr(tensor, "__tensor_flatten__"):
        parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    else:
        parts = list(vars(tensor).values())
    for part in parts:
        if isinstance(part, torch.Tensor) and part is not tensor:
            yield from inside(part)
