"""Products of matrices among meta tensors that the program itself made, to ask for shapes: nothing runs on
the device, and PyTorch's own meta kernels answer, not what stands in for CUDA's here.

They are those of the release that figures are of: until 2.11 a product of batches of matrices asked nothing
of their types, and had that of the second (`torch/_meta_registrations.py`, `common_meta_baddbmm_bmm`, of 2.11
and 2.13; 2.12 is taken to be as 2.13). A program that catches the error would go on with real tensors (Keras,
`compute_output_spec`).
"""

from __future__ import annotations

from typing import Any

import torch

from analyzer.releases import Release, Span

aten = torch.ops.aten
_ANY_TYPES = Span(until=(2, 11))
PRODUCTS = {aten.bmm.default: 0, aten.baddbmm.default: 1}  # and the place of the first matrices


def answer(release: Release, func: Any, args: Any, kwargs: Any) -> Any:
    """Return what an operator returns for the program's own meta tensors under a release of torch."""
    if release in _ANY_TYPES:
        first, second = args[PRODUCTS[func] :][:2]
        if first.dtype is not second.dtype:
            alike = first.to(second.dtype)
            args = (*(t.to(second.dtype) for t in args[: PRODUCTS[func]]), alike, second)
    return func(*args, **kwargs)
