"""Known contents of device memory: kept by the emulated runtime, byte by byte (`native/contents.c`)."""

from __future__ import annotations

import ctypes
import os

import torch

RUNTIME = ctypes.CDLL(None)  # the runtime was loaded before everything else


class DeviceContents:
    """Known contents of one process's device memory: a `Store` (`values/store.py`)."""

    by_storage = False

    def __init__(self) -> None:
        self._stand_ins: set[int] = set()
        self._has_ranks = os.environ.get("WORLD_SIZE", "1") != "1"

    def key(self, tensor: torch.Tensor) -> int:
        """Return the storage's address, 0 for other than plain memory; without a Python storage object, which
        would count as a reference."""
        if not plain(tensor):
            return 0
        return tensor.data_ptr() - int(tensor.storage_offset()) * tensor.element_size()

    def get(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a copy of a tensor's values; None if some are unknown or it is not plain memory."""
        if not tensor.is_cuda:
            return tensor
        if not plain(tensor):
            return None
        nbytes = extent(tensor)
        content = torch.empty(nbytes, dtype=torch.uint8, device="cpu")
        if nbytes and not RUNTIME.emulated_peek(
            ctypes.c_uint64(tensor.data_ptr()), ctypes.c_uint64(nbytes), ctypes.c_void_p(content.data_ptr())
        ):
            return None
        return content.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())

    def stands_in(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor's values stand in for something, here or at the rank that sent them."""
        if not tensor.is_cuda or tensor.layout != torch.strided:
            return False
        address = tensor.data_ptr()
        return address in self._stand_ins or (
            self._has_ranks
            and bool(RUNTIME.emulated_was_sent_a_stand_in(ctypes.c_uint64(address), ctypes.c_uint64(1)))
        )

    def put(self, tensor: torch.Tensor, value: torch.Tensor, stands_in: bool) -> None:
        """Note the value that the tensor holds."""
        nbytes = extent(tensor)
        if nbytes == 0 or not tensor.is_cuda:
            return
        address, is_whole = tensor.data_ptr(), nbytes == tensor.numel() * tensor.element_size()
        laid = None if is_whole else self.get(tensor)  # what lies between its elements stays
        if laid is None:
            make = torch.empty if is_whole else torch.zeros
            laid = make(nbytes // tensor.element_size(), dtype=tensor.dtype, device="cpu").as_strided(
                tensor.shape, tensor.stride()
            )
        laid.copy_(value.expand(tensor.shape))
        RUNTIME.emulated_poke(
            ctypes.c_uint64(address), ctypes.c_uint64(nbytes), ctypes.c_void_p(laid.data_ptr())
        )
        if stands_in:
            RUNTIME.emulated_mark(ctypes.c_uint64(address), ctypes.c_uint64(nbytes))
        (self._stand_ins.add if stands_in else self._stand_ins.discard)(address)

    def forget(self, tensor: torch.Tensor) -> None:
        """Mark the tensor's values as unknown."""
        self.drop(tensor.data_ptr(), extent(tensor))

    def drop(self, key: int, nbytes: int) -> None:
        """Mark `nbytes` bytes at address `key` as unknown."""
        RUNTIME.emulated_forget(ctypes.c_uint64(key), ctypes.c_uint64(nbytes))
        self._stand_ins.discard(key)


def plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one in plain memory, of numbers as they are."""
    of_its_own = tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not of_its_own


def extent(tensor: torch.Tensor) -> int:
    """Return the bytes from the tensor's first element to behind its last."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
