"""A mount namespace in which everything the process writes goes to overlays (Linux), for it and for whatever
it starts.

1. Root takes a mount namespace; everybody else a user namespace with it, in which he is himself
   (`user_namespaces(7)`).
2. Every file system that can be written is mounted again below a new root as the lower layer of an overlay
   (overlayfs, which an ordinary user may mount since Linux 5.11). A file system mounted inside another is
   done after it.
3. The kernel shows no ordinary user what lies under another mount: it refuses folders with mounts in them
   that he did not make (`clone_private_mount` of `fs/namespace.c`). Such a folder is made anew, and what is
   in it is done one by one.
4. Nor may he copy into an overlay what belongs to somebody else, or to another group than his first
   (EOVERFLOW), as he must before he writes in it. So folders of others above those he is likely to write in
   are made in the overlay before it is mounted (`_on_the_way`); and where a file of another group's is his to
   write, in the working folder, no overlay will do (`_check_groups`).
5. /proc, /sys and /dev are as outside; the kernel's own settings in them can only be read, as can what an
   overlay cannot hold (a file system without case, a file of a folder that was made anew).
6. Root gives back what would lead outside again (`capabilities(7)`): mounting, raw devices, files by handle,
   and other processes, which are outside (/proc/PID/root). Everybody else gives back all that mounting
   needed; processes outside are in another user namespace, which the kernel keeps from him.
7. The namespaces end with the last process in them; outside nothing was ever mounted.

Not modelled: devices in /dev that root writes by themselves; sockets by path at which something outside
listens, which cannot be connected to through an overlay; folders of the user's, which an ordinary user's
program cannot rename in one step (EXDEV, after which `mv` and `shutil.move` copy; `renaming.py` has
`os.rename` do so).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import re
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

_NEWNS, _NEWUSER, _NEWNET = 0x00020000, 0x10000000, 0x40000000  # linux/sched.h
_BIND, _REC, _PRIVATE, _DETACH = 4096, 16384, 1 << 18, 2  # linux/mount.h, sys/mount.h
_SYSTEM = ("/proc", "/sys", "/dev", "/usr", "/etc", "/boot", "/lost+found", "/root", "/snap")
_DEPTH, _MOST_FOLDERS = 3, 2000
_AS_OUTSIDE = ("/proc", "/sys", "/dev")
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = 442, -100, 0x8000, 1
_CAPABILITIES_3 = 0x20080522  # linux/capability.h
# CAP_DAC_READ_SEARCH, SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, MKNOD
_OUTWARD = 1 << 2 | 1 << 16 | 1 << 17 | 1 << 19 | 1 << 21 | 1 << 27
_CAPBSET_DROP = 24  # linux/prctl.h
_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/sys")
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def enter(folder: str, holds_network: Callable[[], bool] | None = None) -> bool:
    """Put this process, which has one thread, into the namespaces. Its overlays lie in `folder`;
    folder/uppers says where: a line each, the number of the folder there, and the path outside that it lies
    over. folder/said is the same folder inside and outside.
    holds_network: has connections to other machines refused; return False where that is not possible: then a
    network namespace does it, in which the program reaches what it started itself. Return whether that is so.

    Raises OSError where no overlay is possible; the process is then of no use.
    """
    user, cwd = os.getuid(), os.getcwd()
    theirs = _unshare(_NEWNS)
    _mount("none", "/", "", _REC | _PRIVATE)
    root = _Root(folder, theirs)
    root.build("/")
    root.build_shared_memory()
    root.close_settings()
    if not root.holds(cwd):
        raise OSError(errno.EXDEV, "no overlay can be laid over the file system of this folder", cwd)
    root.bind(os.path.join(folder, "said"))
    os.chdir(root.path)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _DETACH)
    os.chdir(cwd)
    is_alone = holds_network is not None and not holds_network()
    if is_alone:
        _call("unshare", _NEWNET)
        _own_addresses()
    _give_back(everything=user != 0)
    return is_alone


def _unshare(kinds: int) -> set[str] | None:
    """Enter the namespaces; return the folders to make in overlays, None without user namespaces."""
    user, group = os.getuid(), os.getgid()
    if user == 0 and not _mapped():
        with contextlib.suppress(OSError):  # a container's root may be allowed what everybody is
            _call("unshare", kinds)
            return None
    _check_groups(os.getcwd())
    theirs = _on_the_way()  # in the namespace nobody knows whose they are
    _call("unshare", kinds | _NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    return theirs


def _give_back(everything: bool) -> None:
    """Give capabilities back, in what is started, too: all of them (permissions mean what they did before),
    or those that lead outside."""
    header = struct.pack("Ii", _CAPABILITIES_3, 0)
    if everything:
        _call("capset", header, bytes(24))
        return
    for number in range(_OUTWARD.bit_length()):
        if _OUTWARD >> number & 1:
            _call("prctl", _CAPBSET_DROP, number, 0, 0, 0)
    held = ctypes.create_string_buffer(24)
    _call("capget", header, held)
    words = struct.unpack("6I", held.raw)  # effective, permitted, inheritable; then of the next 32
    _call("capset", header, struct.pack("6I", *(word & ~_OUTWARD for word in words[:3]), *words[3:]))


def _own_addresses() -> None:
    """Bring up the loopback of a network namespace."""
    with socket.socket() as probe:
        flags = struct.unpack(
            "16sh", fcntl.ioctl(probe, _SIOCGIFFLAGS, struct.pack("16sh22x", b"lo", 0))[:18]
        )[1]
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _IFF_UP))


class _Root:
    """The new root, folder by folder."""

    def __init__(self, folder: str, theirs: set[str] | None) -> None:
        self.path = os.path.join(folder, "root")
        self._folder, self._mounts, self._overlays = folder, _mount_points(), dict[str, int]()
        self._others: list[str] = []  # folders outside that are not overlaid
        os.mkdir(self.path)
        _mount(self.path, self.path, "", _BIND)
        self._is_root, self._theirs = theirs is None, sorted(theirs or ())
        # redirect_dir needs attributes that only root may set.
        self._options = "redirect_dir=on" if self._is_root else "userxattr"

    def build(self, outside: str) -> None:
        """Mount the file or folder of this path, and the mounts in it."""
        inside = self.path + outside
        below = [
            point
            for point in self._mounts
            if point.startswith(outside.rstrip("/") + "/") and point != outside
        ]
        nearest = [point for point in below if not any(point.startswith(other + "/") for other in below)]
        if outside in _AS_OUTSIDE or not os.path.isdir(outside):
            self._as_outside(outside, writable=outside in _AS_OUTSIDE)
            return
        try:
            self._overlay(outside)
        except OSError:
            if not nearest:
                self._as_outside(outside, writable=False)
                return
            self._rebuild_folder(outside, inside)
            return
        for point in nearest:
            if os.path.lexists(inside + point.removeprefix(outside.rstrip("/"))):
                self.build(point)

    def bind(self, outside: str) -> None:
        """Mount a folder that is the same inside and outside."""
        _mount(outside, self.path + outside, "", _BIND)

    def holds(self, outside: str) -> bool:
        """Return whether writes to this folder go to an overlay."""
        over = [
            point
            for point in (*self._overlays, *self._others)
            if f"{outside}/".startswith(point.rstrip("/") + "/")
        ]
        return max(over, key=len, default="") in self._overlays

    def build_shared_memory(self) -> None:
        """Mount an overlay of /dev/shm, in memory of its own."""
        if "/dev/shm" in self._mounts:
            memory = os.path.join(self._folder, "shm")
            os.mkdir(memory)
            _mount("tmpfs", memory, "tmpfs", 0)
            self._overlay("/dev/shm", os.path.join(memory, "upper"))

    def close_settings(self) -> None:
        """Let the kernel's settings be read only, which root could change."""
        for path in filter(os.path.exists, _SETTINGS if self._is_root else ()):
            _mount(path, self.path + path, "", _BIND | _REC)
            _make_read_only(self.path + path)

    def _overlay(self, outside: str, upper: str = "") -> None:
        """Mount an overlay over an outside folder."""
        number = len(self._overlays) + 1
        upper = upper or os.path.join(self._folder, str(number))
        work = f"{upper}.work"
        for folder in (upper, work):
            if not os.path.isdir(folder):  # or one was made in vain
                os.mkdir(folder)
        self._as_lower(outside, upper)
        for path in self._theirs:
            if path.startswith(outside.rstrip("/") + "/"):
                folder = upper + path.removeprefix(outside.rstrip("/"))
                if not os.path.lexists(folder):
                    os.mkdir(folder)
                    self._as_lower(path, folder)
        layers = ",".join(
            kind + "=" + re.sub(r"([\\,:])", r"\\\1", path)
            for kind, path in (("lowerdir", outside), ("upperdir", upper), ("workdir", work))
        )
        _mount("overlay", self.path + outside, "overlay", 0, f"{layers},{self._options}")
        self._overlays[outside] = number
        with open(
            os.path.join(self._folder, "uppers"), "a", encoding="utf-8", errors="surrogateescape"
        ) as table:
            table.write(f"{number} {outside}\0")

    def _as_lower(self, outside: str, folder: str) -> None:
        """Give a folder its outside mode and, for root, its owner."""
        status = os.stat(outside)
        os.chmod(folder, stat.S_IMODE(status.st_mode) & (~0 if os.access(outside, os.W_OK) else ~0o222))
        if self._is_root:
            os.chown(folder, status.st_uid, status.st_gid)

    def _as_outside(self, outside: str, writable: bool) -> None:
        """Mount an outside folder as it is, read-only unless `writable`."""
        inside = self.path + outside
        _mount(outside, inside, "", _BIND | _REC)
        self._others.append(outside)
        if not writable:
            _make_read_only(inside)

    def _rebuild_folder(self, outside: str, inside: str) -> None:
        """Make an outside folder anew: its links, and a mount for each of its entries."""
        for name in os.listdir(outside):
            path, target = os.path.join(outside, name), os.path.join(inside, name)
            if os.path.islink(path):
                os.symlink(os.readlink(path), target)
                continue
            if os.path.isdir(path):
                os.mkdir(target)
            else:
                os.close(os.open(target, os.O_CREAT, 0o600))
            self.build(path)
        os.chmod(inside, stat.S_IMODE(os.stat(outside).st_mode))


def _make_read_only(inside: str) -> None:
    """Make a mount, and those in it, read-only."""
    how = struct.pack("QQQQ", _ATTR_RDONLY, 0, 0, 0)
    _call(
        "syscall",
        _SYS_MOUNT_SETATTR,
        _AT_FDCWD,
        os.fsencode(inside),
        _AT_RECURSIVE,
        how,
        ctypes.c_size_t(len(how)),
    )


def _is_mine(status: os.stat_result) -> bool:
    return (status.st_uid, status.st_gid) == (os.getuid(), os.getgid())


def _check_groups(folder: str) -> None:
    """Raise OSError if files this user may write belong to other groups, as far as seen quickly."""
    folders, count = [folder], 0
    for path in folders:
        for entry in _entries(path):
            count += 1
            if count > _MOST_FOLDERS:
                return
            if not entry.is_symlink() and not _is_mine(entry.stat()) and os.access(entry.path, os.W_OK):
                raise OSError(errno.EOVERFLOW, "a file of another group's", entry.path)
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)


def _on_the_way() -> set[str]:
    """Folders, and those above them, in which this user may write or which the program's words name, where
    any is another user's: the working folder, home, temporary files, arguments, variables; and what he may
    write in near the root of the file system."""
    named = [os.getcwd(), os.path.expanduser("~"), "/tmp", "/var/tmp", *sys.argv, *os.environ.values()]
    paths = {
        os.path.realpath(word.rpartition("=")[2])
        for word in named
        if word and len(word) < 4096 and "\0" not in word
    }
    near = [
        (entry.path, 1)
        for entry in _entries("/")
        if entry.is_dir(follow_symlinks=False) and entry.path not in _SYSTEM
    ]
    for path, depth in near:
        if len(near) < _MOST_FOLDERS and depth < _DEPTH and not _is_mine(os.stat(path)):
            near += [
                (entry.path, depth + 1) for entry in _entries(path) if entry.is_dir(follow_symlinks=False)
            ]
    paths |= {path for path, _ in near[:_MOST_FOLDERS] if os.access(path, os.W_OK)}
    folders = set[str]()
    for path in paths:
        names = path.strip("/").split("/")
        above = ("/" + "/".join(names[:count]) for count in range(1, len(names) + 1))
        folders.update(itertools.takewhile(os.path.isdir, above))
    theirs = {path for path in folders if not _is_mine(os.stat(path))}
    return {path for path in folders if any(f"{other}/".startswith(f"{path}/") for other in theirs)}


def _entries(path: str) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        yield from entries


def _mapped() -> bool:
    """Return whether this process is in a user namespace already, where other users are unknown."""
    with open("/proc/self/uid_map", encoding="ascii") as table:
        return table.read().split() != ["0", "0", "4294967295"]


def _mount_points() -> list[str]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        points = {line.split(" ")[4] for line in table}
    return sorted(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point) for point in points)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    encoded = [os.fsencode(text) for text in (source, target, kind, options)]
    _call("mount", encoded[0], encoded[1], encoded[2] or None, ctypes.c_ulong(flags), encoded[3] or None)


def _call(name: str, *arguments: Any) -> None:
    """Call a function of libc's. Raises OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
