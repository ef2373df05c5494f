"""`torch.Generator(device="cuda")` for a program that runs on no GPU: one of the host's that says it is the
GPU's.

Nothing random has a value on the device, so which numbers it would give does not matter: it can be seeded,
its state kept and put back, and it is taken wherever the program gives it to a function that makes a CUDA
tensor.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

_REAL = torch.Generator
# Its seed and offset: `CUDAGeneratorImpl::get_state`, `CUDAGeneratorImpl.cpp`.
_STATE = struct.Struct("<QQ")
STATE_BYTES = _STATE.size


class _OfTheDevice(torch.Generator):
    """A generator on the host that says it is the GPU's."""

    gpu: torch.device

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The GPU this generator claims to be on."""
        return self.gpu

    def get_state(self) -> torch.Tensor:
        """Return a state as the GPU's generators have it, on the host."""
        packed = _STATE.pack(self.initial_seed() % (1 << 64), 0)
        return torch.tensor(list(packed), dtype=torch.uint8, device="cpu")

    def set_state(self, new_state: torch.Tensor) -> _OfTheDevice:
        """Restore a state, if its bytes are here. Raises TypeError and RuntimeError as PyTorch
        (`check_rng_state`, `CUDAGeneratorImpl::set_state`)."""
        if new_state.dtype != torch.uint8 or new_state.device.type != "cpu":
            raise TypeError("RNG state must be a torch.ByteTensor")
        if new_state.numel() not in (STATE_BYTES, STATE_BYTES // 2):
            raise RuntimeError("RNG state is wrong size")
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            if new_state.device.type == "cpu":
                self.manual_seed(int.from_bytes(bytes(new_state.tolist()[:8]), "little"))
        return self


class _Generators(type):
    """Metaclass under which every `torch.Generator` is an instance, also one made before the replacement."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _REAL)


def generator_class(recorder: Recorder) -> type:
    """Return the class that replaces `torch.Generator`."""

    class Generator(metaclass=_Generators):
        """`torch.Generator`."""

        def __new__(cls, device: Any = "cpu") -> Any:
            """Return a generator on this device."""
            gpu = recorder.gpus.named(device)
            return _REAL(device) if gpu is None else _of(recorder.gpus.device(gpu))

    return Generator


def defaults(count: int) -> tuple[torch.Generator, ...]:
    """`torch.cuda.default_generators` of a machine with so many GPUs."""
    return tuple(_of(torch.device("cuda", index)) for index in range(count))


def _of(gpu: torch.device) -> _OfTheDevice:
    generator = _OfTheDevice()
    generator.gpu = gpu
    return generator
