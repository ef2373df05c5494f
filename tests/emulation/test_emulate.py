"""`analyze emulate` from its doors: what it refuses, and, where a CUDA build of PyTorch is, a program run by it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import analyzer
from analyzer.devices import load
from analyzer.emulation import device, launch, library
from analyzer.errors import MissingDependencyError, OptionError
from tests.paths import ROOT

PROGRAM = ROOT / "tests/emulation/programs/train.py"


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of `ANALYZER_CUDA_PYTHON`, or this one, where it has a CUDA build of PyTorch."""
    try:
        library.path()
        return launch.find_torch(os.environ.get("ANALYZER_CUDA_PYTHON")).python
    except MissingDependencyError as error:
        pytest.skip(error.message)


def test_a_python_without_a_cuda_build_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is not a Python"):
        launch.find_torch(tmp_path)
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho @\n")
    fake.chmod(0o755)
    with pytest.raises(MissingDependencyError, match="has no PyTorch"):
        launch.find_torch(fake)
    build = tmp_path / "torch"
    build.mkdir()
    fake.write_text(f"#!/bin/sh\necho @{build}\n")
    (build / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n")
    with pytest.raises(MissingDependencyError, match=r"torch 2.13.0\+cpu of .* is not a CUDA build"):
        launch.find_torch(fake)
    (build / "version.py").write_text("__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\n")
    assert launch.find_torch(fake) == launch.Torch(fake, "2.15.0+cu132", (13, 2), tmp_path)


def test_other_systems_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(MissingDependencyError, match="CUDA build for Linux on x86-64; this is darwin"):
        library.path()


def test_every_profile_can_be_described() -> None:
    from analyzer.devices import names

    for name in names():
        assert f"capacity={load(name).capacity_bytes};" in device.described(load(name), (13, 0))


def test_the_process_ends_with_this_one(tmp_path: Path) -> None:
    """What the command starts is gone when it is interrupted, children included."""
    pid = tmp_path / "pid"
    ours = f"from analyzer.emulation import launch; import os; launch.run(['sh', '-c', 'sleep 1000 & echo $! > {pid}; wait'], os.environ)"
    process = subprocess.Popen([sys.executable, "-c", ours], cwd=ROOT, stderr=subprocess.DEVNULL)
    while not pid.exists() or not pid.read_text().strip():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(2)
    process.wait(30)
    child = int(pid.read_text())
    for _ in range(1000):
        status = Path(f"/proc/{child}/status")
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        time.sleep(0.01)
    pytest.fail("the child still runs")


def test_a_program_runs_by_pytorch_itself(python: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import json

    found = analyzer.emulate(PROGRAM, python=python, device="h200")
    said = json.loads(next(line for line in capfd.readouterr().err.splitlines() if line.startswith("{")))
    assert (found.peak_allocated, found.peak_reserved) == (said["allocated"], said["reserved"])
    assert found.incomplete is None and said["chosen"] and said["right"]
    assert said["child"] == f"{os.environ.get('LD_PRELOAD')} {os.environ.get('LD_LIBRARY_PATH')}"
