"""The CUDA build of PyTorch, or of ONNX Runtime, that can run a program here, on the emulated runtime."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from analyzer import releases
from analyzer.engines.sessions import has_sessions_alone
from analyzer.errors import AnalyzerError
from analyzer_emulation import store
from analyzer_emulation.inference import Provider, find_provider
from analyzer_emulation.launch import Torch, find_torch

_Build = TypeVar("_Build")


def within_reach(python: str | os.PathLike[str] | None = None) -> Torch | None:
    """The first of: the one of `python`; of the Python that `ANALYZER_PYTHON` names; of this one; of an
    environment that `analyze engine install` made, the release nearest to the one that figures are of by
    default first. None: there is none.

    Raises OptionError and MissingDependencyError where `python` is given and has none.
    """
    return _first("torch", find_torch, python)


def provider_within_reach(python: str | os.PathLike[str] | None = None) -> Provider | None:
    """The ONNX Runtime with a CUDA provider that is found as `within_reach` finds PyTorch."""
    return _first("onnxruntime-gpu", find_provider, python)


def _first(
    package: str,
    find: Callable[[str | os.PathLike[str] | None], _Build],
    python: str | os.PathLike[str] | None,
) -> _Build | None:
    if python is not None:
        return find(python)
    for path in places(package, releases.RECORDED[package.removesuffix("-gpu")]):
        try:
            return find(path)
        except AnalyzerError:
            continue
    return None


def python(given: str | None, script: str = "") -> str | None:
    """Return the Python whose PyTorch is emulated where a command needs one (ONNX Runtime, for a script that
    has sessions of it alone): the one given, the one that `ANALYZER_PYTHON` names, else that of the build
    within reach; None: there is none."""
    if named := given or os.environ.get("ANALYZER_PYTHON"):
        return named
    build = provider_within_reach() if has_sessions_alone(script) else within_reach()
    return None if build is None else str(build.python)


def places(package: str, near: releases.Release) -> Iterator[Path]:
    """Yield where an environment with the package may be, in order of search; of this tool's own the release
    nearest to `near` first. Interpreters or environment folders."""
    if not sys.platform.startswith("linux"):  # the emulated runtime takes the place of libcuda.so.1
        return
    if named := os.environ.get("ANALYZER_PYTHON"):
        yield Path(named)
    yield Path(sys.executable)
    yield from (engine.python for engine in store.installed(package, near))
