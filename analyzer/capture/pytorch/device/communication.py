"""Copies between the GPUs of one process (`torch.cuda.comm`), of which there is one: what `nn.DataParallel`
is made of.

1. With one GPU `DataParallel` calls its module itself, on inputs that went through `scatter`: host tensors
   are copied on a stream of their own (`torch/nn/parallel/_functions.py`), so their memory belongs to that
   stream's pools; tensors on the GPU are taken as they are.
2. `gather` makes one tensor and copies the parts into it, channels-last where all of them are.
3. `broadcast_coalesced` joins tensors before it sends them, to nobody here: up to `buffer_size` bytes at a
   time.

Source: `torch/csrc/cuda/comm.cpp`.

Not modelled: several GPUs in one process, which are an error that says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._utils import _flatten_dense_tensors, _take_tensors

from analyzer.capture.pytorch.device.placement import NoSuchGpuError

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

_ON_HOST = -1  # as a device's number


class Communication:
    """`torch.cuda.comm` and what lies below it, where there is one GPU."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._inputs_stream: Any = None

    def functions(self) -> dict[str, Any]:
        """Return the replacements by name below `torch`."""
        recorder = self._recorder
        return {
            "_C._scatter": self._scatter,
            "_C._scatter_out": self._scatter_out,
            "_C._gather": self._gather,
            "_C._gather_out": _gather_out,
            "_C._broadcast": self._broadcast,
            "_C._broadcast_out": self._broadcast_out,
            "_C._broadcast_coalesced": self._broadcast_coalesced,
            # The device a program makes current for a while is the one there is; -1 is none.
            "_C._accelerator_exchangeDevice": lambda index: recorder.gpu.index if index >= 0 else -1,
            "_C._accelerator_maybeExchangeDevice": lambda index: recorder.gpu.index if index >= 0 else -1,
            # PyTorch makes the stream inputs are copied on once for a process, which may follow several
            # programs.
            "nn.parallel._functions._get_stream": self._stream_of,
        }

    def _only(self, devices: Sequence[int]) -> None:
        """Raise NoSuchGpuError for any other device than the one GPU."""
        gpu = self._recorder.gpu
        others = [index for index in devices if index != gpu.index]
        if others:
            raise NoSuchGpuError(
                f"{self._recorder.places.line() or 'the program'} spreads tensors over several GPUs"
                f" (cuda:{others[0]}) in one process, and there is one GPU here: {gpu}",
                "nn.DataParallel over several GPUs is not followed: give it one (device_ids=[0]) and its"
                " share of the batch, or follow DistributedDataParallel with --nproc-per-node",
            )

    def _copied(self, tensor: torch.Tensor, copy: bool = False) -> torch.Tensor:
        return tensor.to(self._recorder.gpu, non_blocking=True, copy=copy)

    def _scatter(
        self,
        tensor: torch.Tensor,
        devices: Sequence[int],
        chunk_sizes: Any = None,
        dim: int = 0,
        streams: Any = None,
    ) -> list[torch.Tensor]:
        """`comm.scatter`: copy a chunk for each device, each on its own stream. Raises for another device."""
        self._only(devices)
        chunks = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(chunk_sizes, dim)
        used = streams or [None] * len(chunks)
        before, parts = self._recorder.streams.now(), []
        try:
            for chunk, stream in zip(chunks, used, strict=False):
                if stream is not None:  # and stays, for chunks that name none
                    self._recorder.streams.set(stream.stream_id)
                parts.append(self._copied(chunk))
        finally:
            self._recorder.streams.set(before)
        return parts

    def _scatter_out(
        self, tensor: torch.Tensor, out: list[torch.Tensor], dim: int = 0, streams: Any = None
    ) -> list[torch.Tensor]:
        self._only([part.get_device() for part in out])
        chunks = tensor.split([part.size(dim) for part in out], dim)
        used = streams or [None] * len(out)
        for part, chunk, stream in zip(out, chunks, used, strict=False):
            with stream or contextlib.nullcontext():
                part.copy_(chunk, non_blocking=True)
        return out

    def _gather(
        self, tensors: Sequence[torch.Tensor], dim: int, destination: int | None = None
    ) -> torch.Tensor:
        """`comm.gather`: concatenate along `dim`, channels last where all tensors suggest it."""
        self._only([tensor.get_device() for tensor in tensors])
        if destination not in (None, _ON_HOST):
            self._only([destination])
        shape = list(tensors[0].shape)
        shape[dim] = sum(tensor.size(dim) for tensor in tensors)
        last = all(_suggests_channels_last(tensor) for tensor in tensors)
        result = torch.empty(
            shape,
            dtype=tensors[0].dtype,
            device="cpu" if destination == _ON_HOST else self._recorder.gpu,
            memory_format=torch.channels_last if last else torch.contiguous_format,
        )
        return _gather_out(tensors, result, dim)

    def _broadcast(self, tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
        self._only(devices)
        return [tensor if tensor.is_cuda else self._copied(tensor, copy=True)]

    def _broadcast_out(self, tensor: torch.Tensor, out: list[torch.Tensor]) -> list[torch.Tensor]:
        self._only([other.get_device() for other in out])
        for other in out:
            other.copy_(tensor, non_blocking=True)
        return out

    def _broadcast_coalesced(
        self, tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
    ) -> list[list[torch.Tensor]]:
        self._only(devices)
        with torch.no_grad():
            for together in _take_tensors([t for t in tensors if not t.is_sparse], buffer_size):
                _flatten_dense_tensors(together)
        return [list(tensors)]

    def _stream_of(self, device: torch.device) -> Any:
        """Return the stream on which inputs are copied to a device; None for the host."""
        if device.type == "cpu":
            return None
        self._only([device.index])
        if self._inputs_stream is None:
            self._inputs_stream = torch.Stream(device.index)
        return self._inputs_stream


def _gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int = 0) -> torch.Tensor:
    start = 0
    for tensor in tensors:
        out.narrow(dim, start, tensor.size(dim)).copy_(tensor, non_blocking=True)
        start += tensor.size(dim)
    return out


def _suggests_channels_last(tensor: torch.Tensor) -> bool:
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return last and not tensor.is_contiguous()
