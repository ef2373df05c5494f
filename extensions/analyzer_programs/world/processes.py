"""Processes a program starts by itself, one for each rank.

1. `torch.multiprocessing.spawn` and `start_processes` call the function of the rank that is followed, here.
2. So does a `Process` of the program's own whose function is told a rank first (`Process(target=main,
   args=(rank, ...))`), where the program is followed as one of several ranks and has not joined the others
   itself: that of this rank runs while it is started, those of others are over at once.
3. Any other process the program starts with a function of its own runs for real and is not followed: noted.
   Data loaders' workers are no such processes. Where it asks for the GPU, which it has not, the program ends
   with that reason, whatever it waits for.

Source: `torch/multiprocessing/spawn.py`; `multiprocessing/process.py`; a fork's refusal is
`torch.cuda._lazy_init`'s.
"""

from __future__ import annotations

import multiprocessing.process
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from analyzer.errors import CaptureError
from analyzer.graph import Birth, Moment, Run

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder
    from analyzer.capture.pytorch.recording.storages import Storages
    from analyzer.ranks import Rank


class _Over:
    """A process object that has ended successfully, for `multiprocessing`."""

    returncode = 0
    sentinel = -1

    def __init__(self) -> None:
        self.pid = os.getpid()

    def poll(self, *_: Any) -> int:
        """Return exit code 0."""
        return 0

    wait = poll

    def terminate(self) -> None:
        """Do nothing: the process has ended."""

    kill = close = terminate


class _Joined:
    """`ProcessContext` of processes that are over."""

    processes: tuple[Any, ...] = ()

    def join(self, *_: Any, **__: Any) -> bool:
        """Return True: all processes have ended."""
        return True

    def pids(self) -> list[int]:
        """Return no process ids."""
        return []


_REFUSED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the"
    " 'spawn' start method"
)


class _Tells:
    """The function of a process that is not followed, which tells through `connection` when it asks for the
    GPU. recorder: of the pretended device, which a fork has with it, and a process that is spawned has
    not."""

    def __init__(
        self, function: Callable[..., Any], connection: Connection, recorder: Recorder | None = None
    ) -> None:
        self.function, self.connection, self.recorder = function, connection, recorder

    def __reduce__(self) -> tuple[Any, ...]:
        return _Tells, (self.function, self.connection)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it in the new process."""
        if self.recorder is None:
            torch.cuda._lazy_init = self._refuse
        else:
            self._refuse_use(self.recorder.storages)
        return self.function(*args, **kwargs)

    def _refuse(self) -> None:
        """Report that the process used the GPU and raise an error in it."""
        self.connection.send("asked")
        raise RuntimeError(
            "processes of the program's own have no GPU here" if self.recorder is None else _REFUSED
        )

    def _refuse_use(self, storages: Storages) -> None:
        happened = storages.happened

        def happens(moment: Moment) -> None:
            if isinstance(moment, Run) or (
                isinstance(moment, Birth) and storages.all[moment.storage].on_device
            ):
                self._refuse()
            happened(moment)

        storages.happened = happens  # type: ignore[method-assign]


def _start_watched(start: Callable[[Any], None], process: Any, recorder: Recorder, place: str) -> None:
    """Start a process that is not followed; its use of the GPU is a CaptureError of the program."""
    name = process._target.__code__.co_name
    receiver, sender = Pipe(duplex=False)

    def ended(*_: Any) -> None:
        raise CaptureError(
            f"{place} starts a process of its own ({name}), which asks for the GPU: only the program's first"
            " process is followed",
            "follow what it does in a script of its own; ranks are followed with --nproc-per-node",
        )

    def listen() -> None:
        try:
            receiver.recv()
        except EOFError:
            return
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR2, ended)
        threading.Thread(target=listen, daemon=True).start()
    process._target = _Tells(process._target, sender, recorder)
    start(process)
    sender.close()


def processes(rank: Rank, recorder: Recorder, enough: Callable[[int, str, str], None]) -> dict[str, Any]:
    """Return the replacements of functions that start processes, for one followed rank.

    enough: raises where the program wants more ranks than there are (how many, what wants them, how they
    come).
    """
    start, followed_here = multiprocessing.process.BaseProcess.start, os.getpid()

    def spawn(
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        *_: Any,
        **__: Any,
    ) -> _Joined | None:
        enough(nprocs, f"the program spawns {nprocs} processes", "followed")
        fn(rank.rank, *args)
        return None if join else _Joined()

    def started(process: Any) -> None:
        code = getattr(process._target, "__code__", None)
        if os.getpid() != followed_here or code is None or recorder.places.is_library(code.co_filename):
            start(process)
            return
        number = process._args[0] if process._args else None
        several = rank.world_size > 1 and not dist.is_initialized()
        if several and type(number) is int and 0 <= number < rank.world_size:
            process._popen = _Over()
            if number == rank.rank:
                process.run()
            return
        place = recorder.places.line() or "the program"
        recorder.note(
            f"{place} starts a process of its own ({code.co_name}), which is not followed: what it takes of a"
            " GPU is not counted"
        )
        _start_watched(start, process, recorder, place)

    return {
        "torch.multiprocessing.spawn": spawn,
        "torch.multiprocessing.start_processes": spawn,
        "multiprocessing.process.BaseProcess.start": started,
    }
