"""Where autograd works in place on CUDA, but not for meta tensors or while a dispatch mode is active.

Meta tensors count as "subclass-like" (`ATen/TensorSubclassLikeUtils.h`), which makes the engine and some
backward formulas take out-of-place variants. The capture puts the in-place ones back (the formulas':
`formulas.py`).

`InputBuffer::accumulate` (`torch/csrc/autograd/input_buffer.cpp`) adds in place when the first gradient is a
dense, ordinary tensor and the buffer holds the last reference to it and to its storage:

0. Its work is not recorded for another backward pass (`create_graph`).
1. The engine itself asks for the sum: no Python frame lies between it and the dispatch mode.
2. Reference counts of tensor and storage are those of a tensor that only the buffer holds; what they are as
   seen from inside a dispatch mode is measured once, on a gradient known to be unshared.
3. A tensor that the running node has made itself waits in no buffer, unless two of its gradients go to the
   same place: a formula adds two tensors of its own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.graph import _engine_run_backward
from torch.utils._python_dispatch import TorchDispatchMode

from analyzer.capture.pytorch.recording.formulas import Otherwise, accumulated, in_place, otherwise_of

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.answers import ProgramValues

_ENGINE = _engine_run_backward.__code__
# The way from the engine to here: this file, the recorder's and that of sparse tensors, the wrappers of
# PyTorch's compiler.
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
    """Return whether no other Python code lies between the engine and the dispatch mode."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code is _ENGINE


@functools.cache
def _unshared_counts() -> tuple[int, int]:
    """Measure the reference counts of a gradient (tensor, storage) only the engine's buffer holds."""
    counts: list[tuple[int, int]] = []

    class Probe(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # not wrapped for the compiler: nothing is compiled here

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.add.Tensor and torch._C._current_graph_task_id() >= 0:
                first, _second = args[:2]
                counts.append(_counts(first))
                del first, _second
            return func(*args, **(kwargs or {}))

    x = torch.empty(2, device="meta", requires_grad=True)
    with torch.enable_grad(), Probe():  # type: ignore[no-untyped-call]
        y = x * 1
        (y.sin() + y.cos()).backward(torch.empty(2, device="meta"))
    return counts[-1]


aten = torch.ops.aten


class Formula(NamedTuple):
    """The call CUDA makes instead of the recorded one: `compute` of the arguments; None: no call."""

    func: Any
    compute: Callable[..., torch.Tensor] | None


class FanIn:
    """Answers for one capture."""

    def __init__(self, number_of: Callable[[torch.Tensor], int | None], count: Callable[[], int]) -> None:
        """number_of: number of a tensor's storage in order of creation; count: how many there are."""
        self._unshared = _unshared_counts()
        self._number_of, self._count = number_of, count
        # By the pass, its number and its name: who holds it would keep what it has saved, and numbers are
        # those of the thread that made it (the program's, or that of a first backward pass).
        self._node = (0, 0, "")
        self._first = 0  # of the storages that were made since the node began
        self._previous: Any = None  # what the node has called last
        self._otherwise: Otherwise | None = (
            None  # its formula, where that is another one on CUDA, until it is computed
        )
        self._last = 0  # how often it has called what the formula for meta tensors calls last
        self._begun: tuple[Any, ...] | None = None  # its first product, and of what
        self._results: list[Any] = []  # what has been computed, but not asked for

    def on_cuda(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return the call CUDA makes for one made with meta tensors; `Formula` as the operator: what the node
        computes instead. kwargs: changed where they name another type."""
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return func, args
        key = torch._C._current_graph_task_id(), node._sequence_nr(), node.name()
        if key != self._node:
            self._node, self._first, self._previous = key, self._count(), None
            self._otherwise = otherwise_of(node)
            self._last, self._begun, self._results = 0, None, []
        if self._otherwise is not None and func not in self._otherwise.keeps and called_by_engine():
            return self._instead(self._otherwise, node, func, args), args
        previous, self._previous = self._previous, func
        if kwargs and "dtype" in kwargs:
            kwargs["dtype"] = accumulated(node, kwargs["dtype"])
        if func is aten.add.Tensor and self._accumulates_in_place(node, *args[:2]):
            return aten.add_.Tensor, args
        formula = in_place(func, node, previous, lambda: self._is_own(args[0]))
        if formula is func or not called_by_engine():
            return func, args
        if isinstance(formula, torch._ops.OpOverload):
            return formula, args
        return Formula(func, lambda _, arguments: formula(*arguments)), args

    def _instead(self, otherwise: Otherwise, node: Any, func: Any, args: tuple[Any, ...]) -> Formula:
        """Return the call CUDA makes here where a formula takes another path: nothing, or for the formula's
        last call its whole result."""
        if func in otherwise.begins and self._begun is None:
            self._begun = (func, *args)
        is_last = func is otherwise.last
        self._last += is_last
        if self._last < otherwise.times or (self._results and not is_last):
            return Formula(func, None)
        if self._last == otherwise.times + otherwise.results - 1:
            self._otherwise = None
        return Formula(func, functools.partial(self._result, otherwise, node))

    def _result(
        self, otherwise: Otherwise, node: Any, values: ProgramValues, args: tuple[Any, ...]
    ) -> torch.Tensor:
        """Return a formula's next result; all are computed for the first."""
        if not self._results:
            result = otherwise.formula(node, values, self._begun or args)
            self._results = [*result] if otherwise.results > 1 else [result]
        return self._results.pop(0)  # type: ignore[no-any-return]

    def _accumulates_in_place(self, node: Any, first: Any, second: Any) -> bool:
        """Return whether this `add`, seen from the dispatch mode's handler, is autograd's sum in place."""
        if torch.is_grad_enabled():  # a backward pass that is itself differentiated keeps what it adds
            return False
        if not isinstance(second, torch.Tensor) or first.device.type != "meta" or first.shape != second.shape:
            return False
        if first.layout is not torch.strided:
            return False
        if not called_by_engine() or _counts(first) != self._unshared or not _dense(first):
            return False
        if not self._is_own(first):
            return True
        places = [place for place in node.next_functions if place[0] is not None]
        return len(set(places)) < len(places)

    def _is_own(self, tensor: torch.Tensor) -> bool:
        """Return whether the node under way has made it."""
        number = self._number_of(tensor)
        return number is not None and number >= self._first


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
