"""Unix sockets with a path, where system calls are asked about (`seccomp.py`): `bind` makes one in the
overlay, and `connect` finds it there, by the process outside, which takes the caller's socket for that
(pidfd_getfd).

One at which something outside listens refuses the connection, as in a mount namespace, where none leads out
of an overlay: whoever listens there would do for the program what the program may not.

Sources: `unix(7)`, `pidfd_getfd(2)`. Not modelled: datagrams that are sent to a path without `connect`;
sockets without a path (abstract ones); `getsockname` and the credentials of who connected, which are the
overlay's path and the process outside.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from analyzer_sandbox.calls import Path, Paths, file_mask
from analyzer_sandbox.seccomp import Question, Sent

_PIDFD_OPEN, _PIDFD_GETFD = 434, 438  # the same numbers on every architecture
_MOST_ADDRESS, _MOST_NAME = 110, 107  # struct sockaddr_un of linux/un.h


class Sockets:
    """Answers for one program. paths: where its paths lead."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def answer(self, question: Question) -> int | Sent | None:
        """Return the result of a `bind` or `connect`, None where it may go on. Raises OSError."""
        name = _name(question)
        if name is None:
            return None
        connects = question.name == "connect"
        path = self._paths.resolved(question, name, None, follow=connects)
        if self._paths.is_free(path):
            return None
        if not connects:
            # Here: who may write in the overlay alone may not reach into a process that is held otherwise.
            with _of_caller(question) as caller:
                self._paths.apart(self._bind, caller, path, file_mask(question))
            return 0
        real = self._paths.real(path)
        if not os.path.lexists(real):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if real == path.place:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        # It may wait for whoever listens.
        threading.Thread(target=self._connect, args=(question, real), daemon=True).start()
        return Sent()

    def _bind(self, caller: socket.socket, path: Path, mask: int) -> None:
        if os.path.lexists(self._paths.real(path)):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        real = self._paths.making(path)
        with _short(real) as name:
            caller.bind(name)
        os.chmod(real, 0o777 & ~mask)

    def _connect(self, question: Question, real: str) -> None:
        try:
            with _of_caller(question) as caller, _short(real) as name:
                caller.connect(name)
        except OSError as error:
            question.send(0, error.errno or errno.ECONNREFUSED)
        else:
            question.send(0)


def _name(question: Question) -> str | None:
    """Return the path that a call's address is; None where it is of another kind."""
    _, address, count = question.arguments[:3]
    text = question.bytes_at(address, min(count & 0xFFFFFFFF, _MOST_ADDRESS))
    if len(text) < 3 or struct.unpack("H", text[:2])[0] != socket.AF_UNIX:
        return None
    return os.fsdecode(text[2:].partition(b"\0")[0]) or None


@contextmanager
def _of_caller(question: Question) -> Iterator[socket.socket]:
    """Yield the socket that the call is about, as a descriptor of this process's. Raises OSError."""
    with open(f"/proc/{question.process}/status", encoding="utf-8", errors="replace") as lines:
        process = next((int(line.split()[1]) for line in lines if line.startswith("Tgid:")), question.process)
    opened = _call(_PIDFD_OPEN, process, 0)
    try:
        descriptor = _call(_PIDFD_GETFD, opened, question.arguments[0] & 0xFFFFFFFF, 0)
    finally:
        os.close(opened)
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise
    with connection:
        if not question.is_waiting():  # another process may have its number by now
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        yield connection


@contextmanager
def _short(real: str) -> Iterator[str]:
    """Yield a name of a path that an address has room for."""
    if len(os.fsencode(real)) <= _MOST_NAME:
        yield real
        return
    folder, name = os.path.split(real)
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{name}"
    finally:
        os.close(opened)


def _call(number: int, *arguments: int) -> int:
    result = int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed))
    return result
