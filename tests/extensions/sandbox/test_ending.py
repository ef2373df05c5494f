"""A command that is asked to end leaves the terminal and the temporary files as they were."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.paths import PYTHONPATH

SHOWN, HIDDEN = b"\x1b[?25h", b"\x1b[?25l"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("target", ["model.py:make_model", "apart"])
def test_the_cursor_and_the_folders(tmp_path: Path, number: signal.Signals, target: str) -> None:
    """`apart`: a command that is one process, with no code of a user's."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (tmp_path / "model.py").write_text("import time\ndef make_model():\n    time.sleep(60)\n")
    alone = (
        "import sys, tempfile, time\nfrom analyzer import cli\nfrom analyzer.cli import _output, devices\n"
        "def wait(*_, **__):\n    with tempfile.TemporaryDirectory(), _output.working('it'):\n        time.sleep(60)\n"
        "devices.command.callback = wait\nsys.argv[1:] = ['devices']\nsys.exit(cli.main())\n"
    )
    words = (
        ["-c", alone]
        if target == "apart"
        else ["-m", "analyzer", target, "--batch", "1", "--device", "24GiB"]
    )
    if target == "apart" and number == signal.SIGKILL:
        pytest.skip("nobody is left to clear up")
    ours, theirs = pty.openpty()
    ran = subprocess.Popen(
        [sys.executable, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "TMPDIR": str(temporary), "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    written, end, is_asked = b"", time.monotonic() + 60, False
    while time.monotonic() < end:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                written += os.read(ours, 65536)
            except OSError:  # everybody has gone
                break
        if HIDDEN in written and not is_asked:
            is_asked = True
            if number == signal.SIGKILL:
                (second,) = Path(f"/proc/{ran.pid}/task/{ran.pid}/children").read_text().split()
                os.kill(int(second), number)
            else:
                ran.send_signal(number)
    code = ran.wait(timeout=30)
    os.close(ours)
    assert is_asked and code == (2 if number == signal.SIGKILL else 128 + number), written
    assert written.rfind(SHOWN) > written.rfind(HIDDEN), written
    assert list(temporary.iterdir()) == []
