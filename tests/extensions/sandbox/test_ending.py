"""A command that is asked to end leaves the terminal and the temporary files as they were."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_reports_its_memory_until_then(tmp_path: Path, number: signal.Signals) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    program = tmp_path / "program.py"
    program.write_text(
        "import time, torch\nkept = torch.zeros(1 << 20, device='cuda')\nprint('here', flush=True)\n"
        "while True:\n    time.sleep(0.05)\n"
    )
    out = tmp_path / "out.json"
    words = [
        "run",
        "--engine",
        "trace",
        "--device",
        "24GiB",
        "--format",
        "json",
        "-o",
        str(out),
        str(program),
    ]
    ran = subprocess.Popen(
        [sys.executable, "-m", "analyzer", *words], cwd=tmp_path, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "TMPDIR": str(temporary)},
    )  # fmt: skip
    assert ran.stderr is not None
    for line in ran.stderr:
        if line == b"here\n":
            ran.send_signal(number)
            break
    ran.stderr.read()
    assert ran.wait(timeout=60) == 2
    document = json.loads(out.read_text())
    assert document["incomplete"] == "interrupted" and document["peak_allocated"] == 4 << 20
    assert list(temporary.iterdir()) == []


def test_a_second_request_ends_a_program_that_goes_on(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sys, time\nwhile True:\n    try:\n        print('here', file=sys.stderr, flush=True)\n"
        "        time.sleep(60)\n    except KeyboardInterrupt:\n        pass\n"
    )
    ran = subprocess.Popen(
        [sys.executable, "-m", "analyzer", "run", "--engine", "trace", "program.py"], cwd=tmp_path,
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    assert ran.stderr is not None
    requests = 0
    for line in ran.stderr:
        if b"here" in line:
            ran.send_signal(signal.SIGTERM)
            requests += 1
    assert ran.wait(timeout=60) == 128 + signal.SIGTERM and requests == 2
