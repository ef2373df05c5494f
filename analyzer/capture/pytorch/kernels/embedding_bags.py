"""The sparse gradient of a bag of embeddings, which its backward operator makes where an argument says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
_MEAN = 1  # modes of embedding bags: sum, mean, max


def embedding_bag_backward(
    grad: Any, indices: Any, offsets: Any, offset2bag: Any, bag_size: Any, most: Any, count: int,
    by_frequency: bool,
    mode: int, sparse: bool, weights: Any, padding: int = -1,
) -> Any:  # fmt: skip
    """`EmbeddingBag.cpp`: a sparse gradient has a row of the gradient for every index."""
    if not sparse:
        return aten._embedding_bag_dense_backward(
            grad, indices, offset2bag, bag_size, most, count, by_frequency, mode, weights, padding
        )
    rows = grad.index_select(0, offset2bag)
    if mode == _MEAN:
        sizes = bag_size.to(rows.dtype)
        shares = sizes.reciprocal()
        rows *= shares.unsqueeze(1).index_select(0, offset2bag)
        del sizes, shares
    if weights is not None:
        rows.mul_(weights.unsqueeze(1))
    return aten.embedding_backward(rows, indices, count, padding, by_frequency, True)


# Operators that say in an argument that their result is to be sparse.
CHOICES: dict[Any, Callable[..., Any]] = {aten._embedding_bag_backward.default: embedding_bag_backward}
