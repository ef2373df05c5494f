"""A program's own threads: what they do on the device is followed like what its main thread does.

1. PyTorch's modes hold for one thread. A thread the program starts enters those it is followed by, and one
   operator of all threads is recorded at a time.
2. Which module is running and which stream is current, each thread knows for itself.
3. A thread takes a handle of each library from PyTorch's pool when it first needs one, and gives it back when
   it ends; the next thread takes that one over. So workspaces, which belong to handles, are as many as
   threads that live at once. A thread that ends here, where nothing is computed, before the next is started
   may be at work there still: its handle is taken over only where the main thread ran an operator, or waited
   for a thread, in between. A handle is of one GPU. Of several GPUs the main thread takes over a handle, too,
   and so does the one on which autograd works for a GPU: so replicas of `nn.DataParallel`, whose threads end,
   leave theirs to them.
4. An operation that the analysis cannot follow ends the program, in whichever thread it is. An error of the
   program's own ends the thread it happens in, as in any program.
5. The program is over when all its threads are that are no daemons.

Source: `aten/src/ATen/cuda/detail/DeviceThreadHandles.h` (`DeviceThreadHandlePool`).
Not modelled: in which order threads that run at the same time ask for memory; here as this machine lets them
run, but for those that read a checkpoint (`loading.py`).
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from analyzer.capture.pytorch.patches import replaced
from analyzer.errors import AnalyzerError
from analyzer.graph import Phase

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

# How the names of operators begin that run in cuBLAS, cuDNN or cuSOLVER.
_LIBRARY_NAMES = """
    mm bmm addmm addbmm baddbmm _addmm_activation _int_mm _scaled_mm _grouped_mm mv addmv dot vdot addr
    linalg_ _linalg_ cholesky convolution cudnn_ _cudnn_ _scaled_dot_product_cudnn
"""
_LIBRARIES = tuple(_LIBRARY_NAMES.split())

ORDER = (
    "several threads of the program ask for memory: in which order only a run decides, and what is reserved"
    " may differ by some percent"
)


class Handles:
    """Numbers of the handles threads have: 0 is the main thread's, others are handed on."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []
        self._count = 0

    def take(self, start: int) -> int:
        """Return the handle given back last before a moment, or a new one."""
        for place in reversed(range(len(self._free))):
            if self._free[place][1] < start:
                return self._free.pop(place)[0]
        self._count += 1
        return self._count

    def has_free(self, start: int) -> bool:
        """Return whether one was given back before a moment."""
        return any(moment < start for _, moment in self._free)

    def give(self, number: int, moment: int) -> None:
        """Return the handle number of a thread that ended at this moment."""
        self._free.append((number, moment))


class Threads:
    """The threads a program has started."""

    def __init__(
        self, recorder: Recorder, modes: Callable[[], contextlib.AbstractContextManager[Any]]
    ) -> None:
        self._recorder, self._modes = recorder, modes
        self._started: list[threading.Thread] = []
        self._handles: defaultdict[int, Handles] = defaultdict(Handles)  # by GPU
        # Counts what orders threads: operators of the main thread's, and waits for a thread.
        self._moment = 0
        self._autograd: dict[int, int] = {}  # handles of autograd's threads by GPU
        self._follower = threading.get_ident()
        self._users: defaultdict[int, set[int | None]] = defaultdict(set)  # live threads that used a GPU
        self._ended_by: BaseException | None = None
        self._variables: object = None
        recorder.handle = self.handle

    @contextlib.contextmanager
    def open(self) -> Iterator[Threads]:
        """While open, threads that are started are followed."""
        start, join = threading.Thread.start, threading.Thread.join

        def started(thread: threading.Thread) -> None:
            run, moment = thread.run, self._moment
            thread.run = lambda: self._followed(thread, run, moment)  # type: ignore[method-assign]
            self._started.append(thread)
            self._recorder.several_threads = True
            start(thread)

        def joined(thread: threading.Thread, timeout: float | None = None) -> None:
            join(thread, timeout)
            self._moment += 1

        with replaced({"threading.Thread.start": started, "threading.Thread.join": joined}):
            yield self

    def finish(self, run: Callable[[], object]) -> None:
        """Run the program to its end, its variables alive as long as this object. Raises what ended it, also
        where that happened in one of its threads."""
        try:
            self._variables = run()
            for thread in self._started:
                if not thread.daemon:
                    thread.join()
        except KeyboardInterrupt:
            if self._ended_by is None:
                raise
            raise self._ended_by from None

    def _followed(self, thread: threading.Thread, run: Callable[[], None], moment: int) -> None:
        """Run a thread's own function under the capture's modes; the main thread gets its error.

        moment: of its start."""
        del thread.run  # the class's own again, and no circle
        place = self._recorder.places.current
        place.start = moment
        try:
            with self._modes():
                run()
        except SystemExit:
            raise
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, (AnalyzerError, NotImplementedError)):
                raise
            self._ended_by = self._ended_by or error
            self._interrupt()
        finally:
            for users in self._users.values():
                users.discard(threading.get_ident())
            for gpu, handle in place.handles.items():
                if handle:
                    self._handles[gpu].give(handle, self._moment)

    def _interrupt(self) -> None:
        """Wake the main thread, which may wait for this one, after an error."""
        if self._follower == threading.main_thread().ident and hasattr(signal, "pthread_kill"):
            signal.pthread_kill(self._follower, signal.SIGINT)

    def handle(self, operator: str) -> int:
        """Return this thread's handle number; it takes one if the operator needs one."""
        place, thread = self._recorder.places.current, threading.get_ident()
        gpu = self._recorder.gpus.making() if self._recorder.gpus.several else 0
        if thread == self._follower:
            self._moment += 1
        elif not place.in_order and self._is_shared(gpu, thread):
            self._recorder.note(ORDER)
        if self._recorder.gpus.several and self._recorder.places.phase is Phase.BACKWARD:
            return self._of_autograd(operator, gpu)
        handle = place.handles.get(gpu)
        if handle is None:
            if not operator.partition("::")[2].startswith(_LIBRARIES):
                return 0
            is_main = thread == self._follower
            handle = self._left(gpu) if is_main else self._handles[gpu].take(place.start)
            place.handles[gpu] = handle
        return 0 if self._recorder.places.phase is Phase.BACKWARD else handle

    def _of_autograd(self, operator: str, gpu: int) -> int:
        """Return the handle number of a GPU's autograd thread; 0: one of its own."""
        if gpu not in self._autograd and operator.partition("::")[2].startswith(_LIBRARIES):
            self._autograd[gpu] = self._left(gpu)
        return self._autograd.get(gpu, 0)

    def _left(self, gpu: int) -> int:
        """Return the number of a handle that a thread gave back; 0: a new one. Of one GPU it is new."""
        handles = self._handles[gpu]
        is_free = self._recorder.gpus.several and handles.has_free(self._moment)
        return handles.take(self._moment) if is_free else 0

    def _is_shared(self, gpu: int, thread: int) -> bool:
        """Return whether several threads that live at the same time ask a GPU for memory."""
        if not self._recorder.gpus.several:
            return True
        self._users[gpu].add(thread)
        return len(self._users[gpu]) > 1
