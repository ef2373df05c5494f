"""Where Python's own functions read and write while the files a program changes are kept apart: the overlay's
rules, path by path.

1. A written file lies in `upper`, by its path from the root. A file that exists outside is copied there
   before it is changed, with the folders above it.
2. A path that was removed or renamed away is a line of `removed`: nothing below it outside is seen any
   more, even if something is made there later.
3. Read is what lies in `upper`; else what is outside, unless it was removed. A folder has the names of both.
4. A link is followed to where it leads in the overlay. /dev, /proc, /sys and the overlay's own folder are as
   outside.
5. All of it is on the disk: processes that have the same folder see the same files.

Not modelled: hard links between files outside (each is copied by itself), owners.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from typing import Any

_MOST_LINKS = 40  # Linux's own limit


class Layer:
    """The overlay in `folder` (`Scratch`). Paths given are absolute or from the working folder; paths
    returned are to be given to the operating system."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.upper = os.path.join(folder, "upper")
        self._log = os.path.join(folder, "removed")
        self._began = os.path.join(folder, "written")
        self._as_outside = tuple(f"{path}/" for path in ("/dev", "/proc", "/sys", folder))
        self._removed: set[str] = set()
        self._read = 0  # bytes of the log
        self.process: int | None = None  # whose /proc/self it is, if not this process's

    def untouched(self) -> bool:
        """Return whether nothing was written yet, by any process."""
        return not os.path.lexists(self._began)

    # -- where a path leads

    def working_folder(self) -> str:
        """Return the working folder as the program knows it."""
        return self.outside(os.getcwd())

    def outside(self, path: str) -> str:
        """Return the path that something in the overlay has for the program."""
        return path.removeprefix(self.upper) or "/" if f"{path}/".startswith(f"{self.upper}/") else path

    def place(self, path: str, follow: bool = True) -> str:
        """Return the path in the overlay with every link in it followed. follow: the last name, too."""
        self._read_removals()
        names = [
            name
            for name in reversed(os.path.join(self.working_folder(), path).split("/"))
            if name not in ("", ".")
        ]
        resolved, links = "", 0
        while names:
            name = names.pop()
            if name == "..":
                resolved = resolved.rpartition("/")[0]
                continue
            resolved = f"{resolved}/{name}"
            if (names or follow) and (led := self._link(resolved)) is not None:
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                resolved = "" if led.startswith("/") else resolved.rpartition("/")[0]
                names += [name for name in reversed(led.split("/")) if name not in ("", ".")]
        return resolved or "/"

    def _link(self, place: str) -> str | None:
        """Return a link's target; None if the place is not a link."""
        if self.process is not None and place.startswith("/proc/"):
            if place in ("/proc/self", "/proc/thread-self"):
                return str(self.process)
            if place.split("/")[2] != str(self.process):
                return None  # whether another process's files may be opened is for the kernel to say
        for path in (self.upper + place, place):
            try:
                return os.readlink(path)
            except OSError as error:
                if error.errno == errno.EINVAL or self._hidden(place):
                    break  # no link, or what is outside is not seen
        return None

    def free(self, place: str) -> bool:
        """Return whether the overlay leaves a place alone."""
        return f"{place}/".startswith(self._as_outside)

    def _real_path(self, place: str) -> str:
        above = self.upper + place
        return (
            place if self.free(place) or (not os.path.lexists(above) and not self._hidden(place)) else above
        )

    def _hidden(self, place: str) -> bool:
        """Return whether the program removed what is outside there."""
        while self._removed and place:
            if place in self._removed:
                return True
            place = place.rpartition("/")[0]
        return False

    def has_removals(self, place: str) -> bool:
        """Return whether the program removed something of a folder."""
        return any(removed.rpartition("/")[0] == place for removed in self._removed)

    def _read_removals(self) -> None:
        """Read which paths any process has removed so far."""
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self._log).st_size > self._read:
                with open(self._log, "rb") as log:
                    log.seek(self._read)
                    self._removed.update(map(os.fsdecode, log.read().split(b"\0")))
                    self._read = log.tell()
                self._removed.discard("")

    def reading(self, path: str, follow: bool = True) -> str:
        """Return the real path to read for the program's `path`."""
        return (
            path
            if self.untouched() and not path.startswith(self.upper)
            else self._real_path(self.place(path, follow))
        )

    def is_below(self, place: str) -> bool:
        """Return whether something outside is seen at a place."""
        return os.path.lexists(place) and not self._hidden(place)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, unordered."""
        place = self.place(path)
        entries = set(os.listdir(self.upper + place)) if os.path.isdir(self.upper + place) else set[str]()
        if self.is_below(place):
            entries |= {name for name in os.listdir(place) if not self._hidden(f"{place.rstrip('/')}/{name}")}
        elif not os.path.isdir(self.upper + place):
            os.listdir(self.upper + place)  # raises what is the matter
        return list(entries)

    # -- what is changed

    def _writes(self) -> None:
        if self.untouched():
            with open(self._began, "a", encoding="utf-8"):
                pass

    def _folders_to(self, place: str) -> None:
        """Make the folders above a place, in `upper`."""
        parent = place.rpartition("/")[0]
        above = self.upper + parent
        if os.path.isdir(above) or not os.path.isdir(self._real_path(parent or "/")):
            return  # there already, or an error whoever writes there will get
        self._folders_to(parent)
        with contextlib.suppress(FileExistsError):  # another process was first
            os.mkdir(above)
        os.chmod(above, stat.S_IMODE(os.stat(parent).st_mode) | 0o300)

    def _check(self, path: str) -> None:
        if not os.access(path, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)

    def making(self, place: str) -> str:
        """Return the real path for creating something at a place; an outside file there is ignored."""
        if self.free(place):
            return place
        self._writes()
        if not os.path.lexists(self.upper + place):
            parent = place.rpartition("/")[0] or "/"
            below = self.is_below(place)
            if below or (self.is_below(parent) and os.path.isdir(parent)):
                self._check(place if below and not os.path.islink(place) else parent)
        self._folders_to(place)
        return self.upper + place

    def changing(self, place: str) -> str:
        """Return the real path for changing a file at a place, after copying it there."""
        if self.free(place) or os.path.lexists(self.upper + place) or not self.is_below(place):
            return place if self.free(place) else self.making(place)
        return self._copied(place, self.making(place))

    def marking(self, place: str) -> str:
        """Return the real path for changing mode, times, owner or attributes, as an owner may."""
        if self.free(place) or os.path.lexists(self.upper + place) or not self.is_below(place):
            return place if self.free(place) else self.upper + place
        if os.geteuid() not in (0, os.lstat(place).st_uid):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), place)
        if stat.S_IFMT(os.lstat(place).st_mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), place)  # a pipe, a socket: no copy is one
        self._writes()
        self._folders_to(place)
        return self._copied(place, self.upper + place)

    def _copied(self, place: str, above: str) -> str:
        """Copy what is outside, without what is in a folder; return the real path."""
        mode = os.lstat(place).st_mode
        with contextlib.suppress(FileExistsError):  # another process was first
            if stat.S_ISDIR(mode):
                os.mkdir(above)
                shutil.copystat(place, above)
                os.chmod(above, stat.S_IMODE(mode) | 0o300)
            elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                self._copy(place, above)
            else:
                return place  # a pipe, a socket: nothing to copy
        return above

    def _copy(self, place: str, above: str) -> None:
        """Copy a file or link, whole before it has its name. Raises FileExistsError."""
        copy = os.path.join(self.folder, f"copy-{os.getpid()}-{threading.get_ident()}")
        shutil.copy2(place, copy, follow_symlinks=False)
        try:
            os.link(copy, above, follow_symlinks=False)
        finally:
            os.unlink(copy)

    def truncating(self, place: str) -> str:
        """Return the real path for rewriting a file at a place: its mode is kept, its content is not."""
        new = not os.path.lexists(self.upper + place)
        above = self.making(place)
        if new and self.is_below(place) and not self.free(place):
            mode = os.lstat(place).st_mode
            if not stat.S_ISREG(mode):
                return place
            os.close(os.open(above, os.O_CREAT | os.O_WRONLY, stat.S_IMODE(mode)))
        return above

    def _record_removal(self, place: str) -> None:
        if os.path.lexists(place):
            self._writes()
            with open(self._log, "ab") as log:
                log.write(os.fsencode(place) + b"\0")
            self._read_removals()

    def remove(self, place: str, folder: bool) -> None:
        """Remove a file, or an empty folder."""
        real_path = self._real_path(place)
        if not self.free(place) and os.path.lexists(real_path):
            self._check(self._real_path(place.rpartition("/")[0] or "/"))
            if stat.S_ISDIR(os.lstat(real_path).st_mode) != folder:
                number = errno.ENOTDIR if folder else errno.EISDIR
                raise OSError(number, os.strerror(number), place)
            if folder and self.names(place):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), place)
        if self.free(place) or real_path.startswith(self.upper):
            (os.rmdir if folder else os.unlink)(real_path)
        if not self.free(place):
            self._record_removal(place)

    def rename(self, source: str, target: str) -> None:
        """Move what is at one place to another, replacing it, as `os.replace` does."""
        if source == target or (self.free(source) and self.free(target)):
            os.rename(source, target)
            return
        source_path, target_path = self._real_path(source), self._real_path(target)
        is_folder = os.path.isdir(source_path) and not os.path.islink(source_path)
        if os.path.lexists(source_path) and os.path.lexists(target_path):
            over_folder = os.path.isdir(target_path) and not os.path.islink(target_path)
            number = (errno.EISDIR if over_folder else errno.ENOTDIR) if over_folder != is_folder else 0
            if over_folder and is_folder and self.names(target):
                number = errno.ENOTEMPTY
            if number:
                raise OSError(number, os.strerror(number), source, None, target)
        moved, new_path = self._whole(source), self.making(target)
        if os.path.isdir(new_path) and is_folder:
            os.rmdir(new_path)
        if self.free(source) != self.free(target):
            shutil.move(moved, new_path)
        else:
            os.rename(moved, new_path)
        for place in (source, target):
            if not self.free(place):
                self._record_removal(place)

    def _whole(self, place: str) -> str:
        """Copy a place with everything in it."""
        above = self.changing(place)
        if not self.free(place) and os.path.isdir(above) and not os.path.islink(above):
            for name in self.names(place):
                self._whole(f"{place.rstrip('/')}/{name}")
        return above

    def entries(self, path: str) -> Iterator[Any]:
        """Yield the entries of `os.scandir` for a folder."""
        place = self.place(path)
        for name in self.names(path):
            yield Entry(name, os.path.join(path, name), self._real_path(f"{place.rstrip('/')}/{name}"))


class Entry:
    """An `os.DirEntry` of the overlay."""

    def __init__(self, name: str, path: str, real_path: str) -> None:
        self.name, self.path, self._real_path = name, path, real_path

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return `os.stat` of the entry."""
        return (os.stat if follow_symlinks else os.lstat)(self.path if follow_symlinks else self._real_path)

    def inode(self) -> int:
        """Return the inode number."""
        return self.stat(follow_symlinks=False).st_ino

    def _is(self, kind: Any, follow: bool) -> bool:
        try:
            return bool(kind(self.stat(follow_symlinks=follow).st_mode))
        except OSError:
            return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a folder."""
        return self._is(stat.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a file."""
        return self._is(stat.S_ISREG, follow_symlinks)

    def is_symlink(self) -> bool:
        """Return whether it is a link."""
        return self._is(stat.S_ISLNK, False)

    def is_junction(self) -> bool:
        """Return whether it is a junction of Windows."""
        return False
