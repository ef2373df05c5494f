"""Tensors among an operator's arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors among the values, also in nested lists and tuples."""
    in_order = []
    for value in values:
        if isinstance(value, torch.Tensor):
            in_order.append(value)
        elif isinstance(value, (list, tuple)):
            in_order += tensors(value)
    return in_order
