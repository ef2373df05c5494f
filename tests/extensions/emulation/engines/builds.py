"""Packages that pip finds where no network is, and an environment with what looks like a CUDA build of PyTorch."""

from __future__ import annotations

import zipfile
from pathlib import Path

VERSION = "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n"


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """A wheel of pure Python (https://packaging.python.org/en/latest/specifications/binary-distribution-format/)."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*contents, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**contents, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return path


def torch_wheels(folder: Path) -> None:
    """What an installation of torch 2.11.0 finds: PyTorch as `launch.find_torch` reads it, its companions and numpy."""
    wheel(folder, "torch", "2.11.0", {"torch/__init__.py": "", "torch/version.py": VERSION})
    for name in ("torchvision", "torchaudio", "numpy"):
        wheel(folder, name, "0.26.0", {f"{name}/__init__.py": ""})


def fake_python(folder: Path, version: str = VERSION) -> Path:
    """An executable that says, as a Python with a CUDA build would, where its torch lies."""
    build = folder / "torch"
    build.mkdir(parents=True)
    (build / "version.py").write_text(version)
    python = folder / "python"
    python.write_text(f"#!/bin/sh\necho @{build}\n")
    python.chmod(0o755)
    return python
