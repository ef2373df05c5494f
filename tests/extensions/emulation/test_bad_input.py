"""`analyze emulate` where something is wrong: one clear answer, its exit code, no process left, and nothing left in the environment."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from analyzer.cli import main

NET = "import torch\nx = torch.zeros(1024, 1024, device='cuda')\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(NET)
    return path


def ended(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """The exit code of `analyze emulate WORDS`, and the one message on stderr."""
    before = dict(os.environ)
    code = main(["emulate", *map(str, words)])
    said = capsys.readouterr().err
    assert dict(os.environ) == before and "Traceback" not in said
    return code, said


def test_no_cuda_build(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda = None\n")
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\necho @{torch}\n")
    fake.chmod(0o755)
    code, said = ended(capsys, "--python", fake, script)
    assert code == 2 and "torch 2.13.0+cpu" in said and "is not a CUDA build" in said
    assert "analyze engine install torch==2.13.0" in said


@pytest.mark.parametrize(
    ("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "aarch64")]
)
def test_another_platform(
    script: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    machine: str,
) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "version.py").write_text("__version__ = '2.11.0+cu130'\ncuda = '13.0'\n")
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\necho @{torch}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    code, said = ended(capsys, "--python", fake, script)
    assert (
        code == 2
        and "for Linux on x86-64" in said
        and f"{system} on {machine}" in said
        and "analyze run" in said
    )


def test_an_unknown_gpu(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended(capsys, "--device", "h20000", script)
    assert code == 2 and "h20000" in said and "h200" in said.partition("hint")[2]


def test_no_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended(capsys, tmp_path / "none.py")
    assert code == 2 and "no such file" in said


def run(python: Path, program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "analyzer", "emulate", "--python", str(python), *words, str(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_out_of_memory(python: Path, script: Path) -> None:
    script.write_text(NET + "y = torch.zeros(20 * 2**30, dtype=torch.uint8, device='cuda')\n")
    found = run(python, script, "--device", "t4")
    assert found.returncode == 1
    assert found.stdout.startswith("out of memory: 20.0 GiB") and "14.6 GiB" in found.stdout


def test_a_function_that_is_not_answered(python: Path, script: Path) -> None:
    script.write_text(
        NET + "import ctypes\ncode = ctypes.CDLL(None).cusparseSpSM_solve()\nassert code == 10, code\n"
    )
    found = run(python, script, "--device", "t4")
    assert found.returncode == 0, found.stderr
    assert "the program called cusparseSpSM_solve, which is not emulated" in found.stdout
    assert found.stderr.count("cusparseSpSM_solve") == 1


def test_a_program_that_raises(python: Path, script: Path) -> None:
    script.write_text(NET + "raise ValueError('no data')\n")
    found = run(python, script, "--device", "t4")
    assert found.returncode == 2
    assert "ValueError: no data" in found.stdout + found.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_interrupted_leaves_nothing(python: Path, script: Path, tmp_path: Path, number: int) -> None:
    script.write_text(
        NET + "import sys, time\nprint('waits', file=sys.stderr, flush=True)\ntime.sleep(100)\n"
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    ours = subprocess.Popen(
        [sys.executable, "-m", "analyzer", "emulate", "--python", str(python), "--device", "t4", str(script)],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    assert ours.stderr is not None
    while b"waits" not in ours.stderr.readline():
        pass
    children = Path(f"/proc/{ours.pid}/task/{ours.pid}/children").read_text().split()
    assert children
    ours.send_signal(number)
    ours.communicate(timeout=60)
    assert ours.returncode not in (0, 1)
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert not [path.name for path in folder.iterdir() if path.name.startswith("analyze")]
