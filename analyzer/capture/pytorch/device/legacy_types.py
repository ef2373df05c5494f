"""`torch.cuda.FloatTensor` and its kin: the types that named a tensor's device and element type together.

1. Called with sizes they make an uninitialised CUDA tensor, with data one that is copied from the host, with
   a tensor an alias of it (`torch/csrc/utils/tensor_new.cpp`, `legacy_tensor_generic_ctor_new`).
2. A tensor is an instance where it lies on the GPU and has the type.
3. `tensor.type(T)` converts to them (`FakeCuda._type`); `torch.set_default_tensor_type(T)` makes them what
   factories and `torch.Tensor(...)` make.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from analyzer.capture.pytorch.patches import replaced

_TYPES = "Float Double Half BFloat16 Int Long Short Char Byte Bool"
NAMES = tuple(f"{name}Tensor" for name in _TYPES.split())


class _LegacyType(type):
    """The type of such types: what is an instance is asked of the tensor."""

    dtype: torch.dtype
    is_cuda = True

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype is cls.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        return _tensor_of_type(cls.dtype, *args, **kwargs)

    def __str__(cls) -> str:
        return f"<class 'torch.cuda.{cls.__name__}'>"

    __repr__ = __str__


def _tensor_of_type(dtype: torch.dtype, *args: Any, size: Any = None, device: Any = None) -> torch.Tensor:
    """Return the tensor that a call of a legacy type (`torch.cuda.FloatTensor(...)`) makes."""
    where = "cuda" if device is None else device
    if size is not None:
        return torch.empty(size, dtype=dtype, device=where)
    if len(args) == 1 and isinstance(args[0], torch.Tensor):
        if not args[0].is_cuda or args[0].dtype is not dtype:
            raise TypeError(f"expected a CUDA tensor of type {dtype}, got one of {args[0].type()}")
        return args[0].alias() if hasattr(args[0], "alias") else args[0].view_as(args[0])
    if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
        return torch.tensor(args[0], dtype=dtype, device=where)
    sizes = args[0] if args and isinstance(args[0], torch.Size) else args or (0,)
    return torch.empty(sizes, dtype=dtype, device=where)


@functools.cache
def legacy_types() -> dict[str, Any]:
    """Name below `torch` -> the type."""
    return {
        f"cuda.{name}": _LegacyType(
            name, (), {"__module__": "torch.cuda", "dtype": getattr(torch, name).dtype}
        )
        for name in NAMES
    }


@contextlib.contextmanager
def default_tensor_type() -> Iterator[Callable[[Any], None]]:
    """Yield the replacement of `torch.set_default_tensor_type`; restore host tensors at the end."""
    make: Any = torch.Tensor.__new__
    on_gpu = False

    def new(*args: Any, **kwargs: Any) -> Any:  # without names: PyTorch's compiler compares them with its own
        if on_gpu and args[0] is torch.Tensor and not kwargs:
            return _tensor_of_type(torch.get_default_dtype(), *args[1:])
        return make(*args, **kwargs)

    def choose(t: Any) -> None:
        nonlocal on_gpu
        name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
        torch.set_default_dtype(getattr(torch, name.rpartition(".")[2]).dtype)
        before, on_gpu = on_gpu, ".cuda." in name
        if on_gpu and not before:
            stack.enter_context(replaced({"torch.Tensor.__new__": staticmethod(new)}))
        if on_gpu or before:
            torch.set_default_device("cuda" if on_gpu else None)

    with contextlib.ExitStack() as stack:
        yield choose
