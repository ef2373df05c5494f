"""Where tensors lie, as Python sees it, and what moves them between the host and the GPU.

1. A meta tensor answers the GPU it lies on when Python asks for its device, unless its storage is known to
   be in host memory (a model or batch not moved yet), or the program itself made it a meta tensor.
2. `tensor.to("cuda")` of a host tensor is a copy with the same strides (`aten::_to_copy`), as the transfer
   is.
3. `tensor.to("cuda:1")` of a tensor on another GPU makes one there with its strides, and copies into it; its
   gradient is copied back the same way (`_to_copy_backward`, `torch/csrc/autograd/FunctionsManual.cpp`).
4. Adam counts its steps in tensors on the host; up to torch 2.11 they lie on PyTorch's default device, where
   one is set (`torch/optim/adam.py` of 2.11 and 2.13; 2.12 is taken to be as 2.13). It is the release that
   figures are of that counts, not the one that is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy

from analyzer.capture.pytorch.device.default_device import default_device
from analyzer.capture.pytorch.device.host import Pinned, data_of
from analyzer.capture.pytorch.recording.copies import between, to_device, to_host
from analyzer.capture.pytorch.recording.recorder import META
from analyzer.releases import Span

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

_COUNTS_ON_DEFAULT_DEVICE = Span(until=(2, 11))
# Types that PyTorch accepts besides its own (`THPDtype`, `torch/csrc/utils/python_arg_parser.cpp`).
_PYTHON_TYPES: dict[Any, torch.dtype] = {
    float: torch.float64,
    int: torch.int64,
    bool: torch.bool,
    complex: torch.complex128,
}


def _index(device: Any) -> Any:
    """Return a bare number as the device it stands for."""
    return torch.device("cuda", device) if type(device) is int else device


def _device(*args: Any, **kwargs: Any) -> torch.device:
    """Make a `torch.device`; a build without CUDA does not know what a bare index means."""
    if len(args) == 1 and not kwargs and isinstance(args[0], int):
        return torch.device("cuda", args[0])
    return torch.device(*args, **kwargs)


def _counts_adams_steps() -> bool:
    """Return whether Adam makes the tensors of its state; its own code is the first outside this project."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("analyzer.", "analyzer_")):
        frame = frame.f_back
    if frame is None:
        return False
    code = frame.f_code
    return code.co_name == "_init_group" and frame.f_globals.get("__name__") == "torch.optim.adam"


class Placement:
    """The methods of tensors that ask where one lies, or move it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts_on_default_device = (
            recorder.compatible.device.releases["torch"] in _COUNTS_ON_DEFAULT_DEVICE
        )

    def handlers(self) -> dict[Any, Callable[..., Any]]:
        """Return the replacements by PyTorch function."""
        tensor = torch.Tensor

        def getter(name: str) -> Any:
            return getattr(tensor, name).__get__

        return {
            getter("device"): self.device_of,
            getter("is_cuda"): self.on_gpu,
            getter("is_meta"): self.is_meta,
            getter("is_cpu"): lambda t: not self.on_gpu(t) and not self.is_meta(t),
            tensor.get_device: lambda t: self.gpu_of(t).index if self.on_gpu(t) else -1,
            tensor.to: self._to,
            torch._C._nn._parse_to: self._parse_to,
            tensor.cuda: self._cuda,
            tensor.cpu: lambda t, *a, **k: self._to(t, "cpu"),
            tensor.type: self._type,
            torch.device: _device,
            torch.tensor: self._tensor,
            torch.as_tensor: self._tensor,
        }

    def device_of(self, tensor: torch.Tensor) -> torch.device:
        """Return `tensor.device` as the program sees it."""
        if tensor.device.type != "meta" or self.is_meta(tensor):
            return tensor.device
        return self.gpu_of(tensor) if self.on_gpu(tensor) else torch.device("cpu")

    def gpu_of(self, tensor: torch.Tensor) -> torch.device:
        """Return the GPU that a tensor which lies on one lies on."""
        recorder = self._recorder
        return recorder.gpus.device(recorder.storages.gpu_of(tensor) if recorder.gpus.several else None)

    def is_meta(self, tensor: torch.Tensor) -> bool:
        """Return whether the program itself made it a meta tensor."""
        return tensor.device.type == "meta" and self._recorder.storages.nowhere(tensor)

    def on_gpu(self, tensor: torch.Tensor) -> bool:
        """Return `tensor.is_cuda` as the program sees it."""
        return tensor.device.type == "meta" and not self._recorder.storages.in_host_memory(tensor)

    def _parse_to(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the arguments of `Module.to`. The device stays as given: by position, by keyword, as a
        number, or as that of a tensor."""
        like = kwargs.pop("tensor", args[0] if args else None)
        if isinstance(like, torch.Tensor):
            args = (self.device_of(like), like.dtype, *args[1:])
        named = {name: _index(value) if name == "device" else value for name, value in kwargs.items()}
        return torch._C._nn._parse_to(*map(_index, args[:1]), *args[1:], **named)

    def _type(self, tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
        """`Tensor.type`, with the legacy names of types (`torch.cuda.HalfTensor`)."""
        if dtype is None:
            return f"torch.{'cuda.' if self.on_gpu(tensor) else ''}{_legacy_name(tensor.dtype)}"
        if isinstance(dtype, torch.dtype):
            return tensor.to(dtype)
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        wanted = getattr(torch, name.rpartition(".")[2]).dtype
        return self._to(tensor, self._recorder.gpu if ".cuda." in name else "cpu", wanted, non_blocking)

    def _tensor(self, data: Any, **kwargs: Any) -> torch.Tensor:
        """`torch.tensor`: made on the host, then copied to the named or default device."""
        device = kwargs.pop("device", None)
        if (default := default_device()) is not None:
            if device in (None, "cpu") and _counts_adams_steps():
                device = None if self._counts_on_default_device else "cpu"
            if device is None:
                device = default
        if kwargs.pop("pin_memory", False):
            return Pinned.mark(self._tensor(data, **kwargs))
        if isinstance(data, torch.Tensor):
            dtype = kwargs.get("dtype")
            if device is not None:
                return self._to(data, device, dtype)
            return data if dtype is None else data.to(dtype)
        # A list of 0-d tensors is read element by element.
        tensor = torch.tensor(_host_values(data, self._recorder), device="cpu", **kwargs)
        return tensor if device is None else self._to(tensor, device)

    def _cuda(
        self, tensor: torch.Tensor, device: Any = None, non_blocking: bool = False, **named: Any
    ) -> torch.Tensor:
        """Replace `Tensor.cuda`, whose later arguments differ from those of `Tensor.to`."""
        return self._to(
            tensor, self._recorder.gpu if device is None else device, non_blocking=non_blocking, **named
        )

    def _to(self, tensor: torch.Tensor, /, *args: Any, **kwargs: Any) -> torch.Tensor:
        """`Tensor.to` in its three forms: (dtype, ...), (device, dtype, ...), (other, ...)."""
        if is_lazy(tensor):
            tensor = data_of(tensor)  # the parameter itself has no shape to read
        device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        if "tensor" in kwargs:
            args = (kwargs.pop("tensor"), *args)
        if args and isinstance(args[0], torch.Tensor):
            device, dtype, args = (
                (self.gpu_of(args[0]) if self.on_gpu(args[0]) else "cpu"),
                args[0].dtype,
                args[1:],
            )
        elif args and (isinstance(args[0], torch.dtype) or args[0] in _PYTHON_TYPES):
            dtype, args = args[0], args[1:]
        elif args:
            device = args[0] if args[0] is not None else device
            dtype, args = (args[1] if len(args) > 1 else dtype), args[2:]
        dtype = _PYTHON_TYPES.get(dtype, dtype)
        kwargs = {"dtype": dtype, **dict(zip(("non_blocking", "copy"), args, strict=False)), **kwargs}
        kwargs = {name: value for name, value in kwargs.items() if value is not None}
        gpus = self._recorder.gpus
        gpu = None if device is None else gpus.named(device)
        to_gpu = gpu is not None
        if device is not None and not to_gpu and torch.device(device).type == "meta":
            if self.is_meta(tensor) and dtype in (None, tensor.dtype) and not kwargs.get("copy"):
                return tensor  # where it is already, so that a parameter stays one
            with self._recorder.storages.making_nowhere():
                return torch.empty_like(tensor, dtype=dtype, device=META)
        if device is not None and self.is_meta(tensor):
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        if to_gpu and not self.on_gpu(tensor):
            waits = not kwargs.get("non_blocking")
            with gpus.placing(gpu):
                return to_device(self._recorder, tensor, dtype, kwargs.get("memory_format"), waits)
        if gpu is not None and gpus.several and self._recorder.storages.gpu_of(tensor) not in (None, gpu):
            layout = kwargs.get("memory_format") or torch.preserve_format
            return between(self._recorder, tensor, gpu, dtype, layout, not kwargs.get("non_blocking"))
        if device is not None and not to_gpu and self.on_gpu(tensor) and torch.device(device).type == "cpu":
            if tensor.requires_grad and torch.is_grad_enabled():
                return tensor.to("cpu", **({} if dtype is None else {"dtype": dtype}))  # by way of autograd
            return to_host(self._recorder, tensor, dtype)
        if device is None and tensor.device.type == "meta" and not self.on_gpu(tensor):
            # Without memory but on the host: PyTorch would name the meta device for the copy, which stands
            # for the GPU here.
            layout = kwargs.pop("memory_format", torch.preserve_format)
            tensor = tensor.to(**kwargs) if kwargs else tensor
            same = layout is torch.preserve_format or tensor.is_contiguous(memory_format=layout)
            return tensor if same else tensor.clone(memory_format=layout)
        if device is None or to_gpu or torch.device(device).type == "cpu":
            return tensor.to(**kwargs) if kwargs else tensor
        return tensor.to(device, **kwargs)


def _legacy_name(dtype: torch.dtype) -> str:
    """Return the legacy type name, "FloatTensor" for float32."""
    kinds = {
        name: kind for name, kind in vars(torch).items() if name.endswith("Tensor") and hasattr(kind, "dtype")
    }
    return next(name for name, kind in kinds.items() if kind.dtype is dtype)


def _host_values(data: Any, recorder: Recorder) -> Any:
    if isinstance(data, torch.Tensor):
        return recorder.values.host_value(data).item()
    if isinstance(data, (list, tuple)):
        return [_host_values(part, recorder) for part in data]
    return data
