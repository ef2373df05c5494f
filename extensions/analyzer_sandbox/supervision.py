"""The answers of the process outside when a program, a library in C or a process it starts changes a file's
mode, times, owner or attributes, changes, opens or looks at one by its path, or speaks with another machine
(`seccomp.py`).

1. Marks: what lies in the overlay's folder, /dev or /proc is changed there; a file outside is copied to the
   overlay first, and its copy is changed, as Python's functions do. Landlock knows nothing of these.
2. Paths: `calls.py`. Unix sockets: `sockets.py`.
3. Connections (`--no-network`): an address of this machine's loopback may be spoken with; any other is
   written down and refused (ENETUNREACH), and so is a resolver of names here, which asks others.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import stat
import struct
import time

from analyzer_sandbox.calls import HERE, NO_LINK, Paths, signed
from analyzer_sandbox.layer import Layer
from analyzer_sandbox.seccomp import CONNECTIONS, MARKS, NAMES, Question, Sent
from analyzer_sandbox.sockets import Sockets

_NOW, _OMIT = 0x3FFFFFFF, 0x3FFFFFFE  # UTIME_NOW, UTIME_OMIT
_UNSPECIFIED, _UNIX, _INET, _INET6, _NETLINK, _ALGORITHMS = 0, 1, 2, 10, 16, 38  # linux/socket.h
_SECOND = 10**9
_MOST_MESSAGES = 1024
_RESOLVER = (53, 853)  # ports of DNS, and of DNS over TLS
# Where a call's file is: a path behind a folder's descriptor, a path, a descriptor; and, by their place, the
# flags.
_WHERE = {
    "fchmodat": ("at", None), "fchownat": ("at", 4), "futimesat": ("at", None), "utimensat": ("at", 3),
    "fchmod": ("open", None), "fchown": ("open", None), "fsetxattr": ("open", None),
    "fremovexattr": ("open", None),
}  # fmt: skip


class Supervisor:
    """Answers for one program. folder: its overlay's (`Scratch`). network: whether it may speak with other
    machines. is_mounted: whether the kernel has the overlay, sockets' paths included."""

    def __init__(self, folder: str, network: bool, is_mounted: bool) -> None:
        self._layer = Layer(folder)
        self._paths = Paths(folder, self._layer)
        self._sockets = None if is_mounted else Sockets(self._paths)
        self._network = network
        self._contacts = os.path.join(folder, "said", "met")
        self.is_over = False

    def end(self) -> None:
        """From now on, change nothing more: the program has ended, and processes that it left may only do
        what leads outside of the overlay by itself (shared memory that is given back)."""
        self.is_over = self._paths.is_over = True

    def answer(self, question: Question) -> int | Sent | None:
        """Return the call's result, None where it may go on. Raises OSError, with which it fails."""
        if question.name in NAMES and self._sockets is not None:
            result = self._sockets.answer(question)
            if result is not None:
                return result
        if question.name in CONNECTIONS and not self._network:
            self._check_addresses(question)
        if question.name in CONNECTIONS | NAMES:
            return None
        if question.name not in MARKS:
            return self._paths.answer(question)
        if self.is_over:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        self._mark(question)
        return 0

    # -- marks

    def _mark(self, question: Question) -> None:
        """Change what a call changes of a file, in the overlay."""
        kind, flags_at = _WHERE.get(question.name, ("path", None))
        arguments = question.arguments
        no_link = question.name.startswith("l") or (
            flags_at is not None and bool(arguments[flags_at] & NO_LINK)
        )
        target = self._target(question, kind, not no_link)
        self._apply(question, target, arguments[2 if kind == "at" else 1 :])

    def _target(self, question: Question, kind: str, follow: bool) -> str:
        """Return the real path of the file to change."""
        process, (first, second) = f"/proc/{question.process}", question.arguments[:2]
        folder = signed(first)
        if kind == "path":
            folder, path = HERE, question.text_at(first)
        else:
            path = question.text_at(second) if kind == "at" and second else b""
        if not path:
            if folder < 0:
                raise OSError(errno.ENOENT if folder == HERE else errno.EBADF, os.strerror(errno.ENOENT))
            opened = f"{process}/fd/{folder}"
            named = self._paths.viewed(os.readlink(opened))
            if not named.startswith("/") or self._layer.free(named) or not os.path.lexists(named):
                return opened  # in the overlay, a pipe, or a file without a name
            return self._layer.marking(self._layer.place(named))
        name, place, _ = self._paths.resolved(question, os.fsdecode(path), folder, follow)
        target = self._layer.marking(place)
        if not os.path.lexists(target):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return target

    def _apply(self, question: Question, target: str, values: tuple[int, ...]) -> None:
        """Do to the target what the call says. It is opened by its last name: no link is followed there."""
        is_magic = target.startswith("/proc/")
        flags = os.O_PATH | os.O_CLOEXEC | (0 if is_magic else os.O_NOFOLLOW)
        opened = os.open(target, flags)
        try:
            path = f"/proc/self/fd/{opened}"
            is_link = stat.S_ISLNK(os.fstat(opened).st_mode)
            name = question.name
            if "chmod" in name:
                if is_link:
                    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
                os.chmod(path, values[0] & 0o7777)
            elif "chown" in name:
                owner, group = (struct.unpack("i", struct.pack("I", id & 0xFFFFFFFF))[0] for id in values[:2])
                if is_link:
                    os.chown(target, owner, group, follow_symlinks=False)
                else:
                    os.chown(path, owner, group)
            elif "xattr" in name:
                self._set_attribute(question, target if is_link else path, values, is_link)
            else:
                times = self._times(question, values[0], os.fstat(opened))
                if is_link:
                    os.utime(target, ns=times, follow_symlinks=False)
                else:
                    os.utime(path, ns=times)
        finally:
            os.close(opened)

    def _set_attribute(self, question: Question, path: str, values: tuple[int, ...], is_link: bool) -> None:
        attribute = question.text_at(values[0])
        if "remove" in question.name:
            os.removexattr(path, attribute, follow_symlinks=not is_link)
            return
        if values[2] > 65536:  # XATTR_SIZE_MAX
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        value = question.bytes_at(values[1], values[2]) if values[2] else b""
        os.setxattr(path, attribute, value, values[3] & 3, follow_symlinks=not is_link)

    def _times(self, question: Question, address: int, known: os.stat_result) -> tuple[int, int]:
        """Return the times to set, in nanoseconds."""
        now = time.time_ns()
        if not address:
            return now, now
        if question.name == "utime":  # struct utimbuf
            accessed, modified = struct.unpack("qq", question.bytes_at(address, 16))
            return accessed * _SECOND, modified * _SECOND
        first, first_part, second, second_part = struct.unpack("qqqq", question.bytes_at(address, 32))
        if question.name != "utimensat":  # struct timeval
            return first * _SECOND + first_part * 1000, second * _SECOND + second_part * 1000
        parts = ((first, first_part, known.st_atime_ns), (second, second_part, known.st_mtime_ns))
        accessed, modified = (
            now if part == _NOW else before if part == _OMIT else seconds * _SECOND + part
            for seconds, part, before in parts
        )
        return accessed, modified

    # -- connections

    def _check_addresses(self, question: Question) -> None:
        """Raise OSError if a call goes to another machine."""
        name, (_, second, third, _, fifth, sixth) = question.name, question.arguments
        if name == "connect":
            self._check_address(question, second, third, connects=True)
        elif name == "sendto":
            self._check_address(question, fifth, sixth)
        elif name == "sendmsg":
            self._check_message(question, second)
        else:
            for number in range(min(third, _MOST_MESSAGES)):
                self._check_message(question, second + 64 * number)

    def _check_message(self, question: Question, address: int) -> None:
        where, count = struct.unpack("QI", question.bytes_at(address, 12))  # of struct msghdr
        if where:
            self._check_address(question, where, count)

    def _check_address(self, question: Question, address: int, count: int, connects: bool = False) -> None:
        text = question.bytes_at(address, min(count & 0xFFFFFFFF, 128))
        if len(text) < 2:
            return
        family = struct.unpack("H", text[:2])[0]
        if family == _UNSPECIFIED and not connects:
            family = _INET  # as udp_sendmsg of net/ipv4/udp.c reads it
        if family in (_UNSPECIFIED, _UNIX, _NETLINK, _ALGORITHMS):
            return
        host, port = f"an address of family {family}", int.from_bytes(text[2:4], "big")
        if family == _INET and len(text) >= 8:
            host = str(ipaddress.IPv4Address(text[4:8]))
        elif family == _INET6 and len(text) >= 24:
            six = ipaddress.IPv6Address(text[8:24])
            host = str(six.ipv4_mapped or six)
        if (host in ("0.0.0.0", "::", "::1") or host.startswith("127.")) and port not in _RESOLVER:
            return
        with open(self._contacts, "a", encoding="utf-8") as lines:
            lines.write(f"host {host}\n")
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
