"""A model's structure without its memory: every parameter and buffer becomes a meta tensor like it.

The original is neither changed nor run, its weights are not copied.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

from analyzer.errors import CaptureError, InputError
from analyzer.spec import TensorSpec


def meta_like(spec: torch.Tensor | TensorSpec) -> torch.Tensor:
    """Return a meta tensor of the same shape, strides and dtype."""
    if isinstance(spec, TensorSpec):
        dtype = getattr(torch, spec.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise InputError(
                f"unknown element type {spec.dtype!r}", "float32, float16, bfloat16, int64, bool, ..."
            )
        try:
            if spec.stride is not None:
                return torch.empty_strided(spec.shape, spec.stride, dtype=dtype, device="meta")
            return torch.empty(spec.shape, dtype=dtype, device="meta")
        except (RuntimeError, TypeError):  # torch counts bytes in 63 bits
            raise InputError(
                f"no tensor of torch can be {list(spec.shape)} of {spec.dtype}",
                "give a smaller shape or batch",
            ) from None
    return torch.empty_strided(spec.shape, spec.stride(), dtype=spec.dtype, device="meta")


def structural_copy(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module with meta tensors for parameters and buffers. Tensors that share a storage share one
    in the copy; small host buffers keep their values.

    Results of autograd that a module keeps (`torch.nn.utils.weight_norm` does) become meta tensors too:
    deepcopy refuses them. Raises CaptureError when a part of the module cannot be copied.
    """
    storages: dict[int, torch.UntypedStorage] = {}

    def twin(tensor: torch.Tensor) -> torch.Tensor:
        old = tensor.untyped_storage()
        if old._cdata not in storages:
            storages[old._cdata] = torch.UntypedStorage(old.nbytes(), device="meta")
        new = torch.empty(0, dtype=tensor.dtype, device="meta")
        return new.set_(storages[old._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())

    memo: dict[int, Any] = {}
    for path, part in module.named_modules():
        for name, parameter in part._parameters.items():
            if torch.nn.parameter.is_lazy(parameter):
                raise CaptureError(
                    f"{name!r} of {type(part).__name__}{f' {path}' if path else ''} has no shape yet",
                    "run the lazy module on a dummy batch first, which gives its parameters their shapes",
                )
            if parameter is not None and id(parameter) not in memo:
                with torch.no_grad():
                    memo[id(parameter)] = torch.nn.Parameter(
                        twin(parameter), requires_grad=parameter.requires_grad
                    )
        for buffer in part._buffers.values():
            if buffer is not None and id(buffer) not in memo:
                keep = (
                    buffer.device.type == "cpu"
                    and not buffer.is_floating_point()
                    and buffer.numel() <= 1 << 16
                )
                memo[id(buffer)] = buffer.detach().clone() if keep else twin(buffer)
        for kept in vars(part).values():
            if isinstance(kept, torch.Tensor) and not kept.is_leaf:
                memo[id(kept)] = twin(kept)
    try:
        with warnings.catch_warnings():
            # torch's own, about the tree specs in an exported program.
            warnings.simplefilter("ignore", FutureWarning)
            return copy.deepcopy(module, memo)
    except Exception as error:
        raise CaptureError(
            f"{type(module).__name__} cannot be copied: {type(error).__name__}: {error}",
            "keep locks, open files, generators and graph tensors out of the module's attributes",
        ) from error
