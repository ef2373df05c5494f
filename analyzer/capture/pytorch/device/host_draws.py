"""The program's own random numbers, where its large host tensors have no memory to be filled with any.

A program that seeds PyTorch draws the same numbers in every run, and may decide lengths by them. Initializing
a parameter on the CPU takes numbers from the same generator: those of a tensor without memory are drawn and
dropped, so that what is drawn afterwards is what it will be. Nothing is drawn of a generator that the program
has not seeded, nor more than `MOST`: that would take seconds.

Numbers of 32 bits that are taken (`aten/src/ATen/native/cpu/DistributionTemplates.h`, `normal_fill`,
`uniform_kernel`; `tests/extensions/programs/device/test_host_draws.py` counts them): one for each element,
two of eight bytes; `normal_` fills sixteen elements at a time: it fills the last sixteen again where some are
left over, of two bytes whole sixteens; where elements lie apart it takes two for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

aten = torch.ops.aten
MOST = 1 << 28
_AT_ONCE = 1 << 20
_UNSEEDED = 0x5F7365656465645F  # the seed that the default generator says it has until the program seeds it
_SIXTEEN = 16


def seeded(generator: torch.Generator) -> bool:
    """Return whether the program has seeded a generator on the CPU; PyTorch's default one begins without."""
    return generator.initial_seed() != _UNSEEDED


class HostDraws:
    """Random numbers that generators on the CPU draw. Made before the program begins."""

    def __init__(self) -> None:
        self._room = MOST
        state = torch.get_rng_state()
        state[:8] = torch.tensor([_UNSEEDED], dtype=torch.int64, device="cpu").view(torch.uint8)
        torch.set_rng_state(state)

    def take(self, count: int, generator: torch.Generator | None) -> None:
        """Draw so many numbers of 32 bits, and drop them. generator: None is PyTorch's default one."""
        generator = torch.default_generator if generator is None else generator
        if generator.device.type != "cpu" or not seeded(generator) or count > self._room:
            return
        self._room -= count
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            numbers = torch.empty(min(count, _AT_ONCE), dtype=torch.uint8, device="cpu")
            for begin in range(0, count, _AT_ONCE):
                numbers[: count - begin].random_(generator=generator)

    def handlers(self) -> dict[Any, Callable[..., Any]]:
        """Return the operators that fill a tensor with random numbers -> what is called before them."""

        def filled(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
            tensor, storages = args[0], recorder.storages
            # The program's own meta tensors are filled with nothing, in a real run too.
            if tensor.is_meta and storages.in_host_memory(tensor) and not storages.nowhere(tensor):
                self.take(_NUMBERS[func](tensor), kwargs.get("generator"))
            return NotImplemented

        return dict.fromkeys(_NUMBERS, filled)


def even_numbers(tensor: torch.Tensor) -> int:
    """Return how many numbers of 32 bits `uniform_` takes."""
    return tensor.numel() * (2 if tensor.dtype is torch.float64 else 1)


def normal_numbers(tensor: torch.Tensor) -> int:
    """Return how many numbers of 32 bits `normal_` takes for a tensor of at least sixteen elements."""
    count = tensor.numel() * (2 if tensor.is_complex() else 1)
    wide = tensor.dtype in (torch.float64, torch.complex128)
    if not tensor.is_contiguous():
        return count * 2
    if tensor.element_size() == 2:
        return -(-count // _SIXTEEN) * _SIXTEEN
    return (count + _SIXTEEN * (count % _SIXTEEN > 0)) * (2 if wide else 1)


_NUMBERS: dict[Any, Callable[[torch.Tensor], int]] = {
    aten.normal_.default: normal_numbers,
    aten.uniform_.default: even_numbers,
    aten.random_.to: torch.Tensor.numel,
    getattr(aten.random_, "from"): torch.Tensor.numel,
}
