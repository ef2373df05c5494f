"""`torch.linalg.matrix_rank`: CUDA counts the values above the tolerance into a result that is there
already.

`matrix_rank_impl` makes the sum anew where `isTensorSubclassLike` (`ATen/TensorSubclassLikeUtils.h`), which
is true of meta tensors, and of all while a dispatch mode is active; else it calls `sum_out`.

Source: `aten/src/ATen/native/LinearAlgebra.cpp` (`matrix_rank_impl`, `get_matrix_rank_result_tensor`).

Not modelled: a result the caller gives (`out=`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


class _IntoResult(TorchDispatchMode):
    """While active, the sum is written into the first tensor that was made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._result: Any = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # not wrapped for the compiler: nothing is compiled here

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.sum.dim_IntList:
            return aten.sum.IntList_out(*args, **(kwargs or {}), out=self._result)
        result = func(*args, **(kwargs or {}))
        if self._result is None and func is aten.empty.memory_format:
            self._result = result
        return result


def _counting_in_place(operator: Any) -> Callable[..., Any]:
    def ranked(*args: Any, **kwargs: Any) -> Any:
        with _IntoResult():
            return operator._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)

    return ranked


CHOICES: dict[Any, Callable[..., Any]] = {
    overload: _counting_in_place(overload)
    for overload in (getattr(aten.linalg_matrix_rank, name) for name in aten.linalg_matrix_rank.overloads())
    if not overload._schema.is_mutable
}
