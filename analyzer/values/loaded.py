"""Large copies of host tensors of integers and truth values, whose values are kept aside until they matter.

They are not followed as others are: what a program loads is seldom asked for its values (`budget.py`). Of
some it turns out later that they decide sizes: an index of edges that becomes a sparse tensor's, a mask by
which a sparse tensor's numbers are multiplied.
"""

from __future__ import annotations

import torch

from .budget import LARGE_BYTES

_MOST_BYTES = 4 * LARGE_BYTES  # kept at a time


class Loaded:
    """values: by the keys of storages on the device."""

    def __init__(self) -> None:
        self.values: dict[int, torch.Tensor] = {}
        self._room_bytes = _MOST_BYTES

    def keep(self, key: int, host: torch.Tensor, copy: torch.Tensor) -> None:
        """Keep the value of a whole storage that is a copy of a host tensor, if there is room."""
        nbytes = copy.numel() * copy.element_size()
        whole = copy.is_contiguous() and nbytes == copy.untyped_storage().nbytes()
        plain = not copy.is_floating_point() and not copy.is_complex() and host.layout is torch.strided
        if whole and plain and host.dtype is copy.dtype and nbytes <= min(LARGE_BYTES, self._room_bytes):
            self.forget(key)
            self.values[key] = host.clone(memory_format=torch.contiguous_format)
            self._room_bytes -= nbytes

    def of(self, key: int, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return what was kept of a tensor that is the whole storage, and keep it no longer."""
        value = self.values.get(key)
        if value is None or value.shape != tensor.shape or not tensor.is_contiguous():
            return None
        self.forget(key)
        return value

    def forget(self, key: int) -> None:
        """Forget a storage."""
        value = self.values.pop(key, None)
        if value is not None:
            self._room_bytes += value.numel() * value.element_size()
