"""The compiled core of the allocators, of this checkout, wherever there is a C compiler."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.paths import ROOT

# The other extensions take six times as long.
_ALONE = """
import setuptools
from setuptools.command.build_ext import build_ext

class Alone(build_ext):
    def run(self):
        self.extensions = [one for one in self.extensions if one.name == "analyzer.allocators._best_fit"]
        super().run()

setuptools.setup(cmdclass={"build_ext": Alone})
"""


@functools.cache
def compiled() -> ModuleType:
    """`analyzer.allocators._best_fit` of this checkout, built apart from it. Skips where it cannot be compiled."""
    folder = Path(tempfile.mkdtemp())
    built = subprocess.run(
        [sys.executable, "-c", _ALONE, "build_ext",
         "--build-lib", str(folder / "lib"), "--build-temp", str(folder / "temp")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = list(folder.rglob("_best_fit*.so"))
    if not found:
        pytest.skip(f"no C compiler: {built.stderr[-200:]}")
    spec = importlib.util.spec_from_file_location("analyzer.allocators._best_fit", found[0])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
