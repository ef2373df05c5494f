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

import contextlib
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
        "socket": 41, "bind": 49,
        "open": 2, "openat": 257, "creat": 85, "truncate": 76, "unlink": 87, "rmdir": 84, "unlinkat": 263,
        "rename": 82, "renameat": 264, "renameat2": 316, "mkdir": 83, "mkdirat": 258, "mknod": 133,
        "mknodat": 259, "symlink": 88, "symlinkat": 266, "link": 86, "linkat": 265, "stat": 4, "lstat": 6,
        "newfstatat": 262, "statx": 332, "access": 21, "faccessat": 269, "faccessat2": 439, "readlink": 89,
        "readlinkat": 267, "getxattr": 191, "lgetxattr": 192, "listxattr": 194, "llistxattr": 195,
    },
    "aarch64": {
        "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "utimensat": 88, "setxattr": 5,
        "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16,
        "connect": 203, "sendto": 206, "sendmsg": 211, "sendmmsg": 269, "ioctl": 29, "seccomp": 277,
        "socket": 198, "bind": 200,
        "openat": 56, "truncate": 45, "unlinkat": 35, "renameat": 38, "renameat2": 276, "mkdirat": 34,
        "mknodat": 33, "symlinkat": 36, "linkat": 37, "newfstatat": 79, "statx": 291, "faccessat": 48,
        "faccessat2": 439, "readlinkat": 78, "getxattr": 8, "lgetxattr": 9, "listxattr": 11, "llistxattr": 12,
    },
}  # fmt: skip
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_X32 = 0x40000000  # asm/unistd.h: from this number on, x86-64 with short pointers
_IO_URING_SETUP = 425
# setxattrat, removexattrat, file_setattr; fchmodat2 is 452: the same numbers on every architecture.
_YOUNGER = (452, 463, 466, 469)
_OPENAT2 = 437
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
NAMES = frozenset({"bind", "connect"})  # of Unix sockets
# Kinds of sockets whose addresses `supervision.py` can read (AF_UNIX, AF_INET, AF_INET6), or which lead to no
# machine (AF_NETLINK, AF_ALG): others (AF_PACKET, AF_VSOCK) also send without an address in a call. So does
# SCTP, which connects by an option.
_FAMILIES, _SCTP = (1, 2, 10, 16, 38), 132
# Calls that change or open a file by its path; and those that look at one.
CHANGES = frozenset(
    [
        "open",
        "openat",
        "creat",
        "truncate",
        "unlink",
        "rmdir",
        "unlinkat",
        "rename",
        "renameat",
        "renameat2",
        "mkdir",
        "mkdirat",
        "mknod",
        "mknodat",
        "symlink",
        "symlinkat",
        "link",
        "linkat",
    ]
)
LOOKS = frozenset(
    [
        "stat",
        "lstat",
        "newfstatat",
        "statx",
        "access",
        "faccessat",
        "faccessat2",
        "readlink",
        "readlinkat",
        "getxattr",
        "lgetxattr",
        "listxattr",
        "llistxattr",
    ]
)
_FLAGS_AT = {"newfstatat": 3, "statx": 2}  # whose flags may say that an open file is meant
_EMPTY_PATH = 0x1000  # AT_EMPTY_PATH

_LOAD, _EQUAL, _GREATER_EQUAL, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # linux/bpf_common.h
_NR, _ARCH, _CALLER, _ARGUMENTS = 0, 4, 8, 16  # of struct seccomp_data
_ALLOW, _ASK, _FAIL = 0x7FFF0000, 0x7FC00000, 0x00050000
_NO_NEW_PRIVS, _SET_FILTER, _NEW_LISTENER = 38, 1, 8
_WAIT_KILLABLE = 32  # SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: no signal makes a call be asked about twice
_RECEIVE, _SEND, _IS_VALID, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_CONTINUE, _AND_SEND = 1, 2
_SET_FLAGS, _WAKE_AT_ONCE = 0x40082104, 1  # SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: on the processor that waits
_MOST_PATH = 4096


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _steps(numbers: dict[str, int], machine: str, calls: AbstractSet[str]) -> list[tuple[int, int, int, int]]:
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
    for name in sorted(calls & numbers.keys() - {"sendto"} - LOOKS):
        steps += answer(numbers[name], _ASK)
    if "sendto" in calls:  # without an address it is write's like
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
    if "sendto" in calls:
        steps += _sockets(numbers["socket"])
    for name in sorted(calls & numbers.keys() & LOOKS):
        steps += _look(numbers[name], _FLAGS_AT.get(name))
    if calls & CHANGES:
        steps += answer(_OPENAT2, _FAIL | errno.ENOSYS)
    if calls & MARKS:
        for number in _YOUNGER:
            steps += answer(number, _FAIL | errno.ENOSYS)
        steps += [(_EQUAL, 1, 0, numbers["ioctl"]), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _ARGUMENTS + 8)]
        for request in _ATTRIBUTES:
            steps += answer(request, _FAIL | errno.EPERM)
    return [*steps, (_RETURN, 0, 0, _ALLOW)]


def _sockets(number: int) -> list[tuple[int, int, int, int]]:
    """Return the steps that refuse sockets of other kinds than `_FAMILIES`."""
    families = [(_EQUAL, len(_FAMILIES) - place, 0, family) for place, family in enumerate(_FAMILIES)]
    steps = [
        (_LOAD, 0, 0, _ARGUMENTS),
        *families,
        (_RETURN, 0, 0, _FAIL | errno.EAFNOSUPPORT),
        (_LOAD, 0, 0, _ARGUMENTS + 16),
        (_EQUAL, 0, 1, _SCTP),
        (_RETURN, 0, 0, _FAIL | errno.EPROTONOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return [(_EQUAL, 0, len(steps), number), *steps]


def number_of(name: str) -> int:
    """Return the number of a system call on this machine."""
    return _NUMBERS[os.uname().machine][name]


def _look(number: int, flags_at: int | None) -> list[tuple[int, int, int, int]]:
    """Return the steps that ask about a call, but where it looks at an open file, or is made by the C library
    of the process that installs the filter, or of its forks: there Python's functions are replaced."""
    steps = []
    if flags_at is not None:
        low = _ARGUMENTS + 8 * flags_at
        steps += [(_LOAD, 0, 0, low), (_HAS_BITS, 0, 1, _EMPTY_PATH), (_RETURN, 0, 0, _ALLOW)]
    if (own := _own_calls()) is not None:
        steps += [
            (_LOAD, 0, 0, _CALLER + 4),
            (_EQUAL, 0, 4, own.start >> 32),
            (_LOAD, 0, 0, _CALLER),
            (_GREATER_EQUAL, 0, 2, own.start & 0xFFFFFFFF),
            (_GREATER_EQUAL, 1, 0, own.stop & 0xFFFFFFFF),
            (_RETURN, 0, 0, _ALLOW),
        ]
    steps.append((_RETURN, 0, 0, _ASK))
    return [(_EQUAL, 0, len(steps), number), *steps]


def _own_calls() -> range | None:
    """Return the addresses of this process's C library, which its forks have, too, and programs that are
    started elsewhere (where Linux places them by chance). None: not known."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            if "/libc.so" in line and " r-xp " in line:
                start, stop = (int(address, 16) for address in line.partition(" ")[0].split("-"))
                if start >> 32 == stop >> 32:
                    return range(start, stop)
    return None


def install(calls: AbstractSet[str], other: socket.socket) -> bool:
    """Ask about these system calls from now on; the listener goes through `other`. Return whether this
    kernel, and whoever started this process, allow it."""
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in _NUMBERS:
        return False
    numbers = _NUMBERS[machine]
    steps = _steps(numbers, machine, calls)
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
            for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
                listener = libc.syscall(
                    ctypes.c_long(numbers["seccomp"]), _SET_FILTER, flags, ctypes.byref(program)
                )
                if listener >= 0:
                    listeners.append(listener)
                    break
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
    descriptor: int = -1  # the listener's

    def is_waiting(self) -> bool:
        """Return whether whoever asked still waits: its number is nobody else's."""
        try:
            fcntl.ioctl(self.descriptor, _IS_VALID, struct.pack("Q", self.number))
        except OSError:
            return False
        return True

    def write_at(self, address: int, value: bytes) -> None:
        """Write into the process's memory. Raises OSError."""
        with open(f"/proc/{self.process}/mem", "r+b", 0) as memory:
            if not self.is_waiting():
                raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
            memory.seek(address)
            memory.write(value)

    def send_file(self, opened: int, closes: bool) -> None:
        """Answer with this open file, as a descriptor of the process's. closes: when it starts a program.
        Raises OSError."""
        descriptor_flags = os.O_CLOEXEC if closes else 0
        answer = struct.pack("QIIII", self.number, _AND_SEND, opened, 0, descriptor_flags)
        fcntl.ioctl(self.descriptor, _ADD_DESCRIPTOR, answer)

    def send(self, value: int, failed: int = 0, flags: int = 0) -> None:
        """Answer with a result, or the number of an error. flags: `_CONTINUE`."""
        with contextlib.suppress(OSError):  # whoever asked has been ended
            fcntl.ioctl(self.descriptor, _SEND, struct.pack("QqiI", self.number, value, -failed, flags))

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


class Sent:
    """Says that a question is answered, or will be, by whoever has it."""


# How a call is answered: its result; None: it may go on. Raises OSError, with which it fails.
Answer = Callable[[Question], "int | Sent | None"]


class Listener:
    """Answers the questions of a filter, in the process that was sent it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._names = {number: name for name, number in _NUMBERS[os.uname().machine].items()}
        with contextlib.suppress(OSError):  # kernels before 6.6
            fcntl.ioctl(descriptor, _SET_FLAGS, _WAKE_AT_ONCE)

    def serve(self, answer: Answer) -> None:
        """Answer until nobody is left who could ask."""
        for question in self._questions():
            try:
                result = answer(question)
                if result is None:
                    question.send(0, flags=_CONTINUE)
                elif isinstance(result, int):
                    question.send(result)
            except OSError as error:
                question.send(0, error.errno or errno.EACCES)
            except Exception:
                question.send(0, errno.EACCES)

    def _questions(self) -> Iterator[Question]:
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLIN)
        while waiting.poll()[0][1] & select.POLLIN:
            request = bytearray(80)
            try:
                fcntl.ioctl(self._descriptor, _RECEIVE, request)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR):
                    continue
                raise
            number, process, _, call, _, _, *arguments = struct.unpack("QIIiIQ6Q", request)
            yield Question(number, process, self._names[call], tuple(arguments), self._descriptor)
