"""Indices as an older PyTorch takes them: which slices of a tuple are operators, and so have a gradient of
their own.

Until torch 2.8 a slice is passed over where it ends at the dimension's size; one that ends nowhere (`x[:,
0]`) or behind it is an operator, whose gradient is another tensor as large as what was sliced. Later ones
pass over both.

Source: `applySlice`, `ATen/TensorIndexing.h` of torch 2.8 (`length.sym_eq(stop)`) and 2.9
(`length.sym_le(stop)`). Not modelled: lists of truth values that stand for several dimensions, in front of
such a slice.
"""

from __future__ import annotations

from typing import Any

import torch

from analyzer.releases import Span

SLICES_WHOLE = Span(until=(2, 8))
_BELOW = -(1 << 62)  # before the first element of any dimension


def sliced_whole(tensor: torch.Tensor, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the index under which a newer PyTorch runs the slices an older one would."""
    counts = [_dimensions(part) for part in index]
    rest = tensor.dim() - sum(counts)
    slices, dimension = list(index), 0
    for at, part in enumerate(index):
        if isinstance(part, slice) and dimension < tensor.dim():
            begins = part.start in (None, 0) and part.step in (None, 1)
            size = tensor.shape[dimension]
            if begins and (part.stop is None or (type(part.stop) is int and part.stop > size)):
                slices[at] = slice(_BELOW, part.stop, part.step)
        dimension += rest if part is ... else counts[at]
    return tuple(slices)


def _dimensions(part: Any) -> int:
    """Return how many dimensions of the tensor a part of an index consumes."""
    if part is None or part is ... or isinstance(part, bool):
        return 0
    masks = isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8)
    return part.dim() if masks else 1
