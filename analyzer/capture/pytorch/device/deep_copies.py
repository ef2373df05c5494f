"""`copy.deepcopy` of a CUDA tensor: a copy of its whole storage, whatever part of it the tensor sees, once
for all tensors that share it.

`Tensor.__deepcopy__` copies the storage, makes an empty tensor of no dimensions, and gives it the copy: 512
bytes are held for a moment. Of a meta tensor it would clone what the tensor sees. Source: `torch/_tensor.py`;
parameters have a way of their own (`torch/nn/parameter.py`: they are cloned).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

_COPIES = "analyzer.deep_copies"  # in what is remembered of one deep copy: storage -> a copy of all of it


def deep_copy(
    on_gpu: Callable[[torch.Tensor], bool],
) -> Callable[[torch.Tensor, dict[Any, Any]], torch.Tensor]:
    """Return what takes the place of `Tensor.__deepcopy__`."""

    def copied(tensor: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
        if not _is_plain(tensor) or not on_gpu(tensor):
            return tensor.__deepcopy__(memo)  # type: ignore[no-any-return]
        if id(tensor) in memo:
            return memo[id(tensor)]  # type: ignore[no-any-return]
        with torch.no_grad():
            storage = _whole(tensor, memo.setdefault(_COPIES, {}))
            tensor.new_empty([])
            view = _part(storage, tensor)
        view.requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            view.grad = copied(tensor.grad, memo)
        vars(view).update(copy.deepcopy(vars(tensor), memo))
        memo[id(tensor)] = view
        return view

    return copied


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether it is what is told above: everything else is copied as PyTorch copies meta tensors."""
    return (
        type(tensor) is torch.Tensor
        and tensor.is_meta
        and tensor.layout is torch.strided
        and tensor.is_leaf
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _part(storage: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of this storage that is no view of another one (`set_`): once it is given other data
    (`copied.data = ...`), nothing keeps the storage."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        part = torch.empty(0, dtype=tensor.dtype, device="meta")
        return part.set_(storage.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def _whole(tensor: torch.Tensor, copies: dict[tuple[int, torch.dtype], torch.Tensor]) -> torch.Tensor:
    """Return a copy of the tensor's storage, seen as a tensor from its first element on."""
    storage = tensor.untyped_storage()
    key = storage._cdata, tensor.dtype
    if key not in copies:
        count = storage.nbytes() // tensor.element_size()
        flat = tensor if tensor.numel() == count else tensor.as_strided((count,), (1,), 0)
        copies[key] = flat.clone()
    return copies[key]
