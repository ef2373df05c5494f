"""The machine of a real run: its GPU, other processes on it, installed versions.

1. A missing part is one sentence, in the order a user would fix them: torch, a CUDA build of it, a driver,
   NVML's package, a GPU.
2. Nothing here initialises CUDA: figures come from NVML, of the GPU that `devices/nvml.py` opens, and from
   packages' own version numbers.
3. NVML counts per process and for the device. Where a container hides process ids, the process figure is
   unknown.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from analyzer.devices import DeviceProfile, nvml
from analyzer.errors import DoesNotFit, MissingDependencyError, install
from analyzer.report.words import size

_HINT = "run it on a machine with an NVIDIA GPU, or leave 'verify' out for the estimate alone"


@dataclass(frozen=True, slots=True)
class Gpu:
    """NVML's figures of the GPU, in bytes. others: process id -> bytes of other processes."""

    name: str
    driver: str
    total_bytes: int
    free_bytes: int
    used_bytes: int
    others: Mapping[int, int]


def require_cuda(what: str, done: str = "verified", hint: str = _HINT) -> Gpu:
    """Return the GPU PyTorch would run `what` on. Raises MissingDependencyError saying what is missing."""
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError(
            f"{what} can only be {done} by running it, and torch is not installed",
            f"{install('torch')} on a machine with an NVIDIA GPU",
        )
    import torch

    if torch.version.cuda is None:
        raise MissingDependencyError(
            f"{what} can only be {done} on an NVIDIA GPU, and this torch ({torch.__version__}) is built"
            " without CUDA",
            hint,
        )
    return gpu(what, done, hint)


def gpu(what: str, done: str = "verified", hint: str = _HINT) -> Gpu:
    """Return the first visible GPU. Raises MissingDependencyError saying what is missing first."""
    try:
        return _gpu()
    except nvml.NoGpuError as error:
        raise MissingDependencyError(
            f"{what} can only be {done} on an NVIDIA GPU, and {error.message}", hint
        ) from error


def has_gpu() -> bool:
    """Return whether NVML sees a GPU."""
    return nvml.name() is not None


def _gpu() -> Gpu:
    """Return NVML's figures of the first visible GPU. Raises NoGpuError."""
    with nvml.first_visible() as handle:
        import pynvml

        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        name, driver = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlSystemGetDriverVersion()
        others = {pid: used for pid, used in _bytes_by_process(handle).items() if pid != os.getpid()}
        return Gpu(nvml.text(name), nvml.text(driver), memory.total, memory.free, memory.used, others)


def process_bytes(uuid: str | None = None) -> int | None:
    """Return NVML's bytes of this process on the GPU with this UUID, or the first visible one; None if NVML
    cannot tell. Raises NoGpuError."""
    with nvml.first_visible() if uuid is None else nvml.named(uuid) as handle:
        return _bytes_by_process(handle).get(os.getpid())


def device_bytes() -> int:
    """Return the bytes of the device used by all processes, as NVML counts them. Raises NoGpuError."""
    with nvml.first_visible() as handle:
        import pynvml

        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


def check_room(needed_bytes: int, gpu: Gpu, force: bool) -> list[str]:
    """Return notes on other processes of the GPU. Raises DoesNotFit without enough free memory."""
    notes = []
    others = ""
    if gpu.others:
        count = len(gpu.others)
        others = (
            f"{count} other process{'es' if count > 1 else ''} hold{'' if count > 1 else 's'}"
            f" {size(gpu.used_bytes)}"
        )
        notes.append(f"{others} of the GPU; figures are for the verified process alone")
    if needed_bytes > gpu.free_bytes:
        if not force:
            raise DoesNotFit(
                f"the run would need {size(needed_bytes)}, and the {gpu.name} has {size(gpu.free_bytes)} free"
                f" of {size(gpu.total_bytes)}" + (f" ({others})" if others else ""),
                "choose a smaller batch, free the GPU, or run it all the same with --force",
            )
        notes.append("run with --force although the estimate says it does not fit")
    return notes


def host_free_bytes() -> int | None:
    """Return the free host memory of this machine or container; None if unknown.

    Source: `/proc/meminfo` (MemAvailable), and the memory controller of the process's group (`memory.max`,
    `memory.current`, cgroup v2; `memory.limit_in_bytes`, v1), as Linux's documentation has them.
    """
    limits = []
    available = re.search(r"MemAvailable:\s+(\d+) kB", _read_or_empty(Path("/proc/meminfo")))
    if available:
        limits.append(1024 * int(available[1]))
    for folder, most, now in _CONTROLLERS:
        limit, used = _read_or_empty(folder / most).strip(), _read_or_empty(folder / now).strip()
        if limit.isdigit() and used.isdigit():
            limits.append(max(int(limit) - int(used), 0))
    return min(limits, default=None)


_CONTROLLERS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def _read_or_empty(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def check_host(needed_bytes: int, written_bytes: int, force: bool) -> list[str]:
    """Return notes on host memory and disk a run needs. Raises DoesNotFit without enough."""
    folder = tempfile.gettempdir()
    for needed, free, what in (
        (needed_bytes, host_free_bytes(), "memory of this machine"),
        (written_bytes, shutil.disk_usage(folder).free, f"room in {folder} for weights made up"),
    ):
        if free is not None and needed > free:
            if not force:
                raise DoesNotFit(
                    f"the run would need {size(needed)} {what}, and {size(free)} are free",
                    "choose a smaller batch, make room, or run it all the same with --force",
                )
            return [f"run with --force although it needs more than there is: {size(needed)} {what}"]
    return []


def _bytes_by_process(handle: Any) -> dict[int, int]:
    import pynvml

    running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return {entry.pid: int(entry.usedGpuMemory or 0) for entry in running}


def fingerprint(gpu: Gpu | None) -> dict[str, str]:
    """Return everything a measurement depends on, by name, with its date; absent parts are left out."""
    facts = {
        "date": date.today().isoformat(),
        "gpu": gpu.name if gpu else "",
        "driver": gpu.driver if gpu else "",
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "analyzer": _version("analyzer"),
        "torch": _version("torch"),
        "onnxruntime": _version("onnxruntime-gpu") or _version("onnxruntime"),
    }
    for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG"):
        facts[variable] = os.environ.get(variable, "")
    return {name: value for name, value in facts.items() if value}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def differences(profile: DeviceProfile, environment: Mapping[str, str]) -> list[str]:
    """Return a note for each version other than the profile's."""
    notes = []
    if environment.get("gpu") and profile.nvml_names and environment["gpu"] not in profile.nvml_names:
        notes.append(
            f"predicted for {profile.name}, measured on another GPU: {environment['gpu']} (--device names the"
            " profile)"
        )
    measured = " ".join(text for text in profile.sources.values() if text.startswith("measured"))
    for name, pattern in (
        ("torch", r"torch (\d+\.\d+)"),
        ("cudnn", r"cuDNN (\d+\.\d+)"),
        ("driver", r"driver (\d+)"),
    ):
        named = set(re.findall(pattern, measured))
        value = environment.get(name, "")
        if named and value and not any(re.match(rf"{re.escape(version)}(\D|$)", value) for version in named):
            notes.append(
                f"the profile {profile.name} was measured with {name} {', '.join(sorted(named))}, this"
                f" machine has {value}"
            )
    return notes
