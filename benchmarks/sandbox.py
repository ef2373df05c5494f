"""Which ways to change files change none: `python -m benchmarks sandbox table` follows `subjects/sandbox` under each protection, on Linux, and writes
docs/evidence/SANDBOX.md. It changes a few files of the machine where nothing protects them, which it removes: for a machine that may be
thrown away."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import fcntl
import hashlib
import json
import os
import platform
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks import ROOT, SUBJECTS
from benchmarks.harness import pages

PAGE = ROOT / "docs" / "evidence" / "SANDBOX.md"
WAYS = SUBJECTS / "sandbox"
REFUSED = [sys.executable, str(ROOT / "tests/extensions/sandbox/refused.py")]
PROTECTIONS: dict[str, tuple[list[str], list[str]]] = {
    "namespaces": ([], []),
    "Landlock alone": (REFUSED, []),
    "neither": ([*REFUSED, "neither"], ["--unprotected"]),
}
# What ways change outside of their folder.
ELSEWHERE = {
    "tmp_file": ("/tmp/analyze-ways", "/var/tmp/analyze-ways"),
    "etc_file": ("/etc/analyze-ways", "/usr/local/bin/analyze-ways"),
    "dev_shm": ("/dev/shm/analyze-ways",),
}
_LATE_SECONDS = 10  # until ways that wait for the program's end have had theirs
_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10  # linux/fs.h

_LIBRARY = r"""
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int change(const char *folder) {
  char path[4096];
  snprintf(path, sizeof path, "%sa.txt", folder);
  FILE *file = fopen(path, "w");
  if (!file) return 1;
  fputs("C", file);
  fclose(file);
  snprintf(path, sizeof path, "%sb.bin", folder);
  if (unlink(path)) return 2;
  snprintf(path, sizeof path, "%snew", folder);
  if (mkdir(path, 0755)) return 3;
  snprintf(path, sizeof path, "%slog.txt", folder);
  return chmod(path, 0600) ? 4 : 0;
}
"""


@dataclass(frozen=True)
class Outcome:
    """What became of the ways under a protection: those that work, and entries each changed."""

    said: dict[str, str]
    changed: dict[str, int]
    line: str


def _make(root: Path, names: list[str]) -> None:
    """Make each way's folder."""
    for name in names:
        folder = root / name
        (folder / "sub/deep").mkdir(parents=True)
        (folder / "empty").mkdir()
        for path, text in (
            ("a.txt", "original a\n"), ("log.txt", "line1\nline2\n"), ("sub/c.txt", "c\n"), ("sub/deep/e.txt", "e\n"),
        ):  # fmt: skip
            (folder / path).write_text(text)
        (folder / "b.bin").write_bytes(bytes(range(256)) * 16)
        (folder / "b.bin").chmod(0o640)
        (folder / "link").symlink_to("a.txt")
        (folder / "dlink").symlink_to("sub")
        (folder / "hard").hardlink_to(folder / "a.txt")
        with contextlib.closing(sqlite3.connect(folder / "db.sqlite")) as database:
            database.executescript("create table t(x); insert into t values(1);")
        with contextlib.suppress(OSError):
            os.setxattr(folder / "a.txt", "user.k", b"v")
    (root / "_home").mkdir()
    (root / "_home/.bashrc").write_text("rc\n")
    shutil.copytree(WAYS, root / "_program", ignore=shutil.ignore_patterns("__pycache__"))


def _entries(root: Path) -> dict[str, tuple[object, ...]]:
    """Return all that is known of each entry, by its path."""
    found: dict[str, tuple[object, ...]] = {}
    for path in root.rglob("*"):
        known = path.lstat()
        is_file = path.is_file() and not path.is_symlink()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
        leads = str(path.readlink()) if path.is_symlink() else ""
        attributes = {}
        with contextlib.suppress(OSError):
            names = os.listxattr(path, follow_symlinks=False)
            attributes = {name: os.getxattr(path, name, follow_symlinks=False) for name in names}
        found[str(path.relative_to(root))] = (
            known.st_mode, known.st_uid, known.st_gid, known.st_mtime_ns, known.st_ino, known.st_nlink, content, leads, attributes,
        )  # fmt: skip
    return found


def follow(protection: str) -> Outcome:
    """Follow the ways under a protection."""
    before, options = PROTECTIONS[protection]
    listed = subprocess.run(
        [sys.executable, str(WAYS / "every.py"), "names"], capture_output=True, check=True
    )
    names: list[str] = json.loads(listed.stdout)
    with tempfile.TemporaryDirectory(prefix="analyze-ways-") as folder:
        root, library = Path(folder, "root"), Path(folder, "library.so")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-"],
            input=_LIBRARY.encode(),
            check=True,
        )
        _make(root, names)
        kept = _entries(root)
        ran = subprocess.run(
            [*before, sys.executable, "-m", "analyzer", "run", *options, "--engine", "trace", "--device", "24GiB", "every.py"],
            cwd=root / "_program", capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "WAYS_ROOT": str(root), "WAYS_LIBRARY": str(library),
                 "HOME": str(root / "_home"), "WAYS_UNPROTECTED": "1" if options else ""},
        )  # fmt: skip
        time.sleep(_LATE_SECONDS)
        now = _entries(root)
        changed: dict[str, int] = {}
        for path in kept.keys() | now.keys():
            if kept.get(path) != now.get(path):
                way = path.partition("/")[0]
                changed[way] = changed.get(way, 0) + 1
        for way, paths in ELSEWHERE.items():
            for path in filter(os.path.lexists, paths):
                changed[way] = changed.get(way, 0) + 1
                Path(path).unlink()
        _make_mutable(root / "immut_ioctl/a.txt")
    lines = ran.stderr.splitlines()
    said = next((json.loads(line[5:]) for line in lines if line.startswith("WAYS ")), None)
    if ran.returncode or said is None:
        raise click.ClickException(ran.stderr)
    return Outcome(said, changed, lines[0].removeprefix("analyze: protection: "))


def _make_mutable(path: Path) -> None:
    """Take back what would keep a file from being removed."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        flags = struct.unpack("l", fcntl.ioctl(file, _GET_FLAGS, struct.pack("l", 0)))[0]
        fcntl.ioctl(file, _SET_FLAGS, struct.pack("l", flags & ~_IMMUTABLE))


@click.command()
def table() -> int:
    """Write docs/evidence/SANDBOX.md."""
    prose = pages.prose(__file__)
    outcomes = {protection: follow(protection) for protection in PROTECTIONS}
    rows, notes = [], []
    for protection, outcome in outcomes.items():
        count, held = len(outcome.said), len(outcome.said.keys() - outcome.changed.keys())
        works = [way for way, words in outcome.said.items() if words == "works"]
        others = ", ".join(f"`{way}`" for way in outcome.said if outcome.said[way] != "works")
        rows.append(
            (protection, f"{held} of {count}", sum(outcome.changed.values()), f"{len(works)} of {count}")
        )
        which = ", ".join(f"`{way}`" for way in sorted(outcome.changed)) or "none"
        notes.append(f"**{protection}**: {outcome.line}. Changed by: {which}. Not working: {others}.")
    release = _landlock_version()
    when = datetime.datetime.now(datetime.UTC).date()
    machine = f"Linux {platform.release()}, Landlock {release}, user {os.getuid()}, {when}."
    head = ("protection", "ways that changed nothing", "entries changed", "ways that work")
    PAGE.write_text(
        f"{prose['head']}\n\n{machine}\n\n{pages.table(head, rows)}\n\n" + "\n\n".join(notes) + "\n"
    )
    return 0


def _landlock_version() -> str:
    version = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)
    return f"version {version}" if version > 0 else "is not there"
