"""Ranks of a job followed beside one another, each in a process of its own, and what they tell each other by
value.

1. A rank that waits for a value of another rank (a pipeline's stages exchange shapes) has it followed beside:
   a rank is started when somebody first waits for it, and ended with whom it was started for.
2. A message waits until it is asked for, and may be asked for again; who says nothing of it is waited for
   until its program ends.
3. Where everybody waits, nobody will ever say anything: whoever waits is told so, with the lines where the
   others wait.

A rank's process is `python -m analyzer_programs.peer`, which speaks through an inherited socket: first it is
told what to follow, then it sends ("say", channel, value), ("ask", rank, channel, line) and in the end
("done", estimate) or ("failed", message); an ask is answered by ("value", value) or ("never", why).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import TracebackType
from typing import Self

from analyzer import child
from analyzer.errors import CaptureError
from analyzer.options import Options
from analyzer.ranks import Rank
from analyzer.results.estimate import Estimate

# How many ranks are asked for what any rank may have written: those of a machine.
_TRIED = 8


@dataclass(frozen=True, slots=True)
class Work:
    """A rank's program; other fields than `rank` are those of `analyzer_programs/program.py:follow`."""

    script: str
    args: tuple[str, ...]
    options: Options
    environment: Mapping[str, str]
    until: str | int
    rank: Rank


@dataclass(frozen=True, slots=True)
class AwaitedValue:
    """A rank waits at a line for a value that `source` says (None: anybody)."""

    source: int | None
    channel: str
    where: str


@dataclass(slots=True)
class _Peer:
    """A rank in a process of its own; `awaited` while it waits, `ended` says how it ended."""

    process: subprocess.Popen[bytes]
    connection: Connection
    awaited: AwaitedValue | None = None
    ended: str = ""


class Peers:
    """The post office of a job, a `Post` for the rank that is followed in this process (`work.rank`).

    quiet: what other ranks print is thrown away; otherwise it goes to stderr.
    """

    def __init__(self, work: Work, quiet: bool = True) -> None:
        self._work, self._quiet = work, quiet
        # As it is before the program changes them.
        self._environment, self._path, self._folder = os.environ.copy(), list(sys.path), Path.cwd()
        self._mail: dict[str, bytes | None] = {}
        self._peers: dict[int, _Peer] = {}
        self._here: int | None = None  # the rank of this process, if it takes part
        self._everybody = False  # every rank is followed, whether somebody waits for it or not
        self.estimates: dict[int, Estimate] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for peer in self._peers.values():
            peer.connection.close()
            peer.process.kill()
            peer.process.wait()

    # -- for the rank of this process

    def send(self, channel: str, value: bytes | None) -> None:
        """Store a value in a channel."""
        self._mail[channel] = value

    def receive(self, source: int | None, channel: str, where: str) -> bytes | None:
        """Wait for a value. Raises CaptureError where it never comes."""
        self._here = self._work.rank.rank
        awaited = AwaitedValue(source, channel, where)
        while channel not in self._mail:
            why = self._step(awaited)
            if why is not None:
                raise CaptureError(*never(awaited, why))
        return self._mail[channel]

    # -- for all of them

    def follow_all(self, progress: Callable[[str], None] | None = None) -> list[Estimate]:
        """Return every rank's estimate, followed one after another where ranks do not wait for each other.

        Raises CaptureError, of the first rank that cannot be followed.
        """
        self._everybody, ranks = True, self._work.rank.world_size
        while len(self.estimates) < ranks:
            count = len(self.estimates)
            self._step(None)
            failed = next(((r, p.ended) for r, p in sorted(self._peers.items()) if _failed(p)), None)
            if failed is not None:
                message, _, hint = failed[1].partition("\n  hint: ")
                raise CaptureError(f"rank {failed[0]}: {message}", hint)
            if progress is not None and len(self.estimates) > count:
                progress(f"{len(self.estimates)} of {ranks} ranks")
        return [self.estimates[rank] for rank in range(ranks)]

    def received(self, channel: str) -> bytes | None:
        """Return the value in a channel, None if none was sent."""
        return self._mail.get(channel)

    # -- the post office

    def _step(self, own: AwaitedValue | None) -> str | None:
        """Take one message or start one process. own: what this process's rank waits for.

        Returns why that never comes, if it never does.
        """
        for peer in self._peers.values():
            self._answer(peer)
        running = {peer.connection: peer for peer in self._peers.values() if not peer.ended}
        if own is not None and own.source is not None and own.source in self._peers:
            ended = self._peers[own.source].ended
            if ended and own.channel not in self._mail:
                return ended
        if (new := self._next(own, any(peer.awaited is None for peer in running.values()))) is not None:
            self._start(new)
            return None
        if all(peer.awaited is not None for peer in running.values()):
            if own is not None:
                return self._everybody_waits(own)
            for peer in running.values():  # nobody can go on: each is told, and fails
                if peer.awaited is not None:
                    self._refuse(peer, self._everybody_waits(peer.awaited))
        for connection in wait(list(running)):
            assert isinstance(connection, Connection)
            self._take_message(running[connection])
        return None

    def _next(self, own: AwaitedValue | None, somebody_runs: bool) -> int | None:
        """Return the rank to start: one waited for, or the next if no rank runs."""
        waited = [
            awaited
            for awaited in (own, *(peer.awaited for peer in self._peers.values()))
            if awaited is not None
        ]
        ranks = {*self._peers, *(() if self._here is None else (self._here,))}
        for awaited in waited:
            if awaited.source is not None and awaited.source not in ranks:
                return awaited.source
        if somebody_runs:
            return None
        anybody = any(awaited.source is None for awaited in waited)
        tried = self._work.rank.world_size if self._everybody else _TRIED if anybody else 0
        return next(
            (rank for rank in range(min(tried, self._work.rank.world_size)) if rank not in ranks), None
        )

    def _answer(self, peer: _Peer) -> None:
        """Answer a waiting rank with its value, or that it never comes."""
        awaited = peer.awaited
        if awaited is None or peer.ended:
            return
        if awaited.channel in self._mail:
            peer.awaited = None
            with contextlib.suppress(OSError):
                peer.connection.send(("value", self._mail[awaited.channel]))
        elif awaited.source in self._peers and self._peers[awaited.source].ended:
            self._refuse(peer, self._peers[awaited.source].ended)

    def _refuse(self, peer: _Peer, why: str) -> None:
        peer.awaited = None
        with contextlib.suppress(OSError):
            peer.connection.send(("never", why))

    def _everybody_waits(self, awaited: AwaitedValue) -> str:
        others = [
            f"rank {rank} waits too, at {peer.awaited.where or 'a line of a library'}"
            for rank, peer in sorted(self._peers.items())
            if peer.awaited is not None and peer.awaited is not awaited
        ]
        return "; ".join(others) or "no rank says it"

    def _start(self, rank: int) -> None:
        """Start the process that follows another rank, and send it its work."""
        ours, theirs = Pipe()
        with theirs:
            output = subprocess.DEVNULL if self._quiet else None
            process = subprocess.Popen(
                child.command("analyzer_programs.peer", str(theirs.fileno()), folders=self._path),
                pass_fds=(theirs.fileno(),),
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output if self._quiet else sys.__stderr__,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for whoever follows
            )
        self._peers[rank] = _Peer(process, ours)
        ours.send(dataclasses.replace(self._work, rank=dataclasses.replace(self._work.rank, rank=rank)))

    def _take_message(self, peer: _Peer) -> None:
        """Take one message of a rank: a value, a question, its result or its end."""
        rank = next(rank for rank, other in self._peers.items() if other is peer)
        try:
            kind, *content = peer.connection.recv()
        except (EOFError, OSError):
            peer.ended = f"the process of rank {rank} ended (exit code {peer.process.wait()})"
            return
        match kind:
            case "say":
                self._mail[content[0]] = content[1]
            case "ask":
                peer.awaited = AwaitedValue(*content)
            case "done":
                self.estimates[rank] = content[0]
                peer.ended = f"rank {rank} ended without it"
            case _:
                peer.ended = content[0]


def _failed(peer: _Peer) -> bool:
    return bool(peer.ended) and not peer.ended.endswith("ended without it")


def never(awaited: AwaitedValue, why: str) -> tuple[str, str]:
    """Message and hint of the error of who waits for a value that never comes."""
    whom = "another rank" if awaited.source is None else f"rank {awaited.source}"
    message, _, hint = why.partition("\n  hint: ")
    return (
        f"{awaited.where or 'the program'} waits for a value of {whom} that never comes: {message}",
        hint or "in a real job it would wait for ever: check who sends and who receives",
    )
