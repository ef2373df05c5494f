"""System calls by which a library in C, or a process that is not Python's, changes, opens, or looks at a file
by its path (`seccomp.py`): the process outside does them, as Python's functions do, in the overlay of
`layer.py`.

1. Until something is written, and where a path leads to the same file in the overlay and outside, the call
   goes on. So it does in /dev, /proc, /sys and the overlay's own folder.
2. Else the file is opened here, and the caller gets its descriptor; what is asked of a path is asked of the
   real one, and written to the caller's memory.
3. A folder that has names in the overlay and outside is opened as a folder with both, whose files are empty:
   what is in it is looked up by its path, as everything.
4. A thread that may write in the overlay alone does every change: no link that is moved while it works leads
   it out of there.

Not modelled: a working folder, and a program to start, that are only in the overlay (Python's `cwd` is
sent there); the process's user where it changed it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from analyzer_sandbox.landlock import Ruleset
from analyzer_sandbox.layer import Layer
from analyzer_sandbox.seccomp import LOOKS, Question, Sent, number_of

HERE, NO_LINK, _IS_FOLDER, _FOLLOW = -100, 0x100, 0x200, 0x400  # linux/fcntl.h
_BY_EFFECTIVE = 0x200  # AT_EACCESS
_NO_REPLACE, _EXCHANGE = 1, 2  # linux/fs.h
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_TEMPORARY = getattr(os, "O_TMPFILE", 1 << 30)
_NO_FOLLOW_CALLS = ("lstat", "readlink", "readlinkat", "lgetxattr", "llistxattr")
_LOOKS_FROM_FOLDERS = ("newfstatat", "statx", "faccessat", "faccessat2", "readlinkat")
# Where a call that looks has its flags, by their place.
_FLAGS_AT = {"newfstatat": 3, "statx": 2, "faccessat2": 3}


class Path(NamedTuple):
    """A call's path. name: from the root, links and all. place: as `Layer.place` says. is_moved: whether it
    is from a folder in the overlay, where the kernel would look for something else."""

    name: str
    place: str
    is_moved: bool


class Paths:
    """Answers for one program. folder: its overlay's (`Scratch`)."""

    def __init__(self, folder: str, layer: Layer) -> None:
        self._layer, self._folder, self.is_over = layer, folder, False
        self._views = os.path.join(folder, "views")
        self._view_of: dict[str, str] = {}  # by their places
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._restricted = ThreadPoolExecutor(1, initializer=self._restrict)
        os.makedirs(self._views, exist_ok=True)

    def _restrict(self) -> None:
        """Let this thread write in the overlay alone, where the kernel can."""
        with contextlib.suppress(OSError):
            Ruleset((self._folder, "/dev")).restrict()

    def apart(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Have the thread do this that may write in the overlay alone."""
        if self.is_over:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return self._restricted.submit(function, *arguments).result()

    def answer(self, question: Question) -> int | Sent | None:
        """Return the call's result, None where it may go on. Raises OSError, with which it fails."""
        name, arguments = question.name, question.arguments
        if name in LOOKS:
            return None if self._layer.untouched() else self._look(question)
        if name in ("open", "creat", "openat"):
            return self._opens(question)
        kind = name.removesuffix("2").removesuffix("at")
        if kind in ("rename", "link"):
            return self._two(question, kind)
        if kind == "symlink":
            at, target = (1, arguments[0]) if name == "symlinkat" else (None, arguments[0])
            path = self._path(question, at, 2 if name == "symlinkat" else 1, follow=False)
            leads = question.text_at(target)
            return self._change(path, lambda: self._make(path.place, lambda real: os.symlink(leads, real)))
        at, first = (0, 1) if name.endswith("at") else (None, 0)
        path = self._path(question, at, first, follow=kind == "truncate")
        values = arguments[first + 1 :]
        if kind in ("unlink", "rmdir"):
            is_folder = kind == "rmdir" or bool(at == 0 and values[0] & _IS_FOLDER)
            return self._change(path, lambda: self._layer.remove(self._there(path), is_folder))
        if kind == "truncate":
            return self._change(path, lambda: self._truncate(path, values[0]))
        return self._change(path, lambda: self._make_node(question, kind, path.place, values))

    # -- where a path leads

    def _path(self, question: Question, at: int | None, where: int, follow: bool) -> Path:
        """Return a path of the call. at: argument that is the folder's descriptor; where: its own."""
        text = os.fsdecode(question.text_at(question.arguments[where]))
        if not text:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.resolved(question, text, None if at is None else question.arguments[at], follow)

    def resolved(self, question: Question, path: str, folder: int | None, follow: bool) -> Path:
        """Return a path of the call. folder: the descriptor it is from."""
        is_moved = False
        if not path.startswith("/"):
            process, descriptor = f"/proc/{question.process}", HERE if folder is None else signed(folder)
            base = os.readlink(f"{process}/cwd" if descriptor == HERE else f"{process}/fd/{descriptor}")
            above = self.outside(base)
            path, is_moved = os.path.join(above, path), above != base
        if path.endswith("/"):  # a link to a folder is followed then
            path, follow = path.rstrip("/") or "/", True
        self._layer.process = question.process
        return Path(path, self._layer.place(path, follow), is_moved)

    def outside(self, path: str) -> str:
        """Return the path that something in the overlay's folder has for the program."""
        return self._layer.outside(self.viewed(path))

    def viewed(self, path: str) -> str:
        """Return the path that is meant with one in a folder that has names of both."""
        if not path.startswith(f"{self._views}/"):
            return path
        number, _, below = path[len(self._views) + 1 :].partition("/")
        place = next(place for place, view in self._view_of.items() if os.path.basename(view) == number)
        return f"{place}/{below}" if below else place

    def _goes_on(self, path: Path) -> bool:
        """Return whether a path that is read leads to the same file outside."""
        return not path.is_moved and os.path.normpath(path.name) == path.place == self.real(path)

    def is_free(self, path: Path) -> bool:
        """Return whether the overlay leaves the file alone, by both its names."""
        return not path.is_moved and self._layer.free(path.name) and self._layer.free(path.place)

    def making(self, path: Path) -> str:
        """Return the real path for creating something."""
        return self._layer.making(path.place)

    def real(self, path: Path) -> str:
        """Return the real path to read."""
        return self._layer.reading(path.place, follow=False)

    def _there(self, path: Path) -> str:
        """Return the place. Raises FileNotFoundError where nothing is."""
        if not os.path.lexists(self.real(path)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return path.place

    # -- opening

    def _opens(self, question: Question) -> Sent | None:
        name, arguments = question.name, question.arguments
        at, where = (0, 1) if name == "openat" else (None, 0)
        flags, mode = (signed(value) for value in arguments[where + 1 : where + 3])
        if name == "creat":
            flags, mode = os.O_CREAT | os.O_WRONLY | os.O_TRUNC, signed(arguments[1])
        changes = bool(flags & _WRITES) and not flags & os.O_PATH
        if not changes and self._layer.untouched():
            return None
        follow = not flags & os.O_NOFOLLOW and not (flags & os.O_CREAT and flags & os.O_EXCL)
        path = self._path(question, at, where, follow)
        if self.is_free(path):
            return None
        real = self.real(path)
        if not changes and (viewed := self._viewed(path.place, real)) is not None:
            return self.apart(self._send, question, viewed, flags, mode)  # type: ignore[no-any-return]
        if not changes and self._goes_on(path):
            return None
        masked = mode & ~file_mask(question) if flags & os.O_CREAT else mode
        return self.apart(self._open, question, path, flags, masked)  # type: ignore[no-any-return]

    def _open(self, question: Question, path: Path, flags: int, mode: int) -> Sent:
        real = self.real(path)
        exists = os.path.lexists(real)
        if flags & _TEMPORARY == _TEMPORARY:
            real = self._layer.changing(path.place)
        elif flags & _WRITES and not (
            flags & os.O_EXCL and flags & os.O_CREAT if exists else not flags & os.O_CREAT
        ):
            real = (self._layer.truncating if flags & os.O_TRUNC else self._layer.changing)(path.place)
        if exists and stat.S_ISFIFO(os.lstat(real).st_mode):  # waits for who opens its other end
            call = (question, real, flags, mode)
            threading.Thread(target=self._send_waited, args=call, daemon=True).start()
            return Sent()
        return self._send(question, real, flags, mode, is_new=not exists)

    def _send_waited(self, question: Question, real: str, flags: int, mode: int) -> None:
        try:
            self._send(question, real, flags, mode)
        except OSError as error:
            question.send(0, error.errno or errno.EACCES)

    def _send(self, question: Question, real: str, flags: int, mode: int, is_new: bool = False) -> Sent:
        kept = flags & ~os.O_PATH  # the kernel adds no descriptor of that kind
        opened = os.open(real, kept | os.O_CLOEXEC | os.O_NOCTTY, mode & 0o7777)
        try:
            if is_new and flags & os.O_CREAT:
                os.fchmod(opened, mode & 0o7777)
            question.send_file(opened, bool(flags & os.O_CLOEXEC))
        finally:
            os.close(opened)
        return Sent()

    def _viewed(self, place: str, real: str) -> str | None:
        """Return a folder with the names that a folder has in the overlay and outside. None: the real one has
        them."""
        layer = self._layer
        if real == place and not layer.has_removals(place):
            return None
        if not layer.is_below(place) or not os.path.isdir(real):
            return None
        return self.apart(self._make_view, place, real)  # type: ignore[no-any-return]

    def _make_view(self, place: str, above: str) -> str:
        view = self._view_of.setdefault(place, os.path.join(self._views, str(len(self._view_of))))
        os.makedirs(view, exist_ok=True)
        names, there = set(self._layer.names(place)), set(os.listdir(view))
        for name in there - names:
            _remove(os.path.join(view, name))
        for name in names - there:
            mode = os.lstat(self._layer.reading(f"{place.rstrip('/')}/{name}", follow=False)).st_mode
            _stand_in(os.path.join(view, name), mode)
        shutil.copystat(above, view)
        os.chmod(view, stat.S_IMODE(os.stat(above).st_mode) | 0o700)
        return view

    # -- looking

    def _look(self, question: Question) -> int | None:
        name, arguments = question.name, question.arguments
        at, where = (0, 1) if name in _LOOKS_FROM_FOLDERS else (None, 0)
        flags = arguments[_FLAGS_AT[name]] if name in _FLAGS_AT else 0
        follow = name not in _NO_FOLLOW_CALLS and not flags & NO_LINK
        if not question.text_at(arguments[where]):
            return None  # an open file
        path = self._path(question, at, where, follow)
        if self.is_free(path):
            return None
        real = self.real(path)
        if (viewed := self._viewed(path.place, real)) is not None:
            real = viewed
        elif self._goes_on(path):
            return None
        if "access" in name:
            return self._access(real, arguments[where + 1], bool(flags & _BY_EFFECTIVE))
        if name in ("readlink", "readlinkat"):
            leads = os.fsencode(os.readlink(real))[: arguments[where + 2]]
            question.write_at(arguments[where + 1], leads)
            return len(leads)
        if "xattr" in name:
            return self._attributes(question, real)
        return self._known(question, real, where)

    def _access(self, real: str, mode: int, effective: bool) -> int:
        os.lstat(real)
        if not os.access(real, mode & 7, effective_ids=effective):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return 0

    def _attributes(self, question: Question, real: str) -> int:
        arguments = question.arguments
        if "get" in question.name:
            value = os.getxattr(real, question.text_at(arguments[1]), follow_symlinks=False)
            address, room = arguments[2:4]
        else:
            names = os.listxattr(real, follow_symlinks=False)
            value = b"".join(os.fsencode(name) + b"\0" for name in names)
            address, room = arguments[1:3]
        if room and len(value) > room:
            raise OSError(errno.ERANGE, os.strerror(errno.ERANGE))
        if room and value:
            question.write_at(address, value)
        return len(value)

    def _known(self, question: Question, real: str, where: int) -> int:
        """Ask the kernel the same of the real path."""
        name, arguments = question.name, question.arguments
        known, path = ctypes.create_string_buffer(256), ctypes.c_char_p(os.fsencode(real))
        if name == "statx":
            call: tuple[Any, ...] = (HERE, path, arguments[2] | NO_LINK, arguments[3], known)
            address = arguments[4]
        else:
            call, address = (HERE, path, known, NO_LINK), arguments[where + 1]
            name = "newfstatat"
        if self._libc.syscall(ctypes.c_long(number_of(name)), *call) < 0:
            failed = ctypes.get_errno()
            raise OSError(failed, os.strerror(failed))
        size = 256 if name == "statx" else _STAT_BYTES[os.uname().machine]
        question.write_at(address, known.raw[:size])
        return 0

    # -- changing

    def _change(self, path: Path, change: Callable[[], Any]) -> int | None:
        """Do what changes something at a path; None where the call may do it."""
        if self.is_free(path):
            return None
        self.apart(change)
        return 0

    def _make(self, place: str, make: Callable[[str], None]) -> None:
        if os.path.lexists(self._layer.reading(place, follow=False)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        make(self._layer.making(place))

    def _make_node(self, question: Question, kind: str, place: str, values: tuple[int, ...]) -> None:
        mode = values[0] & ~file_mask(question)

        def make(real: str) -> None:
            if kind == "mkdir":
                os.mkdir(real)
            elif stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFIFO):
                os.mknod(real, mode)
            else:
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
            os.chmod(real, mode & 0o7777)

        self._make(place, make)

    def _truncate(self, path: Path, length: int) -> None:
        os.truncate(self._layer.changing(self._there(path)), length)

    def _two(self, question: Question, kind: str) -> int | None:
        """Rename, or link, one path to another."""
        name, arguments = question.name, question.arguments
        by_folder = name not in ("rename", "link")
        (from_at, from_), (to_at, to) = ((0, 1), (2, 3)) if by_folder else ((None, 0), (None, 1))
        flags = arguments[4] if name in ("linkat", "renameat2") else 0
        source = self._path(question, from_at, from_, kind == "link" and bool(flags & _FOLLOW))
        target = self._path(question, to_at, to, follow=False)
        if self.is_free(source) and self.is_free(target):
            return None
        self.apart(self._rename if kind == "rename" else self._link, source, target, flags)
        return 0

    def _rename(self, source: Path, target: Path, flags: int) -> None:
        layer = self._layer
        self._there(source)
        if flags & ~(_NO_REPLACE | _EXCHANGE):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if flags & _NO_REPLACE and os.path.lexists(self.real(target)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if flags & _EXCHANGE:
            aside = f"{self._there(target)}.exchanged"
            layer.rename(source.place, aside)
            layer.rename(target.place, source.place)
            layer.rename(aside, target.place)
            return
        layer.rename(source.place, target.place)

    def _link(self, source: Path, target: Path, _: int) -> None:
        self._there(source)
        existing = self._layer.changing(source.place)
        self._make(target.place, lambda real: os.link(existing, real, follow_symlinks=False))


_STAT_BYTES = {"x86_64": 144, "aarch64": 128}  # struct stat of asm/stat.h


def signed(value: int) -> int:
    """Return an argument as the `int` it is."""
    return int(struct.unpack("i", struct.pack("I", value & 0xFFFFFFFF))[0])


def file_mask(question: Question) -> int:
    """Return the permissions that the process leaves out of what it makes."""
    with open(f"/proc/{question.process}/status", encoding="utf-8", errors="replace") as lines:
        return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), 0o022)


def _stand_in(path: str, mode: int) -> None:
    """Make an empty entry of a kind."""
    if stat.S_ISDIR(mode):
        os.mkdir(path)
    elif stat.S_ISLNK(mode):
        os.symlink("link", path)
    elif stat.S_ISFIFO(mode):
        os.mkfifo(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        os.rmdir(path)
    else:
        os.unlink(path)
