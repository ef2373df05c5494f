"""The CUDA build of PyTorch that can run a program here, on the emulated runtime."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from analyzer import releases
from analyzer.emulation.launch import Torch, find_torch
from analyzer.engines import store
from analyzer.errors import AnalyzerError


def within_reach(python: str | os.PathLike[str] | None = None) -> Torch | None:
    """The first of: the one of `python`; of the Python that `ANALYZER_PYTHON` names; of this one; of an
    environment that
    `analyze engine install` made, the release nearest to the one that figures are of by default first. None:
    there is none.

    Raises OptionError and MissingDependencyError where `python` is given and has none.
    """
    if python is not None:
        return find_torch(python)
    for path in _places():
        try:
            return find_torch(path)
        except AnalyzerError:
            continue
    return None


def _places() -> Iterator[str | Path]:
    if not sys.platform.startswith("linux"):  # the emulated runtime takes the place of libcuda.so.1
        return
    if named := os.environ.get("ANALYZER_PYTHON"):
        yield named
    yield sys.executable
    yield from (engine.python for engine in store.installed("torch", near=releases.RECORDED["torch"]))
