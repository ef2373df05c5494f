"""What is known of device memory: kept by the emulated runtime, by address (`native/contents.c`).

Small tensors are kept (`MOST_ELEMENTS`); those of integers and truth values may be larger (`LARGE_BYTES`),
until `LARGE_WORK` bytes of such were read and written.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch
from tensors import extent, is_number  # beside this file

MOST_ELEMENTS = 65536
LARGE_BYTES = 1 << 27
LARGE_WORK = 1 << 31
RUNTIME = ctypes.CDLL(None)  # the runtime was loaded before everything else


def small(tensor: torch.Tensor, most: int = MOST_ELEMENTS) -> bool:
    """Whether a tensor is one in plain memory, of so many elements at most."""
    return (
        tensor.numel() <= most
        and type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
    )


class DeviceContents:
    """What one process knows of its device's memory."""

    def __init__(self) -> None:
        # Of masks by address: their elements, and how many of them are true.
        self.counts: dict[int, tuple[int, int]] = {}
        self._stand_ins: set[int] = set()
        self._work_left = LARGE_WORK
        self._has_ranks = os.environ.get("WORLD_SIZE", "1") != "1"

    def fits(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is small enough for its values to be kept."""
        if tensor.numel() <= MOST_ELEMENTS:
            return small(tensor)
        room = min(LARGE_BYTES, self._work_left)
        return not is_number(tensor) and small(tensor, room // tensor.element_size())

    def known(self, given: list[torch.Tensor], written: list[Any]) -> dict[int, torch.Tensor] | None:
        """Copies on the CPU of these tensors, by identity; None where one is not known. written: those whose
        values do not matter."""
        found = {}
        for tensor in given:
            if not tensor.is_cuda:
                found[id(tensor)] = tensor
                continue
            copy = self.value(tensor)
            if copy is None and any(tensor is one for one in written) and self.fits(tensor):
                copy = torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
            if copy is None:
                return None
            found[id(tensor)] = copy
        return found

    def value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What a tensor holds, a copy; None where not all of it is known, or it is too large."""
        if not self.fits(tensor):
            return None
        self.spend(tensor)
        return self.held(tensor, LARGE_BYTES)

    def spend(self, tensor: torch.Tensor) -> None:
        """A tensor's values are read, or written."""
        if tensor.numel() > MOST_ELEMENTS:
            self._work_left = max(self._work_left - extent(tensor), 0)

    @staticmethod
    def held(tensor: torch.Tensor, most: int = 8 * MOST_ELEMENTS) -> torch.Tensor | None:
        """What the device's memory holds there, a copy; None where not all of it is known, or there is
        more."""
        nbytes = extent(tensor)
        if nbytes == 0:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        if nbytes > most:
            return None
        content = bytearray(nbytes)
        into = (ctypes.c_char * nbytes).from_buffer(content)
        if not RUNTIME.emulated_peek(ctypes.c_uint64(tensor.data_ptr()), ctypes.c_uint64(nbytes), into):
            return None
        return torch.frombuffer(content, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())

    def stands_in(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's values stand in for something, here or where another rank sent them from."""
        if tensor.layout != torch.strided:
            return False
        address = tensor.data_ptr()
        return address in self._stand_ins or (
            self._has_ranks
            and bool(RUNTIME.emulated_was_sent_a_stand_in(ctypes.c_uint64(address), ctypes.c_uint64(1)))
        )

    def keep(self, tensor: torch.Tensor, value: torch.Tensor, stand_in: bool) -> None:
        """The tensor holds this value."""
        nbytes = extent(tensor)
        if nbytes == 0:
            return
        laid = self.value(tensor)  # what lies between its elements stays
        if laid is None:
            laid = torch.zeros(nbytes // tensor.element_size(), dtype=tensor.dtype, device="cpu").as_strided(
                tensor.shape, tensor.stride()
            )
        laid.copy_(value.expand(tensor.shape))
        RUNTIME.emulated_poke(
            ctypes.c_uint64(tensor.data_ptr()), ctypes.c_uint64(nbytes), ctypes.c_void_p(laid.data_ptr())
        )
        if stand_in:
            RUNTIME.emulated_mark(ctypes.c_uint64(tensor.data_ptr()), ctypes.c_uint64(nbytes))
        self.counts.pop(tensor.data_ptr(), None)
        (self._stand_ins.add if stand_in else self._stand_ins.discard)(tensor.data_ptr())

    def forget(self, tensor: torch.Tensor) -> None:
        """What the tensor holds is not known."""
        self.counts.pop(tensor.data_ptr(), None)
        RUNTIME.emulated_forget(ctypes.c_uint64(tensor.data_ptr()), ctypes.c_uint64(extent(tensor)))
        self._stand_ins.discard(tensor.data_ptr())
