"""Memory of the host that a process and what it starts hold."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path


def watched(process: subprocess.Popen[bytes]) -> int:
    """The most memory of the host that it and what it starts hold at a time (proportional set size), every five seconds; waits for it."""
    most = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
            return most
        parents = {int(path.name): _parent(path) for path in Path("/proc").glob("[0-9]*")}
        tree = {process.pid}
        while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
            tree |= more
        most = max(most, sum(map(_held, tree)))


def _parent(place: Path) -> int:
    with contextlib.suppress(OSError):
        return int((place / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _held(pid: int) -> int:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return 1024 * int(text.partition("Pss:")[2].split()[0])
    return 0
