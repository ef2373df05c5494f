"""What is in a folder, and how a program is started under each protection."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

HERE = Path(__file__).parent
# How a program is started under each protection, and the kinds of writers that are left out: what it refuses, or the Python has not.
STARTS = {
    "namespaces": ([sys.executable], ()),
    "user namespaces": (["unshare", "--user", "--map-user=12345", "--map-group=12345", sys.executable], ()),
    "another user": (
        ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "/usr/bin/python3"],
        ("by_numpy",),
    ),
    "landlock": ([sys.executable, str(HERE / "refused.py"), sys.executable], ()),
}


def state(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything in a folder: kinds, modes, times, links, contents."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        known = path.lstat()
        content = (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        )
        leads = os.readlink(path) if path.is_symlink() else ""
        found[str(path.relative_to(folder))] = (
            known.st_mode,
            known.st_mtime_ns,
            known.st_uid,
            leads,
            content,
        )
    return found


def run_leaving_as_it_was(start: Callable[..., Popen[str]], program: Path, folder: Path) -> None:
    """Run a program to its end, all of its assertions included; its folder is as it was before."""
    before = state(folder)
    ran = start(str(program))
    _, err = ran.communicate()
    assert ran.returncode == 3, err
    assert state(folder) == before, err
