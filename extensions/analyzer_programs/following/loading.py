"""transformers' checkpoints, which threads read while the program converts what they have read: in which
order both ask for memory.

`from_pretrained` hands every tensor of a checkpoint to a pool of threads, in the order of their names, and
then waits for those of one parameter after the other. Experts that are kept in one tensor are stacked there.
Their order in memory then depends on how far the threads are ahead; so a run of the program here, whose
threads copy nothing, would differ from another run.

1. There are four threads (`GLOBAL_WORKERS` on a machine of so many cores). Each begins the next tensor as
   soon as it has done one, and takes its memory when it begins.
2. A tensor takes as long as it has bytes, and all of them a little more (`_PIECE_BYTES`). The program's own
   thread waits for them: handing them out and stacking them takes no time beside.
3. A thread that has done what the program waits for begins the next tensor before the program goes on.

Each tensor is really made, in that order, by one thread.

Source: transformers 5 `transformers/core_model_loading.py` (`convert_and_load_state_dict_in_model`,
`spawn_materialize`, `materialize_tensors`); CPython `concurrent/futures/thread.py` (`_worker`). So it is in
the histories of seven loadings on an H200 (`moe_*`, `latent_*`, `hybrid_*` of
docs/evidence/CONFIGURATIONS.md): when the last of a layer's experts is awaited, three or four tensors are
begun beyond it. Not modelled, but within `Estimate.reserved_range`: the two or three tensors that begin while
the program stacks, and some twenty at the first stacking, for which CUDA loads a kernel. Not modelled at all:
what threads read while tens of thousands of tensors are handed out.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from analyzer.capture.pytorch.importing import once_imported

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

_MODULE = "transformers.core_model_loading"
_WORKERS = 4
# Time of a thread's own Python for a tensor, in bytes that it would have copied.
_PIECE_BYTES = 1 << 20


@contextlib.contextmanager
def reading_in_order(recorder: Recorder) -> Iterator[None]:
    """While open, transformers' threads follow the order above, from when it is imported on."""
    with contextlib.ExitStack() as stack:

        def imported(module: ModuleType) -> None:
            name = "ThreadPoolExecutor"
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, lambda *_, **__: LoadingPool(recorder))

        with once_imported(_MODULE, imported):
            yield


class LoadedTensor(Future[Any]):
    """A tensor that a thread is to make. It is there when it is asked for."""

    def __init__(self, pool: LoadingPool, number: int, make: Callable[[], Any]) -> None:
        super().__init__()
        self.number = number
        self._pool, self._make = pool, make

    def result(self, timeout: float | None = None) -> Any:
        """Return the tensor, after those the threads begin before it."""
        self._pool.wait_for(self.number)
        return super().result(timeout)

    def made_by(self, thread: Executor) -> int:
        """Make the tensor in the thread and return its bytes."""
        try:
            tensor = thread.submit(self._make).result()
        except Exception as error:
            self.set_exception(error)
            tensor = None
        else:
            self.set_result(tensor)
        return tensor.numel() * tensor.element_size() if isinstance(tensor, torch.Tensor) else 0


class LoadingPool:
    """Replaces the thread pool that transformers loads checkpoints with."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._thread = recorder, ThreadPoolExecutor(1)
        self._thread.submit(setattr, recorder.places.current, "in_order", True).result()
        self._waiting: deque[LoadedTensor] = deque()
        self._count = 0
        self._now = 0
        self._running: dict[int, int] = {}  # the numbers of those that are made now: when each is done
        if recorder.memory is not None:
            recorder.memory.begin_checkpoint_read()

    def submit(self, make: Callable[[], Any]) -> LoadedTensor:
        """Queue another tensor."""
        piece = LoadedTensor(self, self._count, make)
        self._count += 1
        self._waiting.append(piece)
        return piece

    def wait_for(self, number: int) -> None:
        """Begin tensors in the threads' order until this one is done, and those begun then."""
        memory = self._recorder.memory
        if memory is not None:
            memory.await_piece(number)
        self._begin()
        while number in self._running or (self._waiting and self._waiting[0].number <= number):
            self._now, done = min((at, one) for one, at in self._running.items())
            del self._running[done]
            self._begin()

    def _begin(self) -> None:
        """Let idle threads take the next tensors."""
        while self._waiting and len(self._running) < _WORKERS:
            piece, memory = self._waiting.popleft(), self._recorder.memory
            begin = 0 if memory is None else memory.position
            nbytes = piece.made_by(self._thread)
            if memory is not None:
                memory.record_piece(begin)
            self._running[piece.number] = self._now + _PIECE_BYTES + nbytes

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the thread: everything was requested, or the program has given up."""
        del wait, cancel_futures
        self._thread.shutdown()
