"""Different rows of a known tensor (`unique` along a dimension), found for all rows at once.

PyTorch's kernels for the CPU compare row by row with an operator of its own each (`_unique_dim_cpu_template`,
aten/src/ATen/native/Unique.cpp: `at::equal`), which whoever follows every operator sees a million times. Rows
sorted by one column after the other, from the last, are in the order that kernel leaves them in; a row that
differs from the one before it begins a group.
"""

from __future__ import annotations

from typing import Any

import torch

from .calls import places

aten = torch.ops.aten
_CONSECUTIVE = (aten.unique_consecutive.default, aten.unique_dim_consecutive.default)
ALONG_A_DIMENSION = (*_CONSECUTIVE, aten.unique_dim.default)


def distinct(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator on the CPU: one that looks for different rows by what stands here. Raises what it
    raises."""
    if func in ALONG_A_DIMENSION:
        value, at = args[0], places(func)["dim"]
        dim = args[at] if at < len(args) else kwargs.get("dim")
        if dim is not None and value.numel() and not value.is_complex():
            return slices(value, dim, func not in _CONSECUTIVE)
    return func(*args, **kwargs)


def slices(
    value: torch.Tensor, dim: int, everywhere: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the different slices along a dimension, for each slice which one it is, and how many are so.

    everywhere: sorted; else neighbors alone are compared. value: of at least one element.
    """
    moved = value.movedim(dim, 0)
    rows = moved.reshape(moved.shape[0], -1)
    order = torch.arange(rows.shape[0], device=value.device)
    for column in reversed(range(rows.shape[1] if everywhere else 0)):
        order = order[rows[order, column].argsort(stable=True)]
    ordered = rows[order] if everywhere else rows
    begins = torch.ones(ordered.shape[0], dtype=torch.bool, device=value.device)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(1)
    groups = begins.cumsum(0) - 1
    which = torch.empty_like(order)
    which[order] = groups
    kept = ordered[begins].reshape(-1, *moved.shape[1:]).movedim(0, dim)
    return kept, which, groups.bincount()
