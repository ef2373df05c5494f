"""The emulated CUDA runtime as a file: compiled while this package is installed, from `native/`, where there
is a C compiler."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from analyzer.errors import MissingDependencyError

NATIVE = Path(__file__).parent / "native"
# The names under which programs open the driver and NVML themselves (`dlopen`), or link to it (`-lcuda`, as
# Triton until 3.2 does when it compiles what it launches kernels with): the same library answers.
OPENED_AS = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1")


def path() -> Path:
    """Return the path of the emulated CUDA runtime. Raises MissingDependencyError on other systems and where
    it was not compiled."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise MissingDependencyError(
            f"analyze emulate runs PyTorch's CUDA build for Linux on x86-64; this is {sys.platform} on"
            f" {platform.machine()}",
            "trace the program instead: analyze run",
        )
    files = sorted(Path(__file__).parent.glob("_cuda*.so"))
    if not files:
        raise MissingDependencyError(
            "analyze emulate needs its CUDA runtime, which was not compiled when this package was installed",
            "install a C compiler (such as gcc), then this package again",
        )
    return files[0]
