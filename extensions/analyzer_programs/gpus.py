"""The memory of several GPUs in one process: each with an allocator, libraries and a context of its own.

1. A storage is requested of the GPU it lies on, an operator's own memory of the one it runs on.
2. A stream of another GPU is another stream, whatever its number there.
3. What a program tells its allocators (`empty_cache`) is told to all of them, but where it names one.

Repeated steps are not looked for, nor are tokens extrapolated: every one is followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

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
)
from analyzer_programs.live import Live

_ELSEWHERE = 2 * STREAMS  # what is added to the number of another GPU's stream


class LiveGpus:
    """The memories of the GPUs of one process."""

    def __init__(self, lives: Sequence[Live]) -> None:
        self.lives = tuple(lives)
        self._storages: Sequence[Any] = ()
        self._operators: Sequence[Operator] = ()
        # Streams of others that use a GPU's memory.
        self._used: list[set[int]] = [set() for _ in lives]

    def at(self, gpu: int) -> Live:
        """Return the memory of one GPU."""
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
        match moment:
            case Birth(storage, stream):
                gpu = self._storages[storage].gpu
                self._follow(gpu, Birth(storage, _on(gpu, stream)))
            case Death(storage):
                self._follow(self._storages[storage].gpu, moment)
            case Run(operator):
                self._follow(self._operators[operator].gpu, moment)
            case StreamUse(storage, stream):
                gpu = self._storages[storage].gpu
                if stream // STREAMS != gpu:
                    self._used[gpu].add(stream)
                self._follow(gpu, StreamUse(storage, _on(gpu, stream)))
            case StreamWait(None, by, gpu):
                self._follow(gpu, moment)
                for other, streams in enumerate(self._used):
                    for stream in sorted(streams):
                        if stream // STREAMS == gpu:
                            self._follow(other, StreamWait(_on(other, stream), by))
            case StreamWait(stream, by):
                for gpu in range(len(self.lives)):
                    one = None if stream is None else _on(gpu, stream)
                    other = None if by is None else _on(gpu, by)
                    self._follow(gpu, StreamWait(one, other))
            case Mark():
                for gpu in range(len(self.lives)):
                    if moment.gpu in (None, gpu):
                        self._follow(gpu, moment)

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
