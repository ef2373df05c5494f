"""System calls that are asked about before they happen: a filter whose questions go to another process
(Linux's seccomp with user notification, which an ordinary user may install).

1. `install` puts the filter on this thread and on whatever it starts, for good; its listener goes to the
   other process, which answers (`Listener`): the call did this, failed so, or may go on.
2. io_uring, system calls of another architecture, and calls that are younger than this filter and do what
   one of those asked about does are refused: a C library then takes the older call.
3. Attributes that are set by ioctl (`chattr`) are refused.

Sources: `seccomp_unotify(2)`, `include/uapi/linux/seccomp.h`, `asm/unistd.h`. Not modelled: a call that may
go on reads its arguments anew, so that a program that rewrites them in that instant is not held.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

_NUMBERS = {
    "x86_64": {
        "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "utime": 132, "utimes": 235,
        "futimesat": 261, "utimensat": 280, "fchownat": 260, "fchmodat": 268, "setxattr": 188,
        "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199,
        "connect": 42, "sendto": 44, "sendmsg": 46, "sendmmsg": 307, "ioctl": 16, "seccomp": 317,
    },
    "aarch64": {
        "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "utimensat": 88, "setxattr": 5,
        "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16,
        "connect": 203, "sendto": 206, "sendmsg": 211, "sendmmsg": 269, "ioctl": 29, "seccomp": 277,
    },
}  # fmt: skip
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_X32 = 0x40000000  # asm/unistd.h: from this number on, x86-64 with short pointers
_IO_URING_SETUP = 425
# setxattrat, removexattrat, file_setattr; fchmodat2 is 452: the same numbers on every architecture.
_YOUNGER = (452, 463, 466, 469)
# FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_SETVERSION, FS_IOC_FSSETXATTR (linux/fs.h)
_ATTRIBUTES = (0x40086602, 0x40046602, 0x40087602, 0x401C5820)
MARKS = frozenset(
    {
        "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "utime", "utimes",
        "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr",
        "fremovexattr",
    }
)  # fmt: skip
CONNECTIONS = frozenset({"connect", "sendto", "sendmsg", "sendmmsg"})

_LOAD, _EQUAL, _GREATER_EQUAL, _RETURN = 0x20, 0x15, 0x35, 0x06  # linux/bpf_common.h
_NR, _ARCH, _ARGUMENTS = 0, 4, 16  # of struct seccomp_data
_ALLOW, _ASK, _FAIL = 0x7FFF0000, 0x7FC00000, 0x00050000
_NO_NEW_PRIVS, _SET_FILTER, _NEW_LISTENER = 38, 1, 8
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_CONTINUE = 1
_MOST_PATH = 4096


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _steps(numbers: dict[str, int], machine: str, asked: AbstractSet[str]) -> list[tuple[int, int, int, int]]:
    """Return the filter's instructions: code, jump if true, jump if false, operand."""

    def answer(number: int, result: int) -> list[tuple[int, int, int, int]]:
        return [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, result)]

    steps = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
        (_LOAD, 0, 0, _NR),
        (_GREATER_EQUAL, 0, 1, _X32),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
        *answer(_IO_URING_SETUP, _FAIL | errno.EPERM),
    ]
    for name in sorted(asked & numbers.keys() - {"sendto"}):
        steps += answer(numbers[name], _ASK)
    if "sendto" in asked:  # without an address it is write's like
        low, high = _ARGUMENTS + 4 * 8, _ARGUMENTS + 4 * 8 + 4
        steps += [
            (_EQUAL, 0, 6, numbers["sendto"]),
            (_LOAD, 0, 0, low),
            (_EQUAL, 0, 3, 0),
            (_LOAD, 0, 0, high),
            (_EQUAL, 0, 1, 0),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _ASK),
        ]
    if asked & MARKS:
        for number in _YOUNGER:
            steps += answer(number, _FAIL | errno.ENOSYS)
        steps += [(_EQUAL, 1, 0, numbers["ioctl"]), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _ARGUMENTS + 8)]
        for request in _ATTRIBUTES:
            steps += answer(request, _FAIL | errno.EPERM)
    return [*steps, (_RETURN, 0, 0, _ALLOW)]


def install(asked: AbstractSet[str], other: socket.socket) -> bool:
    """Ask about these system calls from now on; the listener goes through `other`. Return whether this
    kernel, and whoever started this process, allow it."""
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in _NUMBERS:
        return False
    numbers = _NUMBERS[machine]
    steps = _steps(numbers, machine, asked)
    program = _Program(len(steps), b"".join(struct.pack("HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None, use_errno=True)
    installed, listeners = threading.Event(), list[int]()

    def send() -> None:  # by a thread that was there before, which the filter does not hold
        installed.wait()
        if listeners:
            socket.send_fds(other, [b"1"], listeners)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
            listener = libc.syscall(
                ctypes.c_long(numbers["seccomp"]), _SET_FILTER, _NEW_LISTENER, ctypes.byref(program)
            )
            if listener >= 0:
                listeners.append(listener)
    finally:
        installed.set()
        thread.join()
    for listener in listeners:
        os.close(listener)
    return bool(listeners)


class Question(NamedTuple):
    """A system call that waits for its answer."""

    number: int
    process: int
    name: str
    arguments: tuple[int, ...]

    def bytes_at(self, address: int, count: int) -> bytes:
        """Read the process's memory. Raises OSError."""
        with open(f"/proc/{self.process}/mem", "rb", 0) as memory:
            memory.seek(address)
            return memory.read(count)

    def text_at(self, address: int) -> bytes:
        """Read a path or a name, up to its end."""
        text = b""
        while b"\0" not in text and len(text) < _MOST_PATH:
            text += self.bytes_at(address + len(text), 256 - (address + len(text)) % 256)
        return text.partition(b"\0")[0]


# How a call is answered: its result; None: it may go on. Raises OSError, with which it fails.
Answer = Callable[[Question], int | None]


class Listener:
    """Answers the questions of a filter, in the process that was sent it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._names = {number: name for name, number in _NUMBERS[os.uname().machine].items()}

    def serve(self, answer: Answer) -> None:
        """Answer until nobody is left who could ask."""
        for question in self._questions():
            value, failed, flags = 0, 0, 0
            try:
                result = answer(question)
                value, flags = (0, _CONTINUE) if result is None else (result, 0)
            except OSError as error:
                failed = -(error.errno or errno.EACCES)
            except Exception:
                failed = -errno.EACCES
            try:
                fcntl.ioctl(
                    self._descriptor, _SEND, struct.pack("QqiI", question.number, value, failed, flags)
                )
            except OSError:  # whoever asked has been ended
                continue

    def _questions(self) -> Iterator[Question]:
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLIN)
        while waiting.poll()[0][1] & select.POLLIN:
            asked = bytearray(80)
            try:
                fcntl.ioctl(self._descriptor, _RECEIVE, asked)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR):
                    continue
                raise
            number, process, _, call, _, _, *arguments = struct.unpack("QIIiIQ6Q", asked)
            yield Question(number, process, self._names[call], tuple(arguments))

    def is_waiting(self, question: Question) -> bool:
        """Return whether whoever asked still waits: its number is nobody else's."""
        try:
            fcntl.ioctl(self._descriptor, _IS_VALID, struct.pack("Q", question.number))
        except OSError:
            return False
        return True
