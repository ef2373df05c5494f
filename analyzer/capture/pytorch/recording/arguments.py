"""Arguments of a call as the recorder sees them: numbers in tensors' place, and device tensors."""

from __future__ import annotations

from typing import Any

import torch

_NUMBERS = (float, int, bool, complex)


def tensors_again(func: Any, args: Any) -> tuple[Any, ...]:
    """Arguments, with tensors where the operator wants them: TorchScript's constants come as plain numbers,
    which few operators take (`should_allow_numbers_as_tensors`, `torch/csrc/utils/python_arg_parser.cpp`)."""
    wanted = (isinstance(argument.type, torch.TensorType) for argument in func._schema.arguments)
    return tuple(
        torch.scalar_tensor(value, dtype=torch.float64 if type(value) is float else None)
        if tensor and type(value) in _NUMBERS
        else value
        for value, tensor in zip(args, wanted, strict=False)
    )


def reaches_device(args: Any, kwargs: Any) -> bool:
    """Return whether a call concerns the device: by a tensor argument or the device it names."""
    for value in args:
        if isinstance(value, torch.Tensor):
            if value.is_meta:
                return True
        elif isinstance(value, (list, tuple)) and any(
            isinstance(part, torch.Tensor) and part.is_meta for part in value
        ):
            return True
    if not kwargs:
        return False
    device = kwargs.get("device")
    return (device is not None and device.type in ("cuda", "meta")) or reaches_device(
        tuple(kwargs.values()), {}
    )
