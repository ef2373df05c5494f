"""`torch.Generator(device="cuda")` for a program that runs on no GPU: one of the host's that says it is the
GPU's.

Nothing random has a value on the device, so which numbers it would give does not matter: it can be seeded,
its state kept and put back, and it is taken wherever the program gives it to a function that makes a CUDA
tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from analyzer.capture.pytorch.device.placement import is_cuda

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

_REAL = torch.Generator


class _OfTheDevice(torch.Generator):
    """A generator on the host that says it is the GPU's."""

    gpu: torch.device

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The GPU."""
        return self.gpu


class _Generators(type):
    """Every generator is one, those made before too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _REAL)


def generator_class(recorder: Recorder) -> type:
    """The class that stands for `torch.Generator` in the program that is recorded."""

    class Generator(metaclass=_Generators):
        """`torch.Generator`."""

        def __new__(cls, device: Any = "cpu") -> Any:
            """A generator on this device."""
            if not is_cuda(device, recorder.gpu):
                return _REAL(device)
            return _of(recorder.gpu)

    return Generator


def defaults(count: int) -> tuple[torch.Generator, ...]:
    """`torch.cuda.default_generators` of a machine with so many GPUs."""
    return tuple(_of(torch.device("cuda", index)) for index in range(count))


def _of(gpu: torch.device) -> _OfTheDevice:
    made = _OfTheDevice()
    made.gpu = gpu
    return made
