"""Python's own functions, and those of some libraries in C, sent to the overlay of `layer.py` while it is
open.

1. A function that takes a path is replaced where it is defined and in every module that has it by its name.
   Threads that were there before go on outside.
2. Files are opened by `open`'s own `opener`, so that a file is called what the program called it.
3. A library that opens files by itself is given the path in the overlay, where it is one of `libraries.py`.
4. A child process is Python, which joins the overlay (`path/sitecustomize.py`), or may write nothing
   where Landlock (`landlock.py`) can say so.

Not modelled: other libraries in C, and on macOS programs that are no Python: they read and write outside.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

from analyzer_sandbox.importing import exchange_all
from analyzer_sandbox.landlock import Ruleset
from analyzer_sandbox.layer import Layer
from analyzer_sandbox.libraries import libraries

Function = Callable[..., Any]
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_TEMPORARY = getattr(os, "O_TMPFILE", 0)
_READS = ("stat", "access", "statvfs", "getxattr", "listxattr", "pathconf", "lstat", "readlink")
_READS_NO_LINK = ("lstat", "readlink")
_CHANGES = (
    "chmod",
    "chown",
    "utime",
    "truncate",
    "setxattr",
    "removexattr",
    "chflags",
    "lchmod",
    "lchown",
    "lchflags",
)
_CHANGES_NO_LINK = ("lchmod", "lchown", "lchflags")


# How modules call `open` that have it by another name (bz2, tarfile).
_OPEN = ("open", "_builtin_open", "bltn_open", "builtin_open", "io_open")


class Substitute:
    """Callable that replaces a built-in function. As a class attribute it is no method, like a built-in."""

    def __init__(self, original: Any, call: Function) -> None:
        self.__name__, self.__doc__, self.__wrapped__, self._call = (
            original.__name__,
            original.__doc__,
            original,
            call,
        )

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._call(*arguments, **named)


class Functions:
    """Replaces functions for the overlay in `folder`. environment: variables by which a process joins it.
    others: whether the calling thread is none of the program's. ruleset: rights of child processes (None:
    this process's)."""

    def __init__(
        self,
        folder: str,
        environment: dict[str, str],
        others: Callable[[], bool],
        ruleset: Ruleset | None = None,
    ) -> None:
        self._layer, self._environment, self._ruleset, self._others = (
            Layer(folder),
            environment,
            ruleset,
            others,
        )
        self._at_work = threading.local()
        self._originals: dict[str, Function] = {}

    # -- around every call

    def _is_bypassed(self) -> bool:
        """Return whether this call is none of the program's."""
        return getattr(self._at_work, "now", False) or self._others()

    @contextlib.contextmanager
    def _work(self, *paths: Any) -> Iterator[None]:
        """Run the overlay's own calls unredirected; errors name the program's paths."""
        self._at_work.now = True
        try:
            yield
        except OSError as error:
            if error.filename is not None and paths:
                error.filename = paths[0]
            if error.filename2 is not None and len(paths) > 1:
                error.filename2 = paths[1]
            raise
        finally:
            self._at_work.now = False

    def _path(self, path: Any, folder: int | None = None) -> str:
        """Return a path as text; folder: the descriptor it is relative to."""
        if isinstance(path, int):
            return self._layer.outside(_path_of(path))
        text = os.fsdecode(path)
        return text if folder is None else os.path.join(self._layer.outside(_path_of(folder)), text)

    # -- os

    def _reads(self, original: Function, follow: bool) -> Function:
        """Return a replacement for a function that reads a path."""

        def call(path: Any, *arguments: Any, dir_fd: int | None = None, **named: Any) -> Any:
            if self._is_bypassed() or isinstance(path, int):
                return original(path, *arguments, **_given(dir_fd=dir_fd), **named)
            with self._work(path):
                target = self._layer.reading(self._path(path, dir_fd), named.get("follow_symlinks", follow))
                return original(
                    target if isinstance(path, str) or dir_fd is not None else os.fsencode(target),
                    *arguments,
                    **named,
                )

        return call

    def _changes(self, original: Function, follow: bool) -> Function:
        """Return a replacement for a function that changes what is at a path."""

        def call(path: Any, *arguments: Any, dir_fd: int | None = None, **named: Any) -> Any:
            if self._is_bypassed():
                return original(path, *arguments, **_given(dir_fd=dir_fd), **named)
            with self._work(path):
                if isinstance(path, int) and not self._path(path).startswith("/"):
                    return original(path, *arguments, **named)  # a pipe, a socket
                place = self._layer.place(self._path(path, dir_fd), named.get("follow_symlinks", follow))
                way = self._layer.changing if original.__name__ == "truncate" else self._layer.marking
                return original(way(place), *arguments, **named)

        return call

    def _makes(self, original: Function) -> Function:
        """Return a replacement for a function that creates a path."""

        def call(path: Any, *arguments: Any, dir_fd: int | None = None, **named: Any) -> Any:
            if self._is_bypassed():
                return original(path, *arguments, **_given(dir_fd=dir_fd), **named)
            with self._work(path):
                place = self._layer.place(self._path(path, dir_fd), follow=False)
                if os.path.lexists(target := self._layer.reading(place, follow=False)):
                    return original(target, *arguments, **named)  # raises that it is there
                return original(self._layer.making(place), *arguments, **named)

        return call

    def _removes(self, original: Function, folder: bool) -> Function:
        """Return a replacement for a function that removes a path."""

        def call(path: Any, *, dir_fd: int | None = None) -> None:
            if self._is_bypassed():
                return original(path, **_given(dir_fd=dir_fd))  # type: ignore[no-any-return]
            with self._work(path):
                place = self._layer.place(self._path(path, dir_fd), follow=False)
                if not os.path.lexists(self._layer.reading(place, follow=False)):
                    raise FileNotFoundError(2, os.strerror(2), path)
                return self._layer.remove(place, folder)

        return call

    def _renames(self, original: Function) -> Function:
        """Return a replacement for a function that renames a path."""

        def call(src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
            if self._is_bypassed():
                folders = _given(src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
                return original(src, dst, **folders)  # type: ignore[no-any-return]
            with self._work(src, dst):
                source, target = (
                    self._layer.place(self._path(path, folder), follow=False)
                    for path, folder in ((src, src_dir_fd), (dst, dst_dir_fd))
                )
                if not os.path.lexists(self._layer.reading(source, follow=False)):
                    raise FileNotFoundError(2, os.strerror(2), src, None, dst)
                return self._layer.rename(source, target)

        return call

    def _links(self, original: Function, hard: bool) -> Function:
        """Return a replacement for a function that creates a link."""

        def call(src: Any, dst: Any, *arguments: Any, **named: Any) -> None:
            if self._is_bypassed():
                return original(src, dst, *arguments, **named)  # type: ignore[no-any-return]
            folders = [named.pop(name, None) for name in ("src_dir_fd", "dst_dir_fd", "dir_fd")]
            with self._work(src, dst):
                place = self._layer.place(
                    self._path(dst, folders[1] if folders[1] is not None else folders[2]), follow=False
                )
                target = self._layer.making(place)
                if os.path.lexists(self._layer.reading(place, follow=False)):
                    raise FileExistsError(17, os.strerror(17), src, None, dst)
                if hard:
                    src = self._layer.changing(
                        self._layer.place(self._path(src, folders[0]), named.get("follow_symlinks", True))
                    )
                return original(src, target, *arguments, **named)  # type: ignore[no-any-return]

        return call

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """Replace `os.open`."""
        original = self._originals["open"]
        if self._is_bypassed() or isinstance(path, int):
            return original(path, flags, mode, **_given(dir_fd=dir_fd))  # type: ignore[no-any-return]
        with self._work(path):
            follow = not flags & os.O_NOFOLLOW and not (flags & os.O_CREAT and flags & os.O_EXCL)
            name = self._path(path, dir_fd)
            if _TEMPORARY and flags & _TEMPORARY == _TEMPORARY:
                return original(self._layer.changing(self._layer.place(name, follow)), flags, mode)  # type: ignore[no-any-return]
            if not flags & _WRITES:
                return original(self._layer.reading(name, follow), flags, mode)  # type: ignore[no-any-return]
            place = self._layer.place(name, follow)
            exists = os.path.lexists(target := self._layer.reading(place, follow=False))
            if flags & os.O_EXCL and flags & os.O_CREAT if exists else not flags & os.O_CREAT:
                return original(target, flags, mode)  # type: ignore[no-any-return]  # raises
            chosen = self._layer.truncating if flags & os.O_TRUNC else self._layer.changing
            return original(chosen(place), flags, mode)  # type: ignore[no-any-return]

    def _listdir(self, path: Any = None) -> list[Any]:
        """Replace `os.listdir`."""
        if self._is_bypassed() or self._layer.untouched():
            return self._originals["listdir"](path)  # type: ignore[no-any-return]
        with self._work(path):
            names = self._layer.names(self._path("." if path is None else path))
            return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def _scandir(self, path: Any = None) -> Any:
        """Replace `os.scandir`."""
        if self._is_bypassed() or self._layer.untouched():
            return self._originals["scandir"](path)
        with self._work(path):
            name = "." if path is None else path
            return _Entries(list(self._layer.entries(self._path(name))))

    def _chdir(self, path: Any) -> None:
        """`os.chdir`: outside, where the folder is there, too."""
        if self._is_bypassed() or isinstance(path, int):
            self._originals["chdir"](path)
            return
        with self._work(path):
            place = self._layer.place(self._path(path))
            self._originals["chdir"](place if self._layer.is_below(place) else self._layer.reading(place))

    def _getcwd(self) -> str:
        """Replace `os.getcwd`."""
        return self._layer.outside(self._originals["getcwd"]())

    def _system(self, command: str) -> int:
        """Replace `os.system` by a child process, which the sandbox restricts."""
        code = subprocess.call(command, shell=True)
        return code << 8 if code >= 0 else -code

    def _started(self, process: Any, *arguments: Any, **named: Any) -> None:
        """`subprocess.Popen`: the process joins the overlay, or may write nothing."""
        if not self._is_bypassed():
            if (environment := named.get("env")) is not None:
                path = filter(None, (self._environment["PYTHONPATH"], environment.get("PYTHONPATH")))
                named["env"] = {**environment, **self._environment, "PYTHONPATH": os.pathsep.join(path)}
            if named.get("cwd") is not None:
                named["cwd"] = self._layer.reading(self._path(named["cwd"]))
            if (ruleset := self._ruleset) is not None:
                first = named.get("preexec_fn")

                def restricted() -> None:
                    if first is not None:
                        first()
                    ruleset.restrict()

                named["preexec_fn"] = restricted
        self._originals["Popen"](process, *arguments, **named)

    # -- everything

    def _os_replacements(self) -> dict[str, Function]:
        """Return the replacements for functions of `os`, by name."""
        own = self._originals
        return {
            **{name: self._reads(own[name],
            name not in _READS_NO_LINK) for name in _READS if name in own},
            **{name: self._changes(own[name],
            name not in _CHANGES_NO_LINK) for name in _CHANGES if name in own},
            "fchmod": self._changes(own["chmod"], True), "fchown": self._changes(own["chown"], True),
            **{name: self._makes(own[name]) for name in ("mkdir", "mkfifo", "mknod") if name in own},
            **{name: self._removes(own[name], name == "rmdir") for name in ("unlink", "remove", "rmdir")},
            **{name: self._renames(own[name]) for name in ("rename", "replace")},
            "link": self._links(own["link"], True), "symlink": self._links(own["symlink"], False),
            "open": self._open, "listdir": self._listdir, "scandir": self._scandir, "chdir": self._chdir,
            "getcwd": self._getcwd, "getcwdb": lambda: os.fsencode(self._getcwd()), "system": self._system,
        }  # fmt: skip

    def _io_replacements(self) -> dict[str, tuple[Any, Any]]:
        """Return (original, replacement) for functions of `io`, by name."""
        opened, file_io = builtins.open, io.FileIO

        def opener(path: Any, flags: int) -> int:
            return self._open(path, flags, 0o666)

        def open(file: Any, *arguments: Any, **named: Any) -> Any:
            by = {} if isinstance(file, int) else {"opener": opener}
            return opened(file, *arguments, **{**by, **named})

        def begin(own: Any, file: Any, mode: str = "r", closefd: bool = True, opener: Any = opener) -> None:
            file_io.__init__(own, file, mode, closefd, None if isinstance(file, int) else opener)

        kind: Any = type(
            "Kind",
            (type(file_io),),
            {"__instancecheck__": lambda _, substitute: isinstance(substitute, file_io)},
        )
        derived = kind("FileIO", (file_io,), {"__init__": begin})
        substitute = Substitute(opened, open)
        code = Substitute(io.open_code, lambda path: open(path, "rb"))
        return {
            **dict.fromkeys(_OPEN, (opened, substitute)),
            "FileIO": (file_io, derived),
            "open_code": (io.open_code, code),
        }

    def _defaults(self, stack: contextlib.ExitStack, substitutes: dict[str, Substitute]) -> None:
        """`tempfile` has `os.unlink` as the default of a parameter."""
        closer: Any = vars(tempfile)["_TemporaryFileCloser"]
        for name in ("close", "cleanup"):
            function: Any = getattr(closer, name, None)
            if (before := getattr(function, "__defaults__", None)) is not None:
                stack.callback(setattr, function, "__defaults__", before)
                function.__defaults__ = tuple(
                    substitutes["unlink"] if value is self._originals["unlink"] else value for value in before
                )

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """While open, all of it is replaced."""
        names = (
            *_READS, *_CHANGES, "fchmod", "fchown",
            "open", "listdir", "scandir", "chdir", "getcwd", "getcwdb", "system",
            "unlink", "remove", "rmdir", "rename",
            "replace", "mkdir", "mkfifo", "mknod", "link", "symlink",
        )  # fmt: skip
        self._originals = {name: getattr(os, name) for name in names if hasattr(os, name)}
        self._originals["Popen"] = subprocess.Popen.__init__
        substitutes = {
            name: Substitute(self._originals[name], call) for name, call in self._os_replacements().items()
        }
        with contextlib.ExitStack() as stack:
            for name, replacement in substitutes.items():
                for group in (os.supports_dir_fd, os.supports_follow_symlinks):
                    if self._originals[name] in group:
                        group.add(replacement)
                        stack.callback(group.discard, replacement)
            # `open` is a name in both.
            of_os = {name: (self._originals[name], substitutes[name]) for name in substitutes}
            stack.callback(exchange_all([of_os, self._io_replacements()]))
            self._defaults(stack, substitutes)

            def started(process: Any, *arguments: Any, **named: Any) -> None:
                self._started(process, *arguments, **named)

            for holder, name, value in (
                (subprocess.Popen, "__init__", started),
                (shutil, "_use_fd_functions", False),  # `rmtree` by paths
                (tempfile, "tempdir", os.path.join(self._layer.folder, "tmp")),
                (sys, "dont_write_bytecode", True),
            ):
                stack.callback(setattr, holder, name, getattr(holder, name))
                setattr(holder, name, value)
            stack.enter_context(libraries(self._layer, self._is_bypassed, self._work))
            yield


def _given(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that are not None."""
    return {name: value for name, value in arguments.items() if value is not None}


def _path_of(number: int) -> str:
    """Return the path of an open descriptor."""
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(number, 50, bytes(1024)).partition(b"\0")[0])  # F_GETPATH
    return os.readlink(f"/proc/self/fd/{number}")


class _Entries:
    """The iterator that `os.scandir` returns."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: no descriptor is open."""
