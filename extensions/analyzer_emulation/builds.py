"""The environment that an emulated program runs in: PyTorch's CUDA build, ONNX Runtime's, or both."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from analyzer.devices import DeviceProfile
from analyzer.errors import MissingDependencyError
from analyzer_emulation import launch
from analyzer_emulation.inference import Provider, find_provider

_MIB = 2**20
# Of ONNX Runtime's process, by NVML on an H200 (driver 580, onnxruntime-gpu 1.30.0, CUDA 13; 35 sessions in
# five processes each): 592 MiB beside the arena once a session is made, 664 to 669 after its first run,
# which makes cuBLAS's and cuDNN's handles once more, 10 more with EXHAUSTIVE search. What a context takes
# before PyTorch's first kernel, and a pair of handles, are the device's own figures.
_FIRST_KERNEL_BYTES = 2 * _MIB
_LAUNCHED_BYTES = 4 * _MIB
_SEARCHED_BYTES = 10 * _MIB


@dataclass(frozen=True, slots=True)
class Build:
    """A Python's CUDA builds. cuda: the release they were built with; torch, onnxruntime: None where there is
    none."""

    python: Path
    cuda: tuple[int, int]
    torch: launch.Torch | None = None
    onnxruntime: Provider | None = None

    @property
    def libraries(self) -> tuple[str, ...]:
        """Names of NVIDIA's libraries that are to be found as files."""
        return () if self.onnxruntime is None else self.onnxruntime.libraries

    def device(self, profile: DeviceProfile) -> DeviceProfile:
        """Return the device as a process of this build has it: its own code beside its memory."""
        if self.torch is not None:
            return profile
        modules = {
            **profile.modules_bytes,
            "kernels": 0,
            "launched": _LAUNCHED_BYTES,
            "searched": _SEARCHED_BYTES,
        }
        context_bytes = profile.context_bytes - profile.first_kernel_bytes + _FIRST_KERNEL_BYTES
        return replace(
            profile,
            context_bytes=context_bytes,
            first_kernel_bytes=_FIRST_KERNEL_BYTES,
            modules_bytes=modules,
        )


def find_build(python: str | os.PathLike[str] | None) -> Build:
    """Find the builds of `python` (None: this one). Raises OptionError, and MissingDependencyError where it
    has neither."""
    try:
        provider = find_provider(python)
    except MissingDependencyError:
        provider = None
    try:
        torch = launch.find_torch(python)
    except MissingDependencyError:
        if provider is None:
            raise
        return Build(provider.python, provider.cuda, None, provider)
    return Build(torch.python, torch.cuda, torch, provider)
