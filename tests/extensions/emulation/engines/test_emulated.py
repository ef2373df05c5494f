"""A request that goes to another process to be emulated: what becomes of that process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from analyzer.options import Options
from analyzer_emulation.apart import Request
from analyzer_verify.runs import jobs


def _emulating(folder: Path) -> list[int]:
    """The processes that run and emulate what a request in this folder says."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:  # it has ended
            continue
        if "analyzer_emulation.apart" in words and str(folder) in words:
            found.append(int(process.name))
    return found


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    ends = time.monotonic() + seconds
    while not holds() and time.monotonic() < ends:
        time.sleep(0.05)
    return holds()


@pytest.mark.skipif(sys.platform != "linux", reason="the emulated runtime is for Linux")
def test_who_emulates_ends_with_who_asked(tmp_path: Path) -> None:
    """Whoever asks is killed, as by `timeout -s KILL` or for its memory: nobody goes on with what nobody waits for."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 30\n")  # which torch it has is not said for long
    python.chmod(0o755)
    (tmp_path / "train.py").write_text("")
    options = jobs.describe("train.py", Options())["options"]
    request = json.dumps(asdict(Request(str(tmp_path / "train.py"), str(python), options)))
    asks = f"from analyzer_emulation.apart import start\nstart({request!r})"
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", asks], env=variables) as asking:
        try:
            # The one that was started, and the one within its overlay.
            assert _within(60, lambda: len(_emulating(tmp_path)) == 2)
        finally:
            os.kill(asking.pid, signal.SIGKILL)
    assert _within(20, lambda: not _emulating(tmp_path))
