"""Environments with a CUDA build of PyTorch, made by this package in the user's cache folder.

1. `install` asks pip for the list of wheels, reports their size, downloads wheel by wheel, and installs from
   the files. An interrupted download goes on with the complete wheels; an environment counts from the moment
   its `engine.json` is written.
2. torch's companions that this Python has (torchvision, torchaudio) come along, in the release that fits;
   other packages a program imports are found in this Python's own folder (`choice.py`).

Source: pip's installation report (https://pip.pypa.io/en/stable/reference/installation-report/).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from analyzer import cache, releases
from analyzer.errors import OptionError, RunError, did_you_mean
from analyzer_emulation import npm

DEFAULT = "torch==" + ".".join(map(str, releases.RECORDED["torch"])) + ".0"
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(\[[\w,-]+\])?(==(?P<version>[\w.+!-]+))?")
_ENGINES = ("torch", "onnxruntime-gpu", "vllm", "sglang", "llama.cpp")
_BESIDE_TORCH = ("torchvision", "torchaudio")
# Bytes on disk for a byte downloaded: torch 2.11.0 with CUDA 13, 2.8 and 5.0 GB (docs/EMULATION.md); SGLang
# 0.5.14, 4.6 and 11.3 GB (docs/evidence/SERVING.md).
_UNPACKED = {"torch": 1.8, "onnxruntime-gpu": 1.6, "vllm": 1.8, "sglang": 2.5}
_ASK_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Engine:
    """An environment. packages: requested; nbytes: on disk; complete: whether installation ended."""

    name: str
    folder: Path
    packages: tuple[str, ...] = ()
    nbytes: int = 0
    complete: bool = False

    @property
    def python(self) -> Path:
        """Path of its Python interpreter."""
        return self.folder / "bin" / "python"


@dataclass(frozen=True, slots=True)
class _Wheel:
    url: str
    name: str
    nbytes: int | None


def home() -> Path:
    """Return the folder of the environments."""
    return cache.folder() / "engines"


def every() -> Iterator[Engine]:
    """Yield all environments, also incomplete ones."""
    for folder in sorted(home().glob("*/")):
        try:
            written = json.loads((folder / "engine.json").read_text("utf-8"))
            yield Engine(folder.name, folder, tuple(written["packages"]), int(written["bytes"]), True)
        except (OSError, ValueError, KeyError, TypeError):
            yield Engine(folder.name, folder)


def installed(package: str, near: releases.Release) -> list[Engine]:
    """The complete environments made for this package, the release nearest to `near` first."""

    def distance(engine: Engine) -> tuple[int, int]:
        return releases.distance_between(releases.parse(engine.name.partition("-")[2]), near)

    engines = (engine for engine in every() if engine.complete and engine.name.startswith(f"{package}-"))
    return sorted(engines, key=distance)


def install(requirements: Sequence[str], tell: Callable[[str], None]) -> Engine:
    """Make an environment with these packages, named for the first. tell: receives progress.

    Raises OptionError for what names no package, RunError where pip fails or there is no room on the disk.
    """
    matches = [_REQUIREMENT.fullmatch(text) for text in requirements]
    for text, match in zip(requirements, matches, strict=True):
        if match is None:
            raise OptionError(f"{text!r} is no requirement", f"write NAME==VERSION, such as {DEFAULT}")
    first = matches[0]
    assert first is not None
    if first["name"] not in _ENGINES:
        hint = did_you_mean(first["name"], _ENGINES) or f"one of {', '.join(_ENGINES)} first; "
        raise OptionError(f"{first['name']} is no engine", f"{hint}such as: analyze engine install {DEFAULT}")
    if first["name"] == "llama.cpp":
        return _install_llama(first["version"], tell)
    wanted = [*requirements, "numpy"]
    if first["name"] == "torch":
        named = {match["name"] for match in matches if match is not None}
        wanted += [name for name in _BESIDE_TORCH if name not in named and find_spec(name) is not None]
    folder = home() / f"{first['name']}-{first['version'] or 'latest'}"
    python = folder / "bin" / "python"
    if not python.exists():
        tell(f"an environment in {folder}")
        venv.create(folder, with_pip=not _has_pip())
    (folder / "engine.json").unlink(missing_ok=True)
    tell("pip looks for what it takes")
    wheels = _resolved(python, wanted)
    to_load = sum(wheel.nbytes or 0 for wheel in wheels)
    more = " at least" if any(wheel.nbytes is None for wheel in wheels) else ""
    unpacked = int(to_load * _UNPACKED[first["name"]])
    tell(
        f"{len(wheels)} packages{more}, {to_load / 1e9:.1f} GB to download, about {unpacked / 1e9:.0f} GB on"
        " disk"
    )
    _check_room(folder, to_load + unpacked)
    _download(python, folder / "wheels", wheels, tell)
    tell("installing")
    _pip(
        python,
        "install",
        "--no-deps",
        "--no-index",
        *(str(folder / "wheels" / wheel.name) for wheel in wheels),
    )
    shutil.rmtree(folder / "wheels")
    nbytes = sum(entry.lstat().st_size for entry in folder.rglob("*"))
    (folder / "engine.json").write_text(json.dumps({"packages": wanted, "bytes": nbytes}), "utf-8")
    return Engine(folder.name, folder, tuple(wanted), nbytes, True)


def _install_llama(version: str | None, tell: Callable[[str], None]) -> Engine:
    """Take llama.cpp's libraries from their package."""
    release = version or next(iter(npm.BUILDS))
    folder = home() / f"llama.cpp-{release}"
    nbytes = npm.install(release, folder, tell)
    npm.describe(folder, nbytes)
    return Engine(folder.name, folder, (f"llama.cpp=={release}",), nbytes, True)


def remove(name: str) -> Engine:
    """Remove an environment by name ("torch-2.11.0", "torch==2.11.0"). Raises OptionError."""
    by_name = {engine.name: engine for engine in every()}
    engine = by_name.get(name.replace("==", "-"))
    if engine is None:
        choices = f"there are {', '.join(by_name)}" if by_name else "there is none"
        raise OptionError(f"no engine {name!r} is installed", did_you_mean(name, by_name) or choices)
    shutil.rmtree(engine.folder)
    return engine


def _resolved(python: Path, wanted: Sequence[str]) -> list[_Wheel]:
    """Return the wheels pip would install."""
    report = _pip(
        python, "install", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--report", "-", *wanted
    )
    entries = json.loads(report)["install"]
    urls = [entry["download_info"]["url"] for entry in entries]
    with ThreadPoolExecutor(8) as pool:
        sizes = pool.map(_size, urls)
        return [
            _Wheel(_pinned(entry), _file(url), size)
            for entry, url, size in zip(entries, urls, sizes, strict=True)
        ]


def _pinned(entry: dict[str, Any]) -> str:
    """The address of a wheel, with the hash pip is to find."""
    url = str(entry["download_info"]["url"])
    digest = (entry["download_info"].get("archive_info") or {}).get("hashes", {}).get("sha256")
    return f"{url}#sha256={digest}" if digest else url


def _file(url: str) -> str:
    return unquote(urlsplit(url).path.rpartition("/")[2])


def _size(url: str) -> int | None:
    """Return the bytes of a file, None if the server does not tell."""
    try:
        if urlsplit(url).scheme == "file":
            return Path(unquote(urlsplit(url).path)).stat().st_size
        with urllib.request.urlopen(
            urllib.request.Request(url, method="HEAD"), timeout=_ASK_SECONDS
        ) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, ValueError, TypeError):
        return None


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise RunError(
            f"{folder} lies on a disk with {free / 1e9:.1f} GB free, and about {needed / 1e9:.1f} GB are"
            " needed while installing",
            "make room, or name another folder in ANALYZER_CACHE",
        )


def _download(python: Path, folder: Path, wheels: Sequence[_Wheel], tell: Callable[[str], None]) -> None:
    """Download the wheels; pip keeps those already present if their hashes match."""
    total = sum(wheel.nbytes or 0 for wheel in wheels)
    done = 0
    for number, wheel in enumerate(wheels):
        tell(f"{number} of {len(wheels)} downloaded, {done / 1e9:.1f} of {total / 1e9:.1f} GB: {wheel.name}")
        _pip(python, "download", "--no-deps", "--dest", str(folder), wheel.url)
        done += wheel.nbytes or 0


def _has_pip() -> bool:
    """Return whether this Python has pip, without importing it (which would affect distutils)."""
    try:
        metadata.distribution("pip")
    except metadata.PackageNotFoundError:
        return False
    return True


def _pip(python: Path, *words: str) -> str:
    """Run pip and return its output. Raises RunError with pip's message."""
    pip = [sys.executable, "-m", "pip", "--python", str(python)] if _has_pip() else [str(python), "-m", "pip"]
    command = [*pip, "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        errors = [line for line in done.stderr.strip().splitlines() if "ERROR" in line] or ["it said nothing"]
        raise RunError(
            f"pip {words[0]} ended with exit code {done.returncode}: {errors[0].removeprefix('ERROR: ')}",
            "what was downloaded is kept: the same command goes on from there",
        )
    return done.stdout
