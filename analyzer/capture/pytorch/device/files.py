"""Files a program writes and reads: tensors without memory behind them are saved as if their values were
zero.

1. A CUDA tensor, or a large host tensor (`host.py`), that is pickled, or saved by `torch.save` or
   safetensors, is a tensor of zeros in the file; of its kind otherwise: shape, strides, type, shared storage,
   the device it was on. The notes say so.
2. A tensor that was saved on a GPU is on the GPU again when it is loaded, unless the program says otherwise
   (`map_location`): its storage is requested while the file is read, as PyTorch does
   (`torch/serialization.py`). In the format before zip files it is filled afterwards, in the memory it has
   (`THPStorage_readFileRaw`, torch/csrc/serialization.cpp).
3. Zeros come from memory the operating system maps when it is written to, which it never is: saving needs no
   memory here.

Not modelled: storages shared by several tensors of one file are on the GPU once for each tensor after
loading; tensors handed to other processes through queues.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.patches import replaced
from analyzer.capture.pytorch.recording.answers import ZEROS

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

# Before PyTorch's own way of putting storages on a GPU, which has 20 (`register_package`).
_PRIORITY = 5
# Contents of a small storage that was saved from the host (a generator's state) stay known on the GPU. A
# storage saved from the GPU is zeros, of which nothing is known.
_KNOWN_BYTES = 1 << 16
_COUNT_BYTES = 8  # before the elements of a storage in the format before zip files


class Files:
    """Stores and restores tensors without memory in the files of one followed program."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._zeros: dict[int, torch.UntypedStorage] = {}
        self._on_gpu: dict[int, int] = {}

    def zeros(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a real tensor of zeros for one without memory; shared storages stay shared."""
        own = tensor.untyped_storage()
        storage = self._zeros.get(own._cdata)
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            if storage is None or storage.nbytes() != own.nbytes():
                block = numpy.zeros(max(own.nbytes(), 1), dtype=numpy.uint8)
                storage = torch.from_numpy(block).untyped_storage()
                self._zeros[own._cdata] = storage
                if not self._recorder.storages.in_host_memory(tensor):
                    gpus, gpu = self._recorder.gpus, self._recorder.storages.gpu_of(tensor)
                    self._on_gpu[storage._cdata] = (gpu or 0) if gpus.several else 0
            zeros = torch.empty(0, dtype=tensor.dtype)
            zeros.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
            return zeros.requires_grad_(tensor.requires_grad)

    def _reduced(self) -> Any:
        """Replace `Tensor._reduce_ex_internal`, which gives what a pickle stores of a tensor."""
        original: Any = torch.Tensor._reduce_ex_internal

        def reduce(tensor: torch.Tensor, protocol: int) -> Any:
            with torch._C.DisableTorchFunction():
                if tensor.device.type != "meta" or self._recorder.storages.nowhere(tensor):
                    return original(tensor, protocol)
                self._recorder.note(ZEROS)
                return original(self.zeros(tensor), protocol)

        return reduce

    def where(self, storage: Any) -> str | None:
        """Return a storage's device as stored in a file; None leaves it to PyTorch."""
        gpu = self._on_gpu.get(getattr(storage, "_cdata", 0))
        return None if gpu is None else f"cuda:{gpu}"

    def restored(self, storage: Any, location: str) -> Any:
        """Return a storage of a file, on the device it belongs to; None where PyTorch itself does that."""
        if location.partition(":")[0] != "cuda":
            return None
        device = location if self._recorder.gpus.several else "cuda"
        tensor = torch.empty(storage.nbytes(), dtype=torch.uint8, device=device)
        if storage.device.type == "cpu" and 0 < storage.nbytes() <= _KNOWN_BYTES:
            with torch._C.DisableTorchFunction():
                held = torch.empty(0, dtype=torch.uint8).set_(storage)
                is_known = bool(held.any())
            if is_known:
                tensor.copy_(held)
        return tensor.untyped_storage()

    def _filled(self) -> Any:
        """`UntypedStorage._set_from_file`, which reads the number of elements, and the elements."""
        original: Any = torch.UntypedStorage._set_from_file

        def fill(storage: Any, file: Any, offset: int | None, is_real_file: bool, element_size: int) -> Any:
            if not self._recorder.storages.place_of(storage):
                return original(storage, file, offset, is_real_file, element_size)
            if offset is not None:
                file.seek(offset)
            file.seek(_COUNT_BYTES + storage.nbytes(), os.SEEK_CUR)
            self._recorder.storages.wait(self._recorder.streams.now())
            return storage

        return fill

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """While open, files are written and read as the module docstring says."""
        packages = torch.serialization._package_registry
        before = packages.copy()
        torch.serialization.register_package(_PRIORITY, self.where, self.restored)
        try:
            patches = {
                "torch.Tensor._reduce_ex_internal": self._reduced(),
                "torch.UntypedStorage._set_from_file": self._filled(),
            }
            with replaced(patches), self._safetensors():
                yield
        finally:
            packages[:] = before

    @contextlib.contextmanager
    def _safetensors(self) -> Iterator[None]:
        """safetensors reads a tensor's bytes at its address, of which ones without memory have none."""
        try:
            import safetensors.torch as library
        except ImportError:
            yield
            return
        # By version: an array over the memory, or the bytes themselves.
        names = [name for name in ("_to_ndarray", "_tobytes") if hasattr(library, name)]
        originals = {name: getattr(library, name) for name in names}

        def replacement(original: Any) -> Any:
            def read(tensor: torch.Tensor, *rest: Any) -> Any:
                with torch._C.DisableTorchFunction():
                    without_memory = tensor.device.type == "meta"
                if not without_memory:
                    return original(tensor, *rest)
                self._recorder.note(ZEROS)
                with _disable_current_modes():
                    return original(self.zeros(tensor), *rest)

            return read

        try:
            for name, original in originals.items():
                setattr(library, name, replacement(original))
            yield
        finally:
            for name, original in originals.items():
                setattr(library, name, original)
