"""The memory of several GPUs in one process: each with an allocator, libraries and a context of its own.

1. A storage is requested of the GPU it lies on, an operator's own memory of the one it runs on.
2. A stream of another GPU is another stream, whatever its number there.
3. A request to the allocators (`empty_cache`) goes to all of them, but where it names one.

4. Autograd has a thread for each GPU, which runs its nodes while the others run theirs
   (`torch/csrc/autograd/engine.cpp`, `Engine::thread_main`). Here one thread runs all. So the moments of a
   backward pass are put in the order of clocks, one a GPU: an operator takes one tick of the thread that runs
   it, and begins when what it reads is there. Its own GPU's thread runs it; a function in Python one thread,
   and a copy that takes a gradient back that of the GPU it comes from.

Repeated steps are not looked for, nor are tokens extrapolated: every one is followed.
Not modelled: operators that take longer than others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.autograd.function import BackwardCFunction

from analyzer.allocators import OutOfMemoryError
from analyzer.capture.pytorch.patches import replaced
from analyzer.graph import (
    STREAMS,
    Birth,
    Death,
    Graph,
    Mark,
    Moment,
    Operator,
    Run,
    StreamUse,
    StreamWait,
    storages_in,
)
from analyzer_programs.live import Live

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

_WAITING = (
    "several gradients go from one GPU to another in a backward pass, which a thread of each runs: how many"
    " wait there at a time only a run decides, and as many more may be allocated"
)
_ELSEWHERE = 2 * STREAMS  # what is added to the number of another GPU's stream


class LiveGpus:
    """The memories of the GPUs of one process."""

    def __init__(self, lives: Sequence[Live]) -> None:
        self.lives = tuple(lives)
        self._storages: Sequence[Any] = ()
        self._operators: Sequence[Operator] = ()
        self.sent = 0  # gradients, to other GPUs, in the pass that runs
        self._function = (0, 0)  # the one autograd is at work on, and whose thread runs it
        # Backward passes that run, moments of theirs with GPU and time, each thread's clock, when storages
        # were last made or read, and the thread at work.
        self.passes = self._thread = 0
        self._waiting: list[tuple[int, int, Moment]] = []
        self._clocks = [0] * len(self.lives)
        self._there: dict[int, int] = {}
        # Streams of others that use a GPU's memory.
        self._used: list[set[int]] = [set() for _ in lives]

    def at(self, gpu: int) -> Live:
        """Return the memory of one GPU."""
        self.settle()
        return self.lives[gpu]

    @property
    def failures(self) -> int:
        """Number of requests that found no memory."""
        return sum(live.failures for live in self.lives)

    @property
    def peaks(self) -> tuple[int, int, int]:
        """Peaks so far of the GPU that holds most."""
        return max((live.peaks for live in self.lives), key=lambda peaks: peaks[1])

    def attach(self, storages: Sequence[Any], operators: Sequence[Operator]) -> None:
        """Follow the program of these, which grow."""
        self._storages, self._operators = storages, operators
        for live in self.lives:
            live.attach(storages, operators)

    def follow(self, moment: Moment) -> None:
        """Simulate what the moment asks for. Raises OutOfMemoryError, with the GPU it is of."""
        if not self.passes:
            for gpu, own in self._of_each(moment):
                self._follow(gpu, own)
            return
        at = self._clocked(moment)
        for gpu, own in self._of_each(moment):
            self._waiting.append((gpu, at, own))

    def _clocked(self, moment: Moment) -> int:
        """Return when a moment of a backward pass happens, by the clock of the thread it belongs to."""
        clocks, there = self._clocks, self._there
        if type(moment) is Run:
            operator = self._operators[moment.operator]
            self._thread = self._thread_of(operator.gpu)
            read = max((there.get(storage, 0) for storage in storages_in(operator)), default=0)
            clocks[self._thread] = max(clocks[self._thread], read) + 1
            for storage in (*storages_in(operator), *(out.storage for out in operator.outputs if out)):
                there[storage] = max(there.get(storage, 0), clocks[self._thread])
        elif type(moment) is Death:
            own: int = clocks[self._storages[moment.storage].gpu]
            return max(own, there.pop(moment.storage, 0))
        return clocks[self._thread]

    def _thread_of(self, gpu: int) -> int:
        """Return the GPU whose thread runs an operator on this one: one runs all of a function in Python."""
        node: Any = torch._C._current_autograd_node()
        if not isinstance(node, BackwardCFunction):
            return gpu
        if self._function[0] != id(node):
            sent_from = getattr(node, "sent_from", None)
            self._function = id(node), gpu if sent_from is None else int(sent_from)
            self.sent += sent_from is not None
        return int(self._function[1])

    def settle(self) -> None:
        """Simulate what the threads of a backward pass have asked for until now."""
        waiting, self._waiting = self._waiting, []
        self._there.clear()
        self._clocks = [0] * len(self.lives)
        ordered = iter(sorted(waiting, key=itemgetter(1)))
        for gpu, _, moment in ordered:
            try:
                self._follow(gpu, moment)
            except OutOfMemoryError:
                for other, _, later in ordered:  # what was made is given back
                    if type(later) is Death:
                        self._follow(other, later)
                raise

    def _of_each(self, moment: Moment) -> Iterator[tuple[int, Moment]]:
        """Yield each GPU that a moment concerns, with the moment as its allocator knows it."""
        match moment:
            case Birth(storage, stream):
                gpu = int(self._storages[storage].gpu)
                yield gpu, Birth(storage, _on(gpu, stream))
            case Death(storage):
                yield self._storages[storage].gpu, moment
            case Run(operator):
                yield self._operators[operator].gpu, moment
            case StreamUse(storage, stream):
                gpu = int(self._storages[storage].gpu)
                if stream // STREAMS != gpu:
                    self._used[gpu].add(stream)
                yield gpu, StreamUse(storage, _on(gpu, stream))
            case StreamWait(None, by, waited):
                yield waited, moment
                for other, streams in enumerate(self._used):
                    for stream in sorted(streams):
                        if stream // STREAMS == waited:
                            yield other, StreamWait(_on(other, stream), by)
            case StreamWait(stream, by):
                for number in range(len(self.lives)):
                    one = None if stream is None else _on(number, stream)
                    yield number, StreamWait(one, None if by is None else _on(number, by))
            case Mark():
                for number in range(len(self.lives)):
                    if moment.gpu in (None, number):
                        yield number, moment

    def _follow(self, gpu: int, moment: Moment) -> None:
        try:
            self.lives[gpu].follow(moment)
        except Exception as error:
            error.gpu = gpu  # type: ignore[attr-defined]
            raise

    def caught_nothing(self) -> None:
        """Note that the last failure ended the program: it was not caught."""
        for live in self.lives:
            live.caught_nothing()

    # -- threads that read a checkpoint

    def begin_checkpoint_read(self) -> None:
        """Threads begin to read a checkpoint."""
        for live in self.lives:
            live.begin_checkpoint_read()

    @property
    def position(self) -> tuple[int, ...]:
        """Number of events so far, by GPU."""
        return tuple(live.position for live in self.lives)

    def record_piece(self, begin: tuple[int, ...]) -> None:
        """Record that the requests since this position made the next tensor of a checkpoint."""
        for live, one in zip(self.lives, begin, strict=True):
            live.record_piece(one)

    def await_piece(self, number: int) -> None:
        """Record that the program waits for this tensor of a checkpoint."""
        for live in self.lives:
            live.await_piece(number)

    def record_watched(self, storages: Iterable[int]) -> None:
        """Record that the watchdog no longer holds these storages."""
        held = list(storages)
        for live in self.lives:
            live.record_watched(held)

    def cut(self, position: Any, names: Mapping[int, int]) -> NoReturn:
        """Raise: nothing is forgotten."""
        raise NotImplementedError("steps of several GPUs are not forgotten")


def _on(gpu: int, stream: int) -> int:
    """Return the number by which a GPU's allocator knows a stream."""
    return stream % STREAMS if stream // STREAMS == gpu else stream + _ELSEWHERE


def graph_of(graph: Graph, gpu: int) -> Graph:
    """Return the graph as one GPU sees it: what lies on another is not on the device."""
    storages = tuple(
        replace(storage, on_device=False) if storage.on_device and storage.gpu != gpu else storage
        for storage in graph.storages
    )
    return replace(graph, storages=storages)


@contextlib.contextmanager
def threads_of_autograd(memory: object, recorder: Recorder) -> Iterator[None]:
    """While open, the memory of several GPUs knows when a backward pass runs, and whose thread is at work."""
    if not isinstance(memory, LiveGpus):
        yield
        return
    run: Any = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        memory.passes += 1
        try:
            return run(*args, **kwargs)
        finally:
            memory.passes -= 1
            if not memory.passes:
                if memory.sent > 1:
                    recorder.note(_WAITING)
                memory.sent = 0
                recorder.storages.simulated(memory.settle)

    with replaced({"torch.autograd._engine_run_backward": run_backward}):
        yield
