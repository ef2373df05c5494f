"""The folder where an overlay lies while a program runs: what was written there, what of it is kept, and its
end.

1. It is among temporary files, for large ones where nobody says (/var/tmp; TMPDIR decides). It goes when the
   program has ended. The next one removes the remains of a SIGKILL: a folder is in use as long as somebody
   holds its lock.
2. `uppers` says which folder in it lies over which outside, after namespaces.py; the Python layer has one,
   `upper`, over everything.
3. Kept for the next run, because it changes nothing that exists: what the hubs' libraries downloaded into
   their caches, file by file, where there was none; and what cuDNN answered (`libraries/cudnn/asker.py`),
   whose file is ours. A file of the program's own is none of that: the results of a dataset's `map` may be of
   a model without numbers.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping

_PREFIX = "analyze-overlay-"
ELSEWHERE = "elsewhere"
_TRIES = 100
_OURS = 64  # descriptors of the sandbox are at least this


class Scratch:
    """Folder of one overlay. `Scratch.new` makes it; another process opens it by its path."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._lock: int | None = None

    @classmethod
    def new(cls) -> Scratch:
        """Make a folder, locked by this process and its forks. Raises OSError."""
        place = os.environ.get("TMPDIR") or next(
            (folder for folder in ("/var/tmp",) if os.access(folder, os.W_OK)), tempfile.gettempdir()
        )
        _sweep(place)
        scratch = cls(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=place))
        for name in ("said", "upper", "tmp"):
            os.mkdir(scratch.path(name))
        scratch._lock = moved_up(os.open(scratch.path("lock"), os.O_CREAT | os.O_RDWR, 0o600))
        fcntl.flock(scratch._lock, fcntl.LOCK_EX)
        named = os.path.join(place, os.path.basename(scratch.folder).removeprefix("."))
        os.rename(scratch.folder, named)
        scratch.folder = named
        return scratch

    def path(self, name: str) -> str:
        """Return the path of a file or folder in it."""
        return os.path.join(self.folder, name)

    def uppers(self) -> Iterator[tuple[str, str]]:
        """Yield (folder outside, folder with its written files) of every overlay."""
        with (
            contextlib.suppress(FileNotFoundError),
            open(self.path("uppers"), encoding="utf-8", errors="surrogateescape") as table,
        ):
            for line in filter(None, table.read().split("\0")):
                number, _, outside = line.partition(" ")
                yield outside, self.path(number)
        yield "/", self.path("upper")

    def files(self) -> Iterator[tuple[str, str]]:
        """(path outside, where it lies) of every file and link that was written, Python's caches left out."""
        for outside, upper in self.uppers():
            for folder, names, files in os.walk(upper):
                if os.path.basename(folder) == "__pycache__":
                    names.clear()
                    continue
                for name in (*files, *(name for name in names if os.path.islink(os.path.join(folder, name)))):
                    lies = os.path.join(folder, name)
                    mode = os.lstat(lies).st_mode
                    if stat.S_ISREG(mode) or stat.S_ISLNK(
                        mode
                    ):  # neither a pipe nor what stands for a file that was removed
                        yield os.path.join(outside, os.path.relpath(lies, upper)), lies

    def written(self, caches: tuple[str, ...]) -> list[str]:
        """Return the paths of what the program wrote, from the working folder where they are in it; neither
        temporary files nor what lies in these caches."""
        current = f"{os.getcwd()}/"
        temporary = tuple(
            f"{os.path.realpath(folder)}/"
            for folder in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")
        )
        return sorted(
            path.removeprefix(current)
            for path, _ in self.files()
            if not path.startswith(caches) and (path.startswith(current) or not path.startswith(temporary))
        )

    def keep(self, target: str, environment: Mapping[str, str]) -> None:
        """Move what the program wrote to this folder: by its path from the working folder, or below
        "elsewhere". environment: its variables, which say what are caches. Raises OSError."""
        folder, caches = f"{os.getcwd()}/", hub_folders(environment)
        os.makedirs(target, exist_ok=True)
        for path, lies in list(self.files()):
            if not path.startswith(caches):
                _move(
                    lies,
                    os.path.join(
                        target, path.removeprefix(folder) if path.startswith(folder) else ELSEWHERE + path
                    ),
                )

    def keep_downloads(self, environment: Mapping[str, str]) -> None:
        """Move new downloads to the hubs' caches, and cuDNN's answers to ours."""
        caches, own = hub_folders(environment), answers_folder(environment)
        for path, lies in list(self.files()):
            if (
                path.startswith(caches)
                and not path.endswith((".incomplete", ".lock"))
                and (path.startswith(own) or not os.path.lexists(path))
            ):
                with contextlib.suppress(OSError):  # the next run downloads it again
                    _move(lies, path)

    def drop(self) -> None:
        """Remove the folder."""
        place, name = os.path.split(self.folder)
        with contextlib.suppress(FileNotFoundError), _opened(place) as above:
            for is_last in (*(False,) * _TRIES, True):
                try:
                    _remove(above, name)
                except OSError as error:
                    # Processes that the program left running write there at this moment.
                    if error.errno != errno.ENOTEMPTY or is_last:
                        raise
        if self._lock is not None:
            os.close(self._lock)


def moved_up(descriptor: int) -> int:
    """Return a descriptor as a large number: a shell's redirections know those below 10 alone, which are the
    program's."""
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OURS)
    except OSError:  # this process may not have so many
        return descriptor
    os.close(descriptor)
    return moved


def hub_folders(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the download folders of the hubs' libraries, with a trailing slash
    (`huggingface_hub/constants.py`, `datasets/config.py`, `torch/hub.py`), and of cuDNN's answers."""
    caches = _caches(environment)
    home = environment.get("HF_HOME") or os.path.join(caches, "huggingface")
    torch = environment.get("TORCH_HOME") or os.path.join(caches, "torch")
    folders = (
        environment.get("HF_HUB_CACHE")
        or environment.get("HUGGINGFACE_HUB_CACHE")
        or os.path.join(home, "hub"),
        environment.get("HF_XET_CACHE") or os.path.join(home, "xet"),
        os.path.join(environment.get("HF_DATASETS_CACHE") or os.path.join(home, "datasets"), "downloads"),
        os.path.join(torch, "hub"),
    )
    return (*(os.path.realpath(folder) + "/" for folder in folders), answers_folder(environment))


def answers_folder(environment: Mapping[str, str]) -> str:
    """Return the folder of cuDNN's answers (`libraries/cudnn/asker.py`), with a trailing slash."""
    own = environment.get("ANALYZER_CACHE") or os.path.join(_caches(environment), "gpu-memory-analyzer")
    return os.path.realpath(os.path.join(own, "cudnn")) + "/"


def _caches(environment: Mapping[str, str]) -> str:
    home = environment.get("HOME") or os.path.expanduser("~")
    return environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")


def _move(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.move(source, target)


def _sweep(place: str) -> None:
    """Remove what processes of this user left that were killed. In a folder that others may write, too, a
    name is no promise: theirs, and links, are left alone."""
    with contextlib.suppress(OSError), _opened(place) as above:
        for name in os.listdir(above):
            if name.startswith(_PREFIX):
                with contextlib.suppress(OSError), _opened(name, above) as folder:
                    if os.fstat(folder).st_uid == os.geteuid():
                        _remove_unused(above, name, folder)


def _remove_unused(above: int, name: str, folder: int) -> None:
    """Remove an overlay's folder unless somebody holds its lock. Raises OSError."""
    lock = os.open("lock", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(above, name)
    finally:
        os.close(lock)


@contextlib.contextmanager
def _opened(folder: str, above: int | None = None) -> Iterator[int]:
    """Yield a folder's descriptor; above: the folder it is in, where it may not be a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if above is None else os.O_NOFOLLOW)
    opened = os.open(folder, flags, dir_fd=above)
    try:
        yield opened
    finally:
        os.close(opened)


def _remove(above: int, name: str) -> None:
    """Remove what has this name in an open folder, with all that is in it. No link is followed, and no mode
    is changed but of folders in it. Raises OSError."""
    mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode):
        os.unlink(name, dir_fd=above)
        return
    if mode & 0o700 != 0o700:  # overlayfs leaves a folder nobody may enter; so may the program
        _let_in(above, name)
    with _opened(name, above) as folder:
        for entry in os.listdir(folder):
            with contextlib.suppress(OSError):
                _remove(folder, entry)
    os.rmdir(name, dir_fd=above)


def _let_in(above: int, name: str) -> None:
    """Let the owner into a folder, which is no link."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, 0o700, dir_fd=above, follow_symlinks=False)
        return
    opened = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{opened}", 0o700)
    finally:
        os.close(opened)
