"""Processes a program starts by itself, one for each rank.

1. `torch.multiprocessing.spawn` and `start_processes` call the function of the rank that is followed, here.
2. So does a `Process` of the program's own whose function is told a rank first (`Process(target=main, args=(rank, ...))`),
   where the program is followed as one of several ranks and has not joined the others itself: that of this rank runs
   while it is started, those of others are over at once.
3. Any other process the program starts with a function of its own runs for real and is not followed: noted. Data loaders'
   workers are no such processes.

Source: `torch/multiprocessing/spawn.py`; `multiprocessing/process.py`.
"""

from __future__ import annotations

import multiprocessing.process
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder
    from analyzer.ranks import Rank


class _Over:
    """What `multiprocessing` asks of a process that has ended well."""

    returncode = 0
    sentinel = -1

    def __init__(self) -> None:
        self.pid = os.getpid()

    def poll(self, *_: Any) -> int:
        """How it ended."""
        return 0

    wait = poll

    def terminate(self) -> None:
        """It is over."""

    kill = close = terminate


class _Joined:
    """`ProcessContext` of processes that are over."""

    processes: tuple[Any, ...] = ()

    def join(self, *_: Any, **__: Any) -> bool:
        """All have ended."""
        return True

    def pids(self) -> list[int]:
        """Their numbers."""
        return []


def processes(rank: Rank, recorder: Recorder, enough: Callable[[int, str, str], None]) -> dict[str, Any]:
    """Names of functions that start processes -> what they do where one rank is followed.

    enough: raises where the program wants more ranks than there are (how many, what wants them, how they come).
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
        recorder.note(
            f"{recorder.places.line() or 'the program'} starts a process of its own ({code.co_name}), which is not followed: what it "
            "takes of a GPU is not counted"
        )
        start(process)

    return {
        "torch.multiprocessing.spawn": spawn,
        "torch.multiprocessing.start_processes": spawn,
        "multiprocessing.process.BaseProcess.start": started,
    }
