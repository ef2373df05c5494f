"""NVML asked by a program that is followed, through `pynvml`: the pretended device's memory, as `nvidia-smi`
would show it.

1. The memory used on the device is the simulated process's: context, libraries and its allocator's
   reservation (`Memory.device_free`). The followed process is the only one there.
2. Sensors give an idle GPU's figures. Other functions raise NVML's own "not supported", which programs
   expect.

Nothing is opened: the module's functions are others while a program is followed, and its own again
afterwards.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder
    from analyzer.devices import DeviceProfile

_DRIVER = "580.159.03"  # of the measurements
_CUDA_DRIVER = 13000
_IDLE_MILLIWATTS, _IDLE_MHZ, _IDLE_CELSIUS, _LIMIT_MILLIWATTS = 75_000, 345, 30, 700_000


@contextlib.contextmanager
def nvml(device: DeviceProfile, recorder: Recorder) -> Iterator[None]:
    """While open, `pynvml` speaks of `device`, if it is installed."""
    if importlib.util.find_spec("pynvml") is None:
        yield
        return
    library: Any = importlib.import_module("pynvml")
    answers = _answers(device, recorder)

    def other(_: str) -> Any:
        raise library.NVMLError(library.NVML_ERROR_NOT_SUPPORTED)

    answers["_nvmlGetFunctionPointer"] = other
    before = {name: vars(library)[name] for name in answers if name in vars(library)}
    vars(library).update({name: answers[name] for name in before})
    try:
        yield
    finally:
        vars(library).update(before)


def _answers(device: DeviceProfile, recorder: Recorder) -> dict[str, Any]:
    """Name in `pynvml` -> replacement."""

    def handle(index: Any = 0, *_: Any) -> int:
        return index if isinstance(index, int) else 0

    def memory(index: Any = None, version: Any = None) -> Any:
        own = index if recorder.gpus.several and isinstance(index, int) else None
        free, total = torch.cuda.mem_get_info(own)
        kept = max(device.listed_bytes - total, 0)
        used = total - free + (0 if version else kept)  # the first version counts what the driver keeps
        return SimpleNamespace(total=total + kept, free=free, used=used, reserved=kept, version=2)

    def processes(index: Any = None) -> list[Any]:
        used = memory(index, version=2).used - device.driver_bytes
        return [SimpleNamespace(pid=os.getpid(), usedGpuMemory=used, gpuInstanceId=None)]

    def says(answer: Any) -> Any:
        return lambda *_, **__: answer

    name = device.nvml_names[0] if device.nvml_names else device.name
    running = [
        f"nvmlDeviceGet{kind}RunningProcesses{version}"
        for kind in ("Compute", "Graphics")
        for version in ("", "_v2", "_v3")
    ]
    return {
        **{f"nvml{what}": says(None) for what in ("Init", "InitWithFlags", "Shutdown")},
        **{f"nvmlDeviceGetHandleBy{what}": handle for what in ("Index", "UUID", "PciBusId", "Serial")},
        **{name: processes for name in running if "Compute" in name},
        **{name: says([]) for name in running if "Graphics" in name},
        "nvmlDeviceGetCount": lambda: recorder.gpus.count,
        "nvmlDeviceGetIndex": handle,
        "nvmlDeviceGetMinorNumber": handle,
        "nvmlDeviceGetName": recorder.compatible.alone(says(name)),
        "nvmlDeviceGetUUID": says("GPU-00000000-0000-0000-0000-000000000000"),
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetCudaComputeCapability": recorder.compatible.alone(says(device.compute_capability)),
        "nvmlDeviceGetUtilizationRates": says(SimpleNamespace(gpu=0, memory=0)),
        "nvmlDeviceGetTemperature": says(_IDLE_CELSIUS),
        "nvmlDeviceGetPowerUsage": says(_IDLE_MILLIWATTS),
        "nvmlDeviceGetPowerManagementLimit": says(_LIMIT_MILLIWATTS),
        "nvmlDeviceGetEnforcedPowerLimit": says(_LIMIT_MILLIWATTS),
        "nvmlDeviceGetTotalEnergyConsumption": says(0),
        "nvmlDeviceGetClockInfo": says(_IDLE_MHZ),
        "nvmlDeviceGetFanSpeed": says(0),
        "nvmlSystemGetDriverVersion": says(_DRIVER),
        "nvmlSystemGetNVMLVersion": says(f"13.{_DRIVER}"),
        "nvmlSystemGetCudaDriverVersion": says(_CUDA_DRIVER),
        "nvmlSystemGetCudaDriverVersion_v2": says(_CUDA_DRIVER),
    }
