"""What an operator returns for tensors like those it has seen is known without asking its meta kernel again.

Many of PyTorch's meta kernels are Python code that takes a millisecond; a program calls them with the same shapes in
every layer and step.

1. The key is the operator and all its arguments: of a tensor its shape, strides, offset and type, of anything else its type
   and value; and the default type.
2. Only calls on meta tensors alone, of operators that change nothing, return no views and whose results' sizes do not
   depend on values, and only results with storages of their own, as large as their shape and strides say.

Not modelled: complex types, whose tensors may be lazily conjugated; these are asked every time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_iter

LARGEST = 1 << 14
_META = torch.device("meta")
_Made: TypeAlias = tuple[torch.Size, tuple[int, ...], torch.dtype]


class MetaCache:
    """Answers for one capture."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[type, tuple[_Made | None, ...]]] = {}

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `func` returns, called or remembered."""
        key = _key((args, tuple(kwargs.items())))
        if key is None:
            return func(*args, **kwargs)
        key = func, torch.get_default_dtype(), key
        try:
            known = self._known.get(key)
        except TypeError:  # an argument that cannot be told from others
            return func(*args, **kwargs)
        if known is not None:
            kind, made = known
            results = [
                None if one is None else torch.empty_strided(one[0], one[1], dtype=one[2], device=_META)
                for one in made
            ]
            return results[0] if kind is torch.Tensor else kind(results)
        out = func(*args, **kwargs)
        seen = _seen(
            out,
            {t.untyped_storage()._cdata for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)},
        )
        if seen is not None:
            if len(self._known) >= LARGEST:
                self._known.clear()
            self._known[key] = seen
        return out


def _key(value: Any) -> Hashable:
    """What decides about a result; None for arguments that are not for this cache."""
    if isinstance(value, torch.Tensor):
        if not value.is_meta or value.is_complex():
            return None
        return value.shape, value.stride(), value.storage_offset(), value.dtype
    if isinstance(value, (tuple, list)):
        parts = tuple([_key(part) for part in value])
        return None if None in parts else (type(value), parts)
    return type(value), value


def _seen(out: Any, inputs: set[int]) -> tuple[type, tuple[_Made | None, ...]] | None:
    """How results are made again; None where that is not known. inputs: the storages of what they were made from."""
    kind = type(out)
    results = (out,) if kind is torch.Tensor else out
    if kind not in (torch.Tensor, tuple, list):
        return None
    made: list[_Made | None] = []
    storages: set[int] = set()
    for one in results:
        if one is None:
            made.append(None)
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
        made.append((one.shape, one.stride(), one.dtype))
    return kind, tuple(made)
