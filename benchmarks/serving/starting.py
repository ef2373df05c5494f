"""A start of `analyze serve --engine vllm`, or sglang, on an emulated H100, with the time and the host's memory it took."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).parent / "configs"
GIB = 2**30


def started(
    model: str,
    arguments: Iterable[str],
    python: Path | None,
    variables: Mapping[str, str] | None = None,
    engine: str = "vllm",
) -> dict[str, Any] | str:
    """What the engine says of a model of `configs`, with "seconds" and "host_bytes"; or what was written where it said nothing.

    arguments: the engine's own. python: an environment with it, None: whichever is within reach. variables: besides this process's.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, told, begin = Path(folder) / "engine.json", Path(folder) / "told.txt", time.monotonic()
        command = [
            sys.executable,
            "-m",
            "analyzer",
            "serve",
            CONFIGS / model,
            "--engine",
            engine,
            "--device",
            "h100",
        ]
        command += [
            "--format",
            "json",
            "--quiet",
            "-o",
            out,
            *(["--python", python] if python else []),
            "--",
            *arguments,
        ]
        environment = {**os.environ, **(variables or {})}
        with told.open("w") as log:
            most = watched(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=environment))
        if not out.exists():
            return told.read_text()
        said: dict[str, Any] = json.loads(out.read_text())
    return said | {"seconds": round(time.monotonic() - begin), "host_bytes": most}


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
