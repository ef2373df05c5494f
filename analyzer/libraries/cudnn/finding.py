"""Where a cuDNN lies that can be asked: nothing is loaded, nothing is imported.

1. `ANALYZER_CUDNN` names the library (a path of `libcudnn.so.9`), or says "none": then nobody is asked.
2. Else all that are within reach, in this order: of the environment whose Python `ANALYZER_PYTHON` names and
   the folders its `.pth` files link, of this one (the wheels `nvidia-cudnn-cu12` and `-cu13`, beside a CUDA
   build of torch or installed for this: `pip install 'gpu-memory-analyzer[cudnn]'`), of the system
   (`LD_LIBRARY_PATH`, `/usr/local/cuda`, the distribution's folder).
3. Of several the release wins that the torch release has which the figures are of (`RELEASES`), else the
   nearest to it.

A cuDNN needs cuBLASLt beside it, which is looked for in the same places.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from analyzer.releases import Release, distance_between

# cuDNN's releases by the torch release whose CUDA 12.6 to 13.0 wheels bring it; between two the earlier
# holds.
# Source: the wheels' own metadata (Requires-Dist: nvidia-cudnn-cu12, nvidia-cudnn-cu13).
RELEASES: dict[Release, Release] = {(2, 4): (9, 1), (2, 7): (9, 5), (2, 8): (9, 10), (2, 11): (9, 19)}
_LIBRARY, _CUBLASLT = "libcudnn.so.9", "libcublasLt.so.*"
_SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/cuda/lib64", "/usr/lib64")
_VERSION = re.compile(r"(?:nvidia_cudnn_cu\d+-|libcudnn\.so\.)(\d+)\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Library:
    """A cuDNN. path: of `libcudnn.so.9`; cublaslt: of the cuBLASLt it needs, "" where the linker finds it;
    release: (9, 19), None where no file's name says it."""

    path: str
    cublaslt: str
    release: Release | None


def library_for(torch_release: Release, python: str = "") -> Library | None:
    """Return the cuDNN to ask for figures of that release of torch, None without any. python: the one whose
    environment comes first, in the place of `ANALYZER_PYTHON`'s."""
    wanted = RELEASES[max((known for known in RELEASES if known <= torch_release), default=min(RELEASES))]
    python = python or os.environ.get("ANALYZER_PYTHON", "")
    libraries = within_reach(os.environ.get("ANALYZER_CUDNN", ""), python)

    def distance(library: Library) -> tuple[int, int]:
        return distance_between(library.release or (0, 0), wanted)

    return min(libraries, key=distance, default=None)


@lru_cache(maxsize=4)
def within_reach(named: str, python: str) -> tuple[Library, ...]:
    """Return every cuDNN found, the nearest first. named, python: values of the two environment variables."""
    if named:
        path = Path(named)
        return (_library(path),) if path.is_file() else ()
    folders = [folder / "nvidia/cudnn/lib" for folder in (*_packages_of(python), *map(Path, sys.path))]
    named_folders = os.environ.get("LD_LIBRARY_PATH")
    folders += map(Path, (*(() if named_folders is None else named_folders.split(":")), *_SYSTEM))
    paths = dict.fromkeys(folder / _LIBRARY for folder in folders if (folder / _LIBRARY).is_file())
    return tuple(_library(path) for path in paths)


def _packages_of(python: str) -> Iterator[Path]:
    """Yield the folders of packages of an environment, by the path of its Python, each before those it
    links."""
    if python:
        for folder in sorted(Path(python).parent.parent.glob("lib/python3*/site-packages")):
            yield folder
            yield from _linked(folder)


def _linked(folder: Path) -> Iterator[Path]:
    """Yield the folders that the `.pth` files of a folder of packages add, in the order Python's `site` adds
    them. Lines of code, which it runs, are passed over; `.pth` files of folders added that way it does not
    read."""
    for file in sorted(folder.glob("*.pth")):
        if file.is_file() and not file.name.startswith("."):
            lines = map(str.rstrip, file.read_text("utf-8", "replace").splitlines())
            named = (line for line in lines if line and not re.match(r"#|import[ \t]", line))
            yield from (path for path in (folder / line for line in named) if path.is_dir())


def _library(path: Path) -> Library:
    """Return the library with its cuBLASLt; the release is in its file's name or its wheel's metadata's."""
    beside = (path.parent, *(path.parents[2].glob("*/lib") if len(path.parents) > 2 else ()))
    cublaslt = next((str(file) for folder in beside for file in sorted(folder.glob(_CUBLASLT))), "")
    packages = path.parents[3] if len(path.parents) > 3 else path.parent
    names = (path.resolve().name, *(wheel.name for wheel in packages.glob("nvidia_cudnn_cu*.dist-info")))
    version = next(filter(None, map(_VERSION.match, names)), None)
    return Library(str(path), cublaslt, (int(version[1]), int(version[2])) if version else None)
