"""This checkout as people get it: its wheel, in a virtual environment and a folder of their own.

The dependencies are those of the environment that runs the tests (links lead to them), so that nothing is
downloaded; the package itself is the wheel alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.paths import ROOT

__all__ = ["PACKAGES", "ROOT", "Fresh", "built", "forking", "fresh", "sources"]

# Where the dependencies are; a virtual environment may lead to another's.
PACKAGES = [path for path in sys.path if Path(path).name == "site-packages"]

_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "OMP_NUM_THREADS", "LD_LIBRARY_PATH")


def sources(copy: Path) -> Path:
    """A copy of what the package is built from, without anything that was built."""
    for package in ("analyzer", "extensions"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def built(factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel and an sdist of a copy of this checkout, built from the copy alone, once in a run of the tests whatever its processes."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "dist-of-this-checkout"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            subprocess.run(
                [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"),
                 str(sources(folder / "source"))],
                capture_output=True, text=True, check=True, env={**_environment(), "CFLAGS": "-O0"},  # a third of the time
            )  # fmt: skip
            (folder / "done").touch()
    wheel, sdist = (next((folder / "dist").glob(kind)) for kind in ("*.whl", "*.tar.gz"))
    return wheel, sdist


@dataclass(frozen=True, slots=True)
class Fresh:
    """bin: the environment's commands. folder: where commands run; it has a copy of `models/`."""

    bin: Path
    folder: Path

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """A line of shell, as somebody would type it there."""
        environment = _environment()
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder, capture_output=True, text=True, timeout=300, check=False,
            env={
                **environment, "PATH": f"{self.bin}:{environment['PATH']}", "HOME": str(self.folder),
                "PYTHONIOENCODING": "utf-8", "CUDA_VISIBLE_DEVICES": "",
            },
        )  # fmt: skip


def fresh(factory: pytest.TempPathFactory) -> Fresh:
    """A new environment with nothing of this checkout but its wheel."""
    wheel, _ = built(factory)
    folder = factory.mktemp("fresh")
    place = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (packages,) = (place / "lib").glob("python*/site-packages")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), str(wheel)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    # Beside it, as pip lays them: the folder in which this package lies has torch, too.
    for entry in (entry for folder in PACKAGES for entry in Path(folder).iterdir()):
        if not entry.name.startswith(("analyzer", "gpu_memory_analyzer", "__editable__", "__pycache__")):
            with contextlib.suppress(FileExistsError):
                (packages / entry.name).symlink_to(entry)
    command = place / "bin/analyze"
    # As pip writes it: a process that is started anew imports this file and must not run it again.
    starts = "if __name__ == '__main__':\n    sys.exit(main())\n"
    command.write_text(f"#!{place}/bin/python\nimport sys\nfrom analyzer.cli import main\n{starts}")
    command.chmod(0o755)
    work = folder / "work"
    shutil.copytree(ROOT / "models", work / "models", ignore=shutil.ignore_patterns("__pycache__"))
    return Fresh(place / "bin", work)


# Has imported what commands import, and is `analyze` for each line of shell in a child: words, folder, variables and files are the
# caller's, who waits for its exit code.
_SERVER = """
import json, os, socket, sys
import networkx, onnx, torch
import analyzer.pipeline.onnx, analyzer.pipeline.pytorch, analyzer.report.text, analyzer.rules
from analyzer.cli import main

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as here:
    here.bind(sys.argv[1])
    here.listen()
    while True:
        caller = here.accept()[0]
        told, files, _, _ = socket.recv_fds(caller, 1 << 20, 3)
        if not (child := os.fork()):
            here.close()
            words, folder, variables = json.loads(told)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(variables)
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            sys.argv[:] = words
            sys.exit(main())
        for file in files:
            os.close(file)
        caller.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
        caller.close()
"""
_CALLER = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as there:
    there.connect(PLACE)
    socket.send_fds(there, [json.dumps((sys.argv, os.getcwd(), dict(os.environ))).encode()], [0, 1, 2])
    sys.exit(int(there.recv(16)))
"""


@contextmanager
def forking(place: Fresh) -> Iterator[Fresh]:
    """The environment with another `analyze`: a child of one process that has imported torch already, for many commands."""
    commands = place.folder.parent / "forking"
    commands.mkdir()
    for name in ("python", "python3"):
        (commands / name).symlink_to(place.bin / name)
    socket = commands / "socket"
    caller = commands / "analyze"
    caller.write_text(f"#!{place.bin}/python -SE{_CALLER.replace('PLACE', repr(str(socket)))}")
    caller.chmod(0o755)
    variables = {**_environment(), "PYTHONIOENCODING": "utf-8", "CUDA_VISIBLE_DEVICES": ""}
    server = subprocess.Popen([place.bin / "python", "-c", _SERVER, socket], cwd=place.folder, env=variables)
    try:
        while not socket.exists():
            assert server.poll() is None, "the process that was to be `analyze` ended"
            time.sleep(0.02)
        yield replace(place, bin=commands)
    finally:
        server.kill()
        server.wait()


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ}
