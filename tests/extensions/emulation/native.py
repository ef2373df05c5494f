"""The emulated CUDA runtime of this checkout, compiled here and now and loaded by ctypes, for a device made up for a test."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

import pytest

from tests.paths import ROOT

_copies = itertools.count()


@functools.cache
def compiled() -> Path:
    """The library, from the sources `pyproject.toml` names. Skips where there is no C compiler."""
    cc = shutil.which("cc") or shutil.which("gcc")
    if cc is None:
        pytest.skip("no C compiler")
    modules = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["ext-modules"]
    module = next(module for module in modules if module["name"] == "analyzer_emulation._cuda")
    found = Path(tempfile.mkdtemp()) / "_cuda.so"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *module["extra-compile-args"]]
    built = subprocess.run(
        [cc, *flags, *(str(ROOT / source) for source in module["sources"]), "-o", found, "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return found


def loaded(described: str) -> ctypes.CDLL:
    """A library of its own for this device: it reads the device once, when it is first asked."""
    copy = compiled().with_name(f"_cuda{next(_copies)}.so")
    shutil.copy(compiled(), copy)
    os.environ["ANALYZER_EMULATED_DEVICE"] = described
    library = ctypes.CDLL(str(copy))
    count = ctypes.c_int()
    assert library.cudaGetDeviceCount(ctypes.byref(count)) == 0
    del os.environ["ANALYZER_EMULATED_DEVICE"]
    for name in ("emulated_page_bytes", "emulated_used_bytes", "emulated_properties_bytes"):
        getattr(library, name).restype = ctypes.c_uint64
    for name in ("cudaGetErrorString", "emulated_refused"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


def malloc(library: ctypes.CDLL, nbytes: int) -> int | None:
    """The address `cudaMalloc` gives; None: out of memory."""
    address = ctypes.c_void_p()
    code = library.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(nbytes))
    assert code in (0, 2)
    return None if code else address.value


def free(library: ctypes.CDLL, address: int) -> None:
    assert library.cudaFree(ctypes.c_void_p(address)) == 0
