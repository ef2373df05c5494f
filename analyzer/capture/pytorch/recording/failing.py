"""Whether an operator that failed while a program was followed fails in PyTorch on a CPU too.

A program that hands an operator shapes or types it does not take fails anywhere; one that fails only here
shows a fault of this tool. So the operator that failed is tried on the CPU, with zeros of the same shapes,
types and strides.

1. Only what it was called with is remembered, no tensor: memory lives as long as the program keeps it.
2. Nothing is tried that would take much memory or time (`_MOST_ELEMENTS`), and nothing that has no kernel on
   a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

_MOST_ELEMENTS = 1 << 24
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class _Like:
    """A tensor without its memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class FailedCall:
    """An operator, and what it was called with when it raised. error: the identity of what it raised, which
    itself would keep the memory of the frames it has gone through. message: the error and its line; "" of one
    for want of memory."""

    error: int
    func: Any
    args: Any
    kwargs: Any
    message: str

    @classmethod
    def of(cls, error: BaseException, func: Any, args: Any, kwargs: Any, line: str) -> FailedCall:
        """Return the call, without its tensors."""
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"
        message = "" if isinstance(error, torch.OutOfMemoryError) else f"{line}: {text}" if line else text
        return cls(id(error), func, tree_map(_described, args), tree_map(_described, kwargs), message)

    def fails_on_a_cpu(self) -> bool | None:
        """Return whether the same call fails there; None: it was not tried."""
        if self.func.namespace != "aten":
            return None  # a library's own, which may have no kernel there
        most = 0

        def made(value: Any) -> Any:
            nonlocal most
            if isinstance(value, torch.device):
                return torch.device("cpu")
            if not isinstance(value, _Like):
                return value
            needed = 1 + sum((n - 1) * step for n, step in zip(value.shape, value.stride, strict=True))
            most = max(most, needed)
            if most > _MOST_ELEMENTS:
                raise _TooLarge
            return torch.zeros(max(needed, 0), dtype=value.dtype).as_strided(value.shape, value.stride)

        try:
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                self.func(*tree_map(made, self.args), **tree_map(made, self.kwargs))
        except (_TooLarge, NotImplementedError):
            return None
        except Exception:
            return True
        return False


class _TooLarge(Exception):
    """A call that is not tried."""


def _described(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    try:
        return _Like(tuple(value.shape), value.stride(), value.dtype)
    except (RuntimeError, NotImplementedError):  # sparse tensors have no strides
        return _Like((), (), value.dtype)
