"""Where autograd works in place on CUDA, but not for meta tensors or while a dispatch mode is active.

Meta tensors count as "subclass-like" (`ATen/TensorSubclassLikeUtils.h`), which makes the engine and some backward
formulas take out-of-place variants. The capture puts the in-place ones back.

**Fan-in.** `InputBuffer::accumulate` (`torch/csrc/autograd/input_buffer.cpp`) adds in place when the first gradient is a dense,
ordinary tensor and the buffer holds the last reference to it and to its storage:

0. Its work is not recorded for another backward pass (`create_graph`).
1. The engine itself asks for the sum: no Python frame lies between it and the dispatch mode.
2. Reference counts of tensor and storage are those of a tensor that only the buffer holds; what they are as seen from
   inside a dispatch mode is measured once, on a gradient known to be unshared.

**Formulas** (`torch/csrc/autograd/FunctionsManual.cpp`): the backward of indexing, gathering and selecting writes into a
tensor of zeros it has just made; `FORMULAS` lists the functional variants and what they stand for.

Not modelled: a backward formula in C++ that adds two fresh tensors of its own looks the same and is taken for a fan-in.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import torch
from torch.autograd.graph import _engine_run_backward
from torch.utils._python_dispatch import TorchDispatchMode

_ENGINE = _engine_run_backward.__code__
# The way from the engine to here: this file, the recorder's and that of sparse tensors, the wrappers of PyTorch's compiler.
_BETWEEN = frozenset(
    {
        __file__,
        str(Path(__file__).with_name("recorder.py")),
        str(Path(__file__).parents[1] / "kernels" / "sparse.py"),
        str(Path(torch.__file__).parent / "_compile.py"),
        str(Path(torch.__file__).parent / "_dynamo" / "eval_frame.py"),
    }
)


def _counts(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    uses = tensor._use_count() if hasattr(tensor, "_use_count") else 0
    return uses, torch._C._storage_Use_Count(storage._cdata)


def called_by_engine() -> bool:
    """Whether no other Python code lies between the engine and the dispatch mode."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code is _ENGINE


@functools.cache
def _unshared_counts() -> tuple[int, int]:
    """The reference counts of tensor and storage of a gradient that only the engine's buffer holds, measured once."""
    seen: list[tuple[int, int]] = []

    class Probe(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # not wrapped for the compiler: nothing is compiled here

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.add.Tensor and torch._C._current_graph_task_id() >= 0:
                first, _second = args[:2]
                seen.append(_counts(first))
                del first, _second
            return func(*args, **(kwargs or {}))

    x = torch.empty(2, device="meta", requires_grad=True)
    with torch.enable_grad(), Probe():  # type: ignore[no-untyped-call]
        y = x * 1
        (y.sin() + y.cos()).backward(torch.empty(2, device="meta"))
    return seen[-1]


aten = torch.ops.aten
FORMULAS: dict[Any, tuple[Any, tuple[Any, ...]]] = {
    aten.index_put.default: (aten._index_put_impl_.default, (True,)),
    aten.scatter_add.default: (aten.scatter_add_.default, ()),
    aten.scatter.src: (aten.scatter_.src, ()),
    aten.index_add.default: (aten.index_add_.default, ()),
}
# Formulas that write into what they have just made, on CUDA (`binary_cross_entropy_with_logits_backward`): by the node's name.
IN_PLACE: dict[str, dict[Any, Any]] = {
    "BinaryCrossEntropyWithLogitsBackward0": {
        aten.sub.Tensor: aten.sub_.Tensor,
        aten.mul.Tensor: aten.mul_.Tensor,
    },
}


class FanIn:
    """Answers for one capture."""

    def __init__(self) -> None:
        self._unshared = _unshared_counts()

    def on_cuda(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """The call as autograd makes it for CUDA tensors, given the one it made for meta tensors."""
        if func in _IN_PLACE and (in_place := _in_place(func)) is not None:
            return in_place, args
        if func is aten.add.Tensor:
            return (aten.add_.Tensor, args) if self._accumulates_in_place(*args[:2]) else (func, args)
        if func in FORMULAS and called_by_engine():
            in_place, more = FORMULAS[func]
            return in_place, (*args, *more)
        return func, args

    def _accumulates_in_place(self, first: Any, second: Any) -> bool:
        """Whether this `add`, seen from the dispatch mode's handler, is a sum autograd makes in place."""
        if torch.is_grad_enabled():  # a backward pass that is itself differentiated keeps what it adds
            return False
        if not isinstance(second, torch.Tensor) or first.device.type != "meta" or first.shape != second.shape:
            return False
        if not called_by_engine():
            return False
        return _counts(first) == self._unshared and _dense(first)


_IN_PLACE = {func for formula in IN_PLACE.values() for func in formula}


def _in_place(func: Any) -> Any:
    """The operator that a node's formula makes of this one on CUDA; None where it makes none."""
    node: Any = torch._C._current_autograd_node()
    formula = IN_PLACE.get(node.name()) if node is not None else None
    if formula is None or torch.is_grad_enabled() or not called_by_engine():
        return None
    # With weights of the positive class the first product is of what is kept.
    return None if getattr(node, "_saved_pos_weight", None) is not None else formula[func]


def _dense(tensor: torch.Tensor) -> bool:
    """`is_non_overlapping_and_dense`."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
