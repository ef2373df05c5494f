"""Host tensors without memory (`host.py`) in other processes of the program: data loaders' workers, and what
goes over its queues. There every tensor is real.

1. In a process that is forked, a tensor becomes real where a function first gets it. Tensors that shared a
   storage share it there.
2. To a process that is spawned, or over a queue, it goes as how to make it.
3. It is what it was filled with, up to `FILLED_BYTES` in a process; else zeros that nobody has written: pages
   the operating system maps when they are. The notes say so.

Source: `torch/multiprocessing/reductions.py` (`init_reductions`: how a tensor is handed over).
Not modelled: storages that several tensors share are several in a process that is spawned.
"""

from __future__ import annotations

import contextlib
import math
import os
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_iter

if TYPE_CHECKING:
    from analyzer.capture.pytorch.device.host import HostMemory
    from analyzer.capture.pytorch.recording.recorder import Recorder

FILLED_BYTES = 1 << 26
NOTE = (
    "large tensors that the program made on the host have no values in other processes it starts (data"
    " loaders' workers), but for some that are as they were made: zeros there"
)
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_filled_bytes: list[int] = []  # of every tensor in this process


class WorkerTensors:
    """The tensors of one followed program. in_worker: this process was forked from the one that is
    followed."""

    def __init__(self, recorder: Recorder, host: HostMemory) -> None:
        self._recorder, self._host = recorder, host
        self.in_worker = False
        self._storages: dict[int, torch.UntypedStorage] = {}
        own = weakref.ref(self)

        def forked() -> None:
            if (this := own()) is not None:
                this.in_worker = True

        def forks() -> None:
            if (this := own()) is not None and this._recorder.storages.any_in_host_memory():
                this._recorder.note(NOTE)

        os.register_at_fork(after_in_parent=forks, after_in_child=forked)

    def make_real(self, values: Any) -> None:
        """Make real what a function gets in a process that was forked."""
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            for tensor in tree_iter(values):
                if type(tensor) in _PLAIN and self._lacks_memory(tensor):
                    torch._C._swap_tensor_impl(tensor, self._real(tensor))

    def _lacks_memory(self, tensor: torch.Tensor) -> bool:
        storages = self._recorder.storages
        return bool(tensor.is_meta) and storages.in_host_memory(tensor) and not storages.nowhere(tensor)

    def _real(self, tensor: torch.Tensor) -> torch.Tensor:
        own = tensor.untyped_storage()
        storage = self._storages.get(own._cdata)
        if storage is None:
            fill = self._host.filled_with(tensor)
            storage = self._storages[own._cdata] = _memory(own.nbytes(), tensor.dtype, fill)
        return _lying(storage, tensor)

    def _reducing(self, original: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        """Return what hands a tensor to another process."""

        def reduce(tensor: torch.Tensor) -> Any:
            if self.in_worker:
                self.make_real(tensor)
                return original(tensor)
            with torch._C.DisableTorchFunction():
                if not self._lacks_memory(tensor):
                    return original(tensor)
                self._recorder.note(NOTE)
                lies = tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype
                nbytes, needs_grad = tensor.untyped_storage().nbytes(), tensor.requires_grad
                return made, (nbytes, self._host.filled_with(tensor), type(tensor), needs_grad, *lies)

        return reduce

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """While open, tensors are handed to other processes as the module docstring says."""
        reducers = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
        before = {kind: reducers[kind] for kind in _PLAIN if kind in reducers}
        reducers.update({kind: self._reducing(original) for kind, original in before.items()})
        try:
            yield
        finally:
            reducers.update(before)


def made(
    nbytes: int,
    fill: Callable[..., torch.Tensor] | None,
    kind: type,
    needs_grad: bool,
    shape: Any,
    stride: Any,
    offset: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Make, in another process, the tensor that was handed to it."""
    tensor = torch.empty(0, dtype=dtype)
    tensor.set_(_memory(nbytes, dtype, fill), offset, shape, stride)
    return tensor.requires_grad_(needs_grad) if kind is torch.Tensor else kind(tensor, needs_grad)


def _memory(
    nbytes: int, dtype: torch.dtype, fill: Callable[..., torch.Tensor] | None
) -> torch.UntypedStorage:
    """Return real memory, filled while there is room for it."""
    if fill is not None and fill is not torch.zeros and sum(_filled_bytes) + nbytes <= FILLED_BYTES:
        _filled_bytes.append(nbytes)
        return fill(math.ceil(nbytes / dtype.itemsize), dtype=dtype).untyped_storage()
    return torch.from_numpy(numpy.zeros(max(nbytes, 1), dtype=numpy.uint8)).untyped_storage()


def _lying(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    real = torch.empty(0, dtype=like.dtype, device="cpu")
    real.set_(storage, like.storage_offset(), like.shape, like.stride())
    return real.requires_grad_(like.requires_grad)
