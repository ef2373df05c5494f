"""The GPU a program would run on, opened through NVML, the management library of NVIDIA's driver.

1. It is the first GPU that `CUDA_VISIBLE_DEVICES` leaves visible. Entries are indices, UUIDs ("GPU-...", as
   much of one as names a single GPU) or MIG instances ("MIG-..."); the first entry decides of which kind all
   are. Without the variable it is GPU 0.
2. Empty, "-1", an entry that names no GPU of this machine, and a repeated entry leave none visible, as in
   CUDA.
3. Asking never initialises CUDA. Without a driver nothing is imported: that takes longer than looking for it.

Sources: CUDA C++ Programming Guide, "CUDA Environment Variables"; `torch/cuda/__init__.py`
(`_parse_visible_devices`, `_transform_uuid_to_ordinals`) for how the text is read; NVML API reference,
`nvmlDeviceGetHandleByIndex_v2` for the order of indices. `tests/devices/test_nvml.py` compares with the
device torch takes, on a machine that has GPUs.

Not modelled: CUDA's own order. NVML counts by PCI bus, CUDA by speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID: in
a machine with GPUs of several models an index may mean another one, a UUID never does. A GPU split into MIG
instances of which none is named: CUDA takes the first instance, here it is the whole GPU.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations, takewhile
from pathlib import Path
from typing import Any

from analyzer.errors import MissingDependencyError

# One of these is there where a driver is: Linux's own, or Windows' under WSL.
_DRIVER_FILES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))


class NoGpuError(MissingDependencyError):
    """Raised without a GPU; `message` is the end of a sentence: "no NVIDIA driver is installed here"."""


@contextmanager
def first_visible() -> Iterator[Any]:
    """NVML's handle of the first visible GPU, valid inside the `with`.

    Raises NoGpuError without a driver, NVML's package or a visible GPU, and for what NVML refuses inside the
    `with`.
    """
    with _opened() as pynvml:
        yield _handle(pynvml, os.environ.get("CUDA_VISIBLE_DEVICES"))


@contextmanager
def named(uuid: str) -> Iterator[Any]:
    """Open the GPU with this UUID ("GPU-..."), valid in the `with`. Raises as `first_visible`."""
    with _opened() as pynvml:
        yield pynvml.nvmlDeviceGetHandleByUUID(uuid)


def link(uuids: Sequence[str]) -> str:
    """Return how these GPUs are connected: "NVLink" if all pairs are, else "PCIe"; "none" for one GPU."""
    if len(uuids) == 1:
        return "none"
    with _opened() as pynvml:
        handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        kind = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        joined = all(
            pynvml.nvmlDeviceGetP2PStatus(one, other, kind) == pynvml.NVML_P2P_STATUS_OK
            for one, other in combinations(handles, 2)
        )
        return "NVLink" if joined else "PCIe"


@contextmanager
def _opened() -> Iterator[Any]:
    """NVML's package, initialised inside the `with`."""
    if sys.platform == "linux" and not any(file.exists() for file in _DRIVER_FILES):
        raise NoGpuError("no NVIDIA driver is installed here")
    try:
        import pynvml
    except ImportError:
        raise NoGpuError("NVML's package is not installed (nvidia-ml-py)") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        raise NoGpuError("no NVIDIA driver is installed here") from None
    except pynvml.NVMLError as error:
        raise NoGpuError(f"the driver reports none: {error}") from error
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise NoGpuError(f"the driver reports none: {error}") from error
    finally:
        pynvml.nvmlShutdown()


def first_entry(variable: str | None) -> int | str | None:
    """Return the first entry of `CUDA_VISIBLE_DEVICES`: an index, a UUID's beginning, or None.

    Only the text is read: whether there is such a GPU is another question.
    """
    if variable is None:
        return 0
    if variable.startswith(("GPU-", "MIG-")):  # a space before it is one too many for CUDA
        uuids = list(takewhile(lambda entry: entry.startswith(variable[:4]), variable.split(",")))
        return uuids[0] if len(set(uuids)) == len(uuids) else None
    indices: list[int] = []
    for entry in variable.split(","):
        digits = re.match(r"\s*\+?[0-9]+", entry)  # as C's strtoul: "1gpu" is 1
        if digits is None:
            break
        if int(digits[0]) in indices:
            return None
        indices.append(int(digits[0]))
    return indices[0] if indices else None


def _handle(pynvml: Any, variable: str | None) -> Any:
    """Return NVML's handle of the GPU that CUDA_VISIBLE_DEVICES names first. Raises NoGpuError."""
    wanted = first_entry(variable)
    setting = f"CUDA_VISIBLE_DEVICES={variable}"
    if wanted is None:
        raise NoGpuError(f"{setting} leaves none visible")
    if isinstance(wanted, str) and wanted.startswith("MIG-"):
        return pynvml.nvmlDeviceGetHandleByUUID(wanted)
    count = pynvml.nvmlDeviceGetCount()
    if isinstance(wanted, int):
        if wanted >= count:
            raise NoGpuError(
                "the driver reports none" if variable is None else f"{setting} leaves none visible"
            )
        return pynvml.nvmlDeviceGetHandleByIndex(wanted)
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    named = [handle for handle in handles if text(pynvml.nvmlDeviceGetUUID(handle)).startswith(wanted)]
    if len(named) != 1:
        raise NoGpuError(f"{setting} leaves none visible")
    return named[0]


def name() -> str | None:
    """Return NVML's name of the first visible GPU, None without one."""
    try:
        with first_visible() as handle:
            import pynvml

            return text(pynvml.nvmlDeviceGetName(handle))
    except NoGpuError:
        return None


def text(value: str | bytes) -> str:
    """Return a string that NVML gave, decoded: old versions of its package return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
