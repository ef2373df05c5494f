"""This checkout as people get it: its wheel, in a virtual environment and a folder of their own.

The dependencies are those of the environment that runs the tests (a .pth file leads to them), so that nothing is
downloaded; the package itself is the wheel alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.paths import ROOT

__all__ = ["PACKAGES", "ROOT", "Fresh", "built", "fresh", "sources"]

# Where the dependencies are; a virtual environment may lead to another's.
PACKAGES = [path for path in sys.path if Path(path).name == "site-packages"]

_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "OMP_NUM_THREADS", "LD_LIBRARY_PATH")


def sources(copy: Path) -> Path:
    """A copy of what the package is built from, without anything that was built."""
    for package in ("analyzer", "analyzer_plugins"):
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
                capture_output=True, text=True, check=True, env=_environment(),
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
    # Behind the environment's own packages: an editable install of this checkout is not reached by a plain path.
    (packages / "dependencies.pth").write_text("\n".join(PACKAGES) + "\n")
    command = place / "bin/analyze"
    # As pip writes it: a process that is started anew imports this file and must not run it again.
    starts = "if __name__ == '__main__':\n    sys.exit(main())\n"
    command.write_text(f"#!{place}/bin/python\nimport sys\nfrom analyzer.cli import main\n{starts}")
    command.chmod(0o755)
    work = folder / "work"
    shutil.copytree(ROOT / "models", work / "models", ignore=shutil.ignore_patterns("__pycache__"))
    return Fresh(place / "bin", work)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ}
