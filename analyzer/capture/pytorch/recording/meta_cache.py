"""A cache of operators' results: tensors like earlier ones need no further call of the meta kernel.

Many of PyTorch's meta kernels are Python code that takes a millisecond; a program calls them with the same
shapes in every layer and step.

1. The key is the operator and all its arguments: of a tensor its shape, strides, offset and type, of anything
   else its type and value; the default type, and whether cuDNN is switched on.
2. Only calls on meta tensors alone, of operators that change nothing, return no views and whose results'
   sizes do not depend on values, and only results with storages of their own, as large as their shape and
   strides say.
3. A call that writes to one tensor and returns it, without another form, has the same answer where all is the
   same: that tensor. Only where nothing else that it is given lies in the same storage.

Not modelled: complex types, whose tensors may be lazily conjugated; these are asked every time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_iter

LARGEST = 1 << 14
_META = torch.device("meta")
_Made: TypeAlias = tuple[torch.Size, tuple[int, ...], torch.dtype]


class _ASKED:
    """Marks an entry whose result is not cached: the meta kernel is called every time."""


class MetaCache:
    """Answers for one capture."""

    def __init__(self) -> None:
        # By the operator's identity, which is cheaper than its hash, and the rest; the operator stays alive.
        self._answers: dict[Hashable, tuple[Any, type, tuple[_Made | None, ...]]] = {}
        self._writes: dict[Hashable, Any] = {}  # calls that only write to a tensor, and their operator

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of `func`, from the cache if possible."""
        parts: list[Any] = [id(func), torch.get_default_dtype(), torch._C._get_cudnn_enabled()]
        if not _tell(args, parts) or (kwargs and not _tell(tuple(kwargs.items()), parts)):
            return func(*args, **kwargs)
        key = tuple(parts)
        try:
            result = self._answers.get(key)
        except TypeError:  # an argument that cannot be told from others
            return func(*args, **kwargs)
        if result is not None:
            _, kind, outputs = result
            if kind is _ASKED:
                return func(*args, **kwargs)
            if kind is torch.Tensor:
                shape, stride, dtype = outputs[0]  # type: ignore[misc]
                return torch.empty_strided(shape, stride, dtype=dtype, device=_META)
            results = [
                None if one is None else torch.empty_strided(one[0], one[1], dtype=one[2], device=_META)
                for one in outputs
            ]
            return kind(results)
        out = func(*args, **kwargs)
        recipe = _recipe(
            out,
            {t.untyped_storage()._cdata for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)},
        )
        if len(self._answers) >= LARGEST:
            self._answers.clear()
        self._answers[key] = func, *(recipe or (_ASKED, ()))
        return out

    def write(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[torch.Tensor]
    ) -> Any:
        """Return the result of `func`, which writes to these and returns one of them, from the cache if
        possible."""
        parts: list[Any] = [id(func), torch.get_default_dtype()]
        if len(written) != 1 or not _tell(args, parts) or (kwargs and not _tell(kwargs.items(), parts)):
            return func(*args, **kwargs)
        target, key = written[0], tuple(parts)
        storage = target.untyped_storage()
        if any(
            value is not target and value.untyped_storage()._cdata == storage._cdata
            for value in tree_iter((args, kwargs))
            if isinstance(value, torch.Tensor)
        ):
            return func(*args, **kwargs)
        try:
            if key in self._writes:
                return target
        except TypeError:
            return func(*args, **kwargs)
        before = _form(target)
        out = func(*args, **kwargs)
        if out is target and _form(target) == before:
            if len(self._writes) >= LARGEST:
                self._writes.clear()
            self._writes[key] = func
        return out


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what an operator may change of a tensor besides its values."""
    nbytes = tensor.untyped_storage().nbytes()
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, nbytes


def _tell(values: Iterable[Any], parts: list[Any]) -> bool:
    """Add what decides about a result to `parts`; False for arguments that are not for this cache."""
    for value in values:
        kind = type(value)
        if isinstance(value, torch.Tensor):
            dtype = value.dtype
            if not value.is_meta or dtype.is_complex:
                return False
            parts += (value.shape, value.stride(), value.storage_offset(), dtype)
        elif kind is tuple or kind is list or isinstance(value, (tuple, list)):
            parts.append(kind)
            parts.append(len(value))
            if not _tell(value, parts):
                return False
        else:
            parts.append(kind)
            parts.append(value)
    return True


def _recipe(out: Any, inputs: set[int]) -> tuple[type, tuple[_Made | None, ...]] | None:
    """Return how to make the results again, None if not known. inputs: storages of the arguments."""
    kind = type(out)
    results = (out,) if kind is torch.Tensor else out
    if kind not in (torch.Tensor, tuple, list):
        return None
    outputs: list[_Made | None] = []
    storages: set[int] = set()
    for one in results:
        if one is None:
            outputs.append(None)
            continue
        if type(one) is not torch.Tensor or not one.is_meta or one.is_complex() or one.storage_offset():
            return None
        storage = one.untyped_storage()
        if storage._cdata in inputs or storage._cdata in storages:
            return None
        storages.add(storage._cdata)
        last = sum((size - 1) * stride for size, stride in zip(one.shape, one.stride(), strict=True))
        if storage.nbytes() != ((last + 1) * one.element_size() if one.numel() else 0):
            return None
        outputs.append((one.shape, one.stride(), one.dtype))
    return kind, tuple(outputs)
