"""Settings of eager PyTorch, by option or environment variable: of the caching allocator, which is made here,
and of cuBLAS's workspace.

`alloc_conf` and `cublas_workspace` say the same as `PYTORCH_ALLOC_CONF` and `CUBLAS_WORKSPACE_CONFIG`, and
win over them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from analyzer.allocators.pytorch.asynchronous import NOTE as ASYNC_NOTE
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.create import create
from analyzer.allocators.pytorch.settings import settings_from_conf, ties_of
from analyzer.devices import DeviceProfile
from analyzer.errors import OptionError, did_you_mean
from analyzer.releases import RECORDED, written

_SET_BY_MONAI = ":4096:8"
# Streams of PyTorch's pools: all are made when a program asks for the first (`initDeviceStreamState`,
# c10/cuda/CUDAStream.cpp).
STREAM_POOL_BYTES = 70 << 20
# 4096 KiB x 2 + 16 KiB x 8 (`getChosenWorkspaceSize`, aten/src/ATen/cuda/CublasHandlePool.cpp).
_SMALL_WORKSPACE_BYTES = 8_519_680
KNOWN = ("cublas_workspace", "alloc_conf")


def alloc_conf(options: Mapping[str, Any]) -> str:
    """Return the caching allocator's settings: the option, else PyTorch's own environment variables."""
    variables = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    return str(options.get("alloc_conf") or next((os.environ[v] for v in variables if os.environ.get(v)), ""))


def make_allocator(conf: str, profile: DeviceProfile, **settings: Any) -> PyTorchAllocator:
    """Return the allocator for these settings in the profile's torch release."""
    return create(conf, ties=ties_of(profile.releases["torch"]), **settings)


def limited(conf: str, profile: DeviceProfile, limit_bytes: int, device: bool) -> PyTorchAllocator:
    """Return the allocator under a limit: the device's (`cudaMalloc` has no more to give), else its own, as
    `torch.cuda.set_per_process_memory_fraction` sets it: a fraction of the device, of which only the product
    counts."""
    if device:
        return make_allocator(conf, profile, limit_bytes=limit_bytes)
    return make_allocator(conf, profile, per_process_memory_fraction=0.5, device_total_bytes=2 * limit_bytes)


def _cublas_variable(model: Any) -> str | None:
    """`CUBLAS_WORKSPACE_CONFIG` as the program to predict will see it.

    MONAI sets the variable when it is imported (`monai/utils/misc.py`). If that happened here only because
    another model was analysed before, it means nothing to this one: then it counts if the process was started
    with it.
    """
    value = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    if value != _SET_BY_MONAI:
        return value
    if model is not None and any(
        type(part).__module__.partition(".")[0] == "monai" for part in model.modules()
    ):
        return value
    started_with = Path("/proc/self/environ")
    own = f"CUBLAS_WORKSPACE_CONFIG={value}".encode()
    return value if not started_with.exists() or own in started_with.read_bytes().split(b"\0") else None


def with_workspaces(device: DeviceProfile, options: Mapping[str, Any], model: Any = None) -> DeviceProfile:
    """Return the profile with the cuBLAS workspace the user configured.

    `:4096:2:16:8` is PyTorch's notation (`CUBLAS_WORKSPACE_CONFIG`): pairs of KiB and count. cublasLt's own
    is never larger (`runtimes/pytorch/scratch/blas.py`), so a sum of zero switches both off. The library
    reads the variable too: it is the size of what each thread's handle holds outside the allocator (NVML on
    an H200, with 2 MiB of kernels: 2 MiB at :0:0 and :16:8, 10 at :4096:2:16:8, 34 at :4096:8, against 66 at
    the default).
    """
    for name in options:
        if name not in KNOWN:
            raise OptionError(
                f"unknown runtime option {name!r} for pytorch",
                f"{did_you_mean(name, KNOWN)}one of {', '.join(KNOWN)}",
            )
    text = options.get("cublas_workspace", _cublas_variable(model))
    if text is None or text == "":
        return _by_release(device)
    if isinstance(text, int):
        total = text
    else:
        parts = str(text).strip(":").split(":")
        if len(parts) % 2 or not all(part.isdigit() for part in parts):
            raise OptionError(
                f"cublas_workspace is {text!r}",
                "give :KIB:COUNT pairs as in CUBLAS_WORKSPACE_CONFIG, :0:0 for none",
            )
        total = 1024 * sum(
            int(size) * int(count) for size, count in zip(parts[::2], parts[1::2], strict=True)
        )
    modules = {**device.modules_bytes, "cublas": min(total, device.modules_bytes.get("cublas", 0))}
    return dataclasses.replace(device, cublas_workspace_bytes=total, modules_bytes=modules)


def _by_release(device: DeviceProfile) -> DeviceProfile:
    """Return the profile with the smaller workspace where its release is not yet one that gives its
    architecture the larger. A profile measured on its GPU keeps its value."""
    large = device.architecture.large_workspace
    if device.measured or large is None or device.releases["torch"] in large:
        return device
    smaller = min(device.cublas_workspace_bytes, _SMALL_WORKSPACE_BYTES)
    return dataclasses.replace(device, cublas_workspace_bytes=smaller)


def notes_on(conf: str) -> tuple[str, ...]:
    """Return notes on figures under these allocator settings."""
    return (ASYNC_NOTE,) if settings_from_conf(conf).backend == "cudaMallocAsync" else ()


def notes_on_ties(profile: DeviceProfile, libraries: Collection[str]) -> tuple[str, ...]:
    """Return notes for unmeasured torch releases, whose handles' addresses are not simulated."""
    release = profile.releases["torch"]
    if not libraries or release == RECORDED["torch"] or ties_of(release) != "address":
        return ()
    return (
        f"torch {written(release)} takes the free block at the lower address of two that are equal, and"
        " addresses depend on the handles of cuBLAS and cuDNN too, which are not simulated: reserved may"
        " be one segment more (2 MiB)",
    )


def pool_bytes(conf: str, streams: bool = False) -> int:
    """Return the bytes of PyTorch's stream pools: 70 MiB by NVML on an H200 (driver 580), in three programs
    that use a stream and three with the driver's own pool, which uses one itself
    (`CUDAMallocAsyncAllocator.cpp`).

    streams: the program asks for one.
    """
    uses_stream = streams or settings_from_conf(conf).backend == "cudaMallocAsync"
    return STREAM_POOL_BYTES if uses_stream else 0
