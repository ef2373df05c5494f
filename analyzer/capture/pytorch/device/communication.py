"""Copies between the GPUs of one process (`torch.cuda.comm`): what `nn.DataParallel` is made of.

1. With one GPU `DataParallel` calls its module itself, on inputs that went through `scatter`: host tensors
   are copied on a stream of their own (`torch/nn/parallel/_functions.py`), so their memory belongs to that
   stream's pools; tensors on the GPU are taken as they are.
2. `scatter` copies a chunk to each GPU; one that lies there is taken as it is, a part of the whole.
3. `gather` makes one tensor and copies the parts into it, channels-last where all of them are.
4. `broadcast` makes a contiguous tensor on each other GPU, which NCCL writes into. `broadcast_coalesced`
   joins tensors of a type, until they have `buffer_size` bytes; its results are parts of what was sent.
5. `reduce_add` makes one tensor, which NCCL writes into (`torch/nn/parallel/comm.py`).
6. A replica that runs in a thread has that thread's handles of the libraries (`threads.py`).

Source: `torch/csrc/cuda/comm.cpp`, `torch/csrc/utils/tensor_flatten.cpp` (`take_tensors`).

Not modelled: what NCCL holds outside PyTorch's allocator for the GPUs of one process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

_ON_HOST = _CURRENT = -1  # as a device's number: for a result of `gather`, and else
_COLLECTIVES = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter")


class Communication:
    """`torch.cuda.comm` and what lies below it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._inputs_streams: dict[int, Any] = {}

    def functions(self) -> dict[str, Any]:
        """Return the replacements by name below `torch`."""
        return {
            "_C._scatter": self._scatter,
            "_C._scatter_out": self._scatter_out,
            "_C._gather": self._gather,
            "_C._gather_out": _gather_out,
            "_C._broadcast": self._broadcast,
            "_C._broadcast_out": self._broadcast_out,
            "_C._broadcast_coalesced": self._broadcast_coalesced,
            "_C._accelerator_exchangeDevice": self._exchange,
            "_C._accelerator_maybeExchangeDevice": self._exchange,
            "cuda.nccl.is_available": _sends,
            **{f"cuda.nccl.{name}": lambda *_, **__: None for name in _COLLECTIVES},
            # PyTorch makes the stream inputs are copied on once for a process, which may follow several
            # programs.
            "nn.parallel._functions._get_stream": self._stream_of,
        }

    def _gpu(self, index: int | None) -> int:
        """Return the GPU with a program's number; -1 and None are the current one."""
        gpus = self._recorder.gpus
        gpu = None if index in (None, _CURRENT) else gpus.named(index)
        return gpus.current if gpu is None else gpu

    def _copied(self, tensor: torch.Tensor, gpu: int, copy: bool = False) -> torch.Tensor:
        return tensor.to(self._recorder.gpus.device(gpu), non_blocking=True, copy=copy)

    def _exchange(self, index: int) -> int:
        """Make a device current and return the one that was; -1 is none, and changes nothing."""
        gpus = self._recorder.gpus
        if index < 0:
            return -1
        before, gpus.current = gpus.index(), gpus.chosen(index)
        return before

    def _scatter(
        self,
        tensor: torch.Tensor,
        devices: Sequence[int],
        chunk_sizes: Any = None,
        dim: int = 0,
        streams: Any = None,
    ) -> list[torch.Tensor]:
        """`comm.scatter`: copy a chunk for each device, each on its own stream."""
        chosen = list(map(self._gpu, devices))
        chunks = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(chunk_sizes, dim)
        used = streams or [None] * len(chunks)
        streams_now, parts = self._recorder.streams, []
        before = {gpu: streams_now.now(gpu) for gpu in chosen}
        try:
            for chunk, gpu, stream in zip(chunks, chosen, used, strict=False):
                if stream is not None:  # and stays, for chunks that name none
                    streams_now.set(stream.stream_id)
                parts.append(self._copied(chunk, gpu))
        finally:
            for number in before.values():
                streams_now.set(number)
        return parts

    def _scatter_out(
        self, tensor: torch.Tensor, out: list[torch.Tensor], dim: int = 0, streams: Any = None
    ) -> list[torch.Tensor]:
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
        shape = list(tensors[0].shape)
        shape[dim] = sum(tensor.size(dim) for tensor in tensors)
        last = all(_suggests_channels_last(tensor) for tensor in tensors)
        result = torch.empty(
            shape,
            dtype=tensors[0].dtype,
            device="cpu" if destination == _ON_HOST else self._recorder.gpus.device(self._gpu(destination)),
            memory_format=torch.channels_last if last else torch.contiguous_format,
        )
        return _gather_out(tensors, result, dim)

    def _broadcast(self, tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
        results = []
        for gpu in map(self._gpu, devices):
            where = self._recorder.gpus.device(gpu)
            if tensor.device == where:
                results.append(tensor)
            elif tensor.is_cuda:
                results.append(torch.empty(tensor.shape, dtype=tensor.dtype, device=where))
            else:
                results.append(self._copied(tensor, gpu, copy=True))
        return results

    def _broadcast_out(self, tensor: torch.Tensor, out: list[torch.Tensor]) -> list[torch.Tensor]:
        for other in out:
            if other is not tensor:
                other.copy_(tensor, non_blocking=True)
        return out

    def _broadcast_coalesced(
        self, tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
    ) -> list[list[torch.Tensor]]:
        results: list[dict[int, torch.Tensor]] = [{} for _ in devices[1:]]
        with torch.no_grad():
            for numbers in _joined(tensors, buffer_size):
                together = [tensors[number] for number in numbers]
                sent = self._broadcast(_flatten_dense_tensors(together), devices)
                for of_device, whole in zip(results, sent[1:], strict=True):
                    # No views of the whole (`tensor_data`): one that gets other memory lets this one go.
                    parts = [part.data for part in _unflatten_dense_tensors(whole, together)]
                    of_device.update(zip(numbers, parts, strict=True))
                del sent
        order = range(len(tensors))
        return [list(tensors), *([of_device[number] for number in order] for of_device in results)]

    def _stream_of(self, device: torch.device) -> Any:
        """Return the stream on which inputs are copied to a device; None for the host."""
        if device.type == "cpu":
            return None
        gpu = self._gpu(device.index)
        if gpu not in self._inputs_streams:
            self._inputs_streams[gpu] = torch.Stream(self._recorder.gpus.device(gpu))
        return self._inputs_streams[gpu]


def _joined(tensors: Sequence[torch.Tensor], nbytes: int) -> Iterator[list[int]]:
    """Yield the places of tensors that are sent together: of one type, until they have so many bytes
    (`take_tensors`, which is not Python's `_take_tensors`)."""
    groups: dict[torch.dtype, list[int]] = {}
    for number, tensor in enumerate(tensors):
        group = groups.setdefault(tensor.dtype, [])
        group.append(number)
        if sum(tensors[one].numel() * tensors[one].element_size() for one in group) >= nbytes:
            yield groups.pop(tensor.dtype)
    yield from groups.values()


def _sends(tensors: Sequence[torch.Tensor]) -> bool:
    """`torch.cuda.nccl.is_available`."""
    devices = {tensor.get_device() for tensor in tensors if tensor.is_cuda}
    fit = all(tensor.is_cuda and not tensor.is_sparse and tensor.is_contiguous() for tensor in tensors)
    return fit and len(devices) == len(tensors)


def _gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int = 0) -> torch.Tensor:
    start = 0
    for tensor in tensors:
        out.narrow(dim, start, tensor.size(dim)).copy_(tensor, non_blocking=True)
        start += tensor.size(dim)
    return out


def _suggests_channels_last(tensor: torch.Tensor) -> bool:
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return last and not tensor.is_contiguous()
