"""The command line's own process and the one that does the work: what one writes for the user, and what the
other may change.

1. The first process forks. The second goes into the overlay (`namespaces.py`; where that is not allowed,
   Python's functions are sent to one, and Landlock refuses the rest) and goes on with the command. The first
   waits, answers about system calls (`supervision.py`), and ends as the second does.
2. The second has the first write the user's own results (`-o FILE`): `outside`.
3. Signals that ask the first to end are handed on; the terminal's Ctrl-C reaches both, and is for the second.
   If the first is killed, so is the second. If the second is, the first shows the terminal's cursor again,
   and ends what it does for it.
4. A second process that ends before it says that it is done was ended: by a signal, or by the program
   (`_exit` in C).
5. In the end the first keeps what is to be kept of the overlay, and removes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple, NoReturn

from analyzer_sandbox import landlock, namespaces, seccomp
from analyzer_sandbox.scratch import Scratch, moved_up
from analyzer_sandbox.supervision import Supervisor

_HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FROM_TERMINAL = 0x80  # SI_KERNEL of asm-generic/siginfo.h
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_SHOW_CURSOR = "\x1b[?25h"  # DECTCEM
_PATIENCE_SECONDS, _LAST_SECONDS = 10.0, 1.0
_SHARED_MEMORY, _NAMED = "/dev/shm", 8
Complain = Callable[[str, str], None]


class Held(NamedTuple):
    """The protection of a process. protection: key of `PROTECTIONS` of the package. asks: whether system
    calls are asked about (in a mount namespace: none need be). network: key of `NETWORKS` there."""

    protection: str
    asks: bool = False
    network: str = "functions"


class Outside:
    """The first process, as the second speaks with it."""

    def __init__(self, asks: IO[bytes], answers: IO[bytes]) -> None:
        self._asks, self._answers, self._lock = asks, answers, threading.Lock()
        self._process = os.getpid()

    def ask(self, what: str, *arguments: Any) -> Any:
        """Have the outside process do something; return its result. Raises its OSError."""
        if os.getpid() != self._process:
            raise OSError("only the process that follows the program writes outside")
        with self._lock:
            pickle.dump((what, arguments), self._asks)
            self._asks.flush()
            error, value = pickle.load(self._answers)
        if error is not None:
            raise error
        return value


class First:
    """The first process, while the second works."""

    def __init__(
        self,
        scratch: Scratch,
        write: Callable[..., None],
        keep: str | None,
        also: Mapping[str, Callable[..., Any]],
    ) -> None:
        self._scratch, self._keep = scratch, keep
        self._environment: dict[str, str] = dict(os.environ)
        self._does: dict[str, Callable[..., Any]] = {
            "write": write, "written": scratch.written, "environment": self._environment.update,
            "done": self._done, "keep nothing": self._keep_nothing, **also,
        }  # fmt: skip
        self.code: int | None = None
        self._shared: frozenset[str] | None = None  # what was in shared memory before, where that is outside
        self.supervisor: tuple[Supervisor, threading.Thread] | None = None
        self._end = self._does.pop("end", None)

    def watch_shared_memory(self) -> None:
        """Remember what lies in shared memory, to say later what is new there."""
        self._shared = _in_shared_memory()

    def tell_shared_memory(self) -> None:
        """Say which files are in shared memory since then: a library in C makes them outside."""
        new = sorted(_in_shared_memory() - self._shared) if self._shared is not None else []
        if new:
            named = ", ".join(map(ascii, new[:_NAMED])) + (
                f" and {len(new) - _NAMED} more" if new[_NAMED:] else ""
            )
            text = (
                f"analyze: warning: new in {_SHARED_MEMORY} since the program began, which is not kept apart"
                f" here: {named}\n  hint: remove what no other program made\n"
            )
            with contextlib.suppress(OSError):
                os.write(2, text.encode())

    def _keep_nothing(self) -> None:
        self._keep = None

    def _done(self, code: int) -> None:
        self.code = code

    def end(self, server: threading.Thread, status: int) -> None:
        """After the second process: end what is still done for it by `server`, and show the terminal's cursor
        where a signal ended it."""
        if self.supervisor is not None:
            supervisor, answering = self.supervisor
            supervisor.end()
            answering.join(_LAST_SECONDS)  # ends with the last process that could ask
        if self._end is not None:
            self._end()
            server.join(_PATIENCE_SECONDS)
        if os.WIFSIGNALED(status) and os.isatty(2):
            os.write(2, _SHOW_CURSOR.encode())

    def serve(self, asks: IO[bytes], answers: IO[bytes]) -> None:
        """Answer requests until there are no more."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                what, arguments = pickle.load(asks)
                answer: tuple[OSError | None, Any]
                try:
                    answer = (None, self._does[what](*arguments))
                except OSError as error:
                    answer = (error, None)
                pickle.dump(answer, answers)
                answers.flush()

    def finish(self, status: int, code: int, complain: Complain) -> int:
        """Keep outputs, remove the rest, return the exit code. code: ending signal, or 0."""
        try:
            if self.code is not None:
                self._scratch.keep_downloads(self._environment)
            if self._keep is not None:
                self._scratch.keep(self._keep, self._environment)
        except OSError as error:
            complain(
                f"what the program wrote cannot be kept in {self._keep}: {error.strerror}",
                "choose another place",
            )
            self.code = 2
        finally:
            self._scratch.drop()
        if self.code is not None:
            interrupted = code and self.code == 128 + signal.SIGINT
            return 128 + code if interrupted else self.code
        if code:
            return 128 + code
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            hints: dict[int, str] = {
                signal.SIGKILL: "the kernel ends a process so when memory runs out",
                **dict.fromkeys(_HANDED_ON, "the program sent it to itself, or something else did"),
            }
            hint = hints.get(number, "the line it was at stands above: a library in C failed there")
            complain(f"the program was ended by signal {number} ({signal.strsignal(number)})", hint)
        else:
            complain(
                f"the program ended the process before its end (exit code {os.WEXITSTATUS(status)})",
                "it called exit in C, or another program in its place: what it would have taken is not known",
            )
        return 2


def divide(
    write: Callable[..., None],
    complain: Complain,
    keep: str | None,
    network: bool,
    also: Mapping[str, Callable[..., Any]],
    unprotected: bool,
) -> tuple[Scratch, Held, Outside] | None:
    """Go on in a second process: return its overlay, what holds it, and the first, which never returns from
    here. None: this process has threads, or cannot fork. unprotected: also where nothing protects it;
    otherwise raises UnprotectedError."""
    if threading.active_count() > 1 or not hasattr(os, "fork"):
        return None
    scratch = Scratch.new()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for protection in ("namespaces", "landlock", *(("functions",) if unprotected else ())):
        second = _forked(protection, scratch, First(scratch, write, keep, also), complain, network)
        if second is not None:
            return scratch, *second
    from analyzer_sandbox.unprotected import UnprotectedError

    scratch.drop()
    raise UnprotectedError


def _forked(
    protection: str, scratch: Scratch, first: First, complain: Complain, network: bool
) -> tuple[Held, Outside] | None:
    """Fork. In the child, return what holds it, and the parent; in the parent, None if the child could not be
    protected so."""
    (requests, requested), (answers, answered) = (
        (os.fdopen(moved_up(r), "rb"), os.fdopen(moved_up(w), "wb")) for r, w in (os.pipe(), os.pipe())
    )
    ours, theirs = socket.socketpair()
    if protection != "namespaces":
        first.watch_shared_memory()
    parent, before = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, (*_HANDED_ON, signal.SIGCHLD))
    child = os.fork()
    if child:
        requested.close()
        answers.close()
        theirs.close()
        with contextlib.suppress(EOFError), ours:
            if pickle.load(requests):  # it has begun, and asks about system calls
                supervisor = Supervisor(scratch.folder, network, protection == "namespaces")
                first.supervisor = _supervised(ours, supervisor)
            _wait(child, first, requests, answered, complain)
        os.waitpid(child, 0)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch.path("uppers"))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return None
    try:
        requests.close()
        answered.close()
        ours.close()
        die_with_parent(parent)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        with theirs:
            held, asks = _protect(protection, scratch.folder, network, theirs)
    except Exception:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    pickle.dump(asks, requested)
    requested.flush()
    faulthandler.enable(sys.__stderr__ or 2)
    return held, Outside(requested, answers)


def _protect(protection: str, folder: str, network: bool, other: socket.socket) -> tuple[Held, bool]:
    """Protect this process; return what holds it, and whether it asks about system calls. other: leads to the
    process that answers. Raises OSError."""
    connections: frozenset[str] = frozenset() if network else seccomp.CONNECTIONS
    if protection == "namespaces":
        is_alone = namespaces.enter(folder, None if network else lambda: seccomp.install(connections, other))
        return Held(protection, True, "namespace" if is_alone else "addresses"), not (network or is_alone)
    if protection == "landlock":
        ruleset = landlock.Ruleset((folder, "/dev", "/proc"))
        ruleset.restrict()
        ruleset.close()
    calls = seccomp.MARKS | seccomp.CHANGES | seccomp.LOOKS | seccomp.NAMES | connections
    asks = seccomp.install(calls, other)
    return Held(protection, asks, "addresses" if asks else "functions"), asks


def _supervised(other: socket.socket, supervisor: Supervisor) -> tuple[Supervisor, threading.Thread]:
    """Answer about system calls, in a thread; return both. other: where the listener comes from."""
    _, listeners, _, _ = socket.recv_fds(other, 1, 1)
    listener = seccomp.Listener(*listeners)
    thread = threading.Thread(target=listener.serve, args=(supervisor.answer,), daemon=True)
    thread.start()
    return supervisor, thread


def hear_signals() -> None:
    """Let signals that ask this process to end reach it: one that waits for another holds them back, also in
    what it starts."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*_HANDED_ON, signal.SIGCHLD))


def die_with_parent(parent: int) -> None:
    """Let this process be killed when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _wait(child: int, first: First, asks: IO[bytes], answers: IO[bytes], complain: Complain) -> NoReturn:
    """Serve the second process until it has ended, then end as it did."""
    server = threading.Thread(target=first.serve, args=(asks, answers), daemon=True)
    server.start()
    status, code = _waited(child, (*_HANDED_ON, signal.SIGCHLD))
    first.end(server, status)
    first.tell_shared_memory()
    os._exit(first.finish(status, code, complain))


def _in_shared_memory() -> frozenset[str]:
    """Return the names of this user's files in shared memory."""
    names = set()
    with contextlib.suppress(OSError), os.scandir(_SHARED_MEMORY) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    names.add(entry.name)
    return frozenset(names)


def _waited(child: int, signals: Sequence[signal.Signals]) -> tuple[int, int]:
    """Return the ended process's status, and the last signal that asked it to end, or 0."""
    code = 0
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status, code
        if hasattr(signal, "sigwaitinfo"):
            got = signal.sigwaitinfo(signals)
            number, from_terminal = got.si_signo, got.si_code == _FROM_TERMINAL
        else:  # macOS does not say who sent it
            number, from_terminal = signal.sigwait(signals), sys.stdin.isatty()
        if number == signal.SIGCHLD:
            continue
        code = number
        if number not in (signal.SIGINT, signal.SIGQUIT) or not from_terminal:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
