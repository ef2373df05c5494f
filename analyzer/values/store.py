"""Where an engine keeps what the tensors on its device hold, as far as anyone knows."""

from __future__ import annotations

from typing import Protocol

import torch


class Store(Protocol):
    """Contents of device memory. by_storage: a storage is known in all its bytes or not at all; else byte by
    byte."""

    by_storage: bool

    def key(self, tensor: torch.Tensor) -> int:
        """Identifies the storage of a tensor while it lives."""

    def get(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the value on the CPU: the tensor itself if it lies there; None if it is not all known."""

    def put(self, tensor: torch.Tensor, value: torch.Tensor, stands_in: bool) -> None:
        """Store the tensor's value; stands_in: it is assumed."""

    def drop(self, key: int, nbytes: int) -> None:
        """Mark the contents of a storage of `nbytes` bytes as unknown."""

    def stands_in(self, tensor: torch.Tensor) -> bool:
        """Return whether the stored value is assumed."""
