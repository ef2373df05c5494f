"""Tensors among an operator's arguments, and how they lie."""

from __future__ import annotations

from typing import Any

import torch


def extent(tensor: torch.Tensor) -> int:
    """Bytes from the tensor's first element to behind its last."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def is_number(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def tensors(args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    found = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(item for item in value if isinstance(item, torch.Tensor))
    return found


def on_host(value: Any, known: dict[int, torch.Tensor]) -> Any:
    """An argument with the tensors that are known, by identity, in the place of the device's. (No function in
    a function, which would be a cycle that keeps them.)"""
    if isinstance(value, torch.Tensor):
        return known.get(id(value), value)
    if type(value) in (list, tuple):
        return type(value)(on_host(item, known) for item in value)
    return torch.device("cpu") if isinstance(value, torch.device) else value


def rows(target: torch.Tensor, mask: torch.Tensor, values: torch.Tensor) -> int | None:
    """How many of a mask are true through which rows are written; None where one is written to all."""
    one_a_row = values.dim() == target.dim() - mask.dim() + 1 and values.shape[0] != 1
    return values.shape[0] if one_a_row else None
