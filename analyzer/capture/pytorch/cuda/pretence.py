"""Python code that is captured must believe its tensors are on a GPU, though they are meta tensors.

1. A meta tensor answers `cuda:0` when Python asks for its device, unless its storage is known to be in host memory
   (a model or batch not moved yet). Decisions taken in Python (foreach optimizers, fast paths, autocast's device)
   are then the ones a GPU would see.
2. A device argument that names CUDA is replaced by meta before PyTorch sees it, so no CUDA build and no GPU is needed.
3. `tensor.to("cuda")` of a host tensor is a copy with the same strides (`aten::_to_copy`), as the transfer is.
4. Values of small integer tensors are known where `known_values.py` could follow them: `tolist`, `numpy` and `item`
   answer from there.
5. User code that autograd calls (checkpointed modules, functions' backward, hooks on saved tensors) believes so too.
6. The few functions of `torch.cuda` that models call to look around answer for the device profile; nothing is
   initialised.

Not modelled: several GPUs, streams other than the default one, CUDA graphs.
"""

from __future__ import annotations

import contextlib
import itertools
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recorder import Recorder
    from analyzer.devices import DeviceProfile

CUDA = torch.device("cuda", 0)
META = torch.device("meta")


def _is_cuda(device: Any) -> bool:
    """Whether a device argument names a GPU; PyTorch also takes a bare index."""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


class CudaPretence(TorchFunctionMode):
    """Rules 1 to 5 of the module docstring, as a mode around the captured step."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        tensor = torch.Tensor

        def getter(name: str) -> Any:
            return getattr(tensor, name).__get__

        self._handlers: dict[Any, Callable[..., Any]] = {
            getter("device"): lambda t: CUDA if self._on_gpu(t) else _host_device(t),
            getter("is_cuda"): self._on_gpu,
            getter("is_meta"): lambda t: False,
            getter("is_cpu"): lambda t: not self._on_gpu(t),
            tensor.get_device: lambda t: 0 if self._on_gpu(t) else -1,
            tensor.data_ptr: self._data_ptr,
            tensor.to: self._to,
            tensor.cuda: lambda t, *a, **k: self._to(t, CUDA),
            tensor.cpu: lambda t, *a, **k: self._to(t, "cpu"),
            tensor.type: self._type,
            tensor.tolist: lambda t: recorder.host_value(t).tolist(),
            tensor.numpy: lambda t, **k: recorder.host_value(t).numpy(**k),
            tensor.__array__: lambda t, *a, **k: recorder.host_value(t).__array__(*a, **k),
            tensor.pin_memory: lambda t, *a, **k: t,
            tensor.record_stream: lambda t, s: None,
            tensor.__setitem__: self._assign,
            tensor.backward: self._backward,
            torch.tensor: self._from_data,
            torch.as_tensor: self._from_data,
        }
        self._addresses: dict[int, int] = {}
        self._next_address = itertools.count(1 << 40, 1 << 32)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        handler = self._handlers.get(func)
        if handler is not None:
            return handler(*args, **kwargs)
        if kwargs:
            device = kwargs.get("device")
            if device is not None and _is_cuda(device):
                kwargs["device"] = META
        return func(*args, **kwargs)

    def _on_gpu(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "meta" and not self._recorder.in_host_memory(tensor)

    @contextlib.contextmanager
    def saved_tensor_hooks(self) -> Iterator[None]:
        """While open, hooks on saved tensors run with this mode on, which PyTorch leaves while an operator runs."""
        hooks = torch.autograd.graph.saved_tensors_hooks
        original = hooks.__init__

        def init(new: Any, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
            original(new, self._believing(pack), self._believing(unpack))

        with mock.patch.object(hooks, "__init__", init):
            yield

    def _believing(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(value: Any) -> Any:
            with contextlib.nullcontext() if torch._C._len_torch_function_stack() else _Again(self):
                return function(value)

        return call

    def _backward(
        self, tensor: Any, gradient: Any = None, retain: Any = None, create: bool = False, inputs: Any = None,
        **named: Any,
    ) -> None:  # fmt: skip
        """`Tensor.backward`, staying in this mode."""
        retain, create = named.get("retain_graph", retain), named.get("create_graph", create)
        with _Again(self):
            torch.autograd.backward(tensor, gradient, retain, create, inputs=inputs)

    def _data_ptr(self, tensor: torch.Tensor) -> int:
        """A made-up address, different for each storage: code compares addresses to find aliases."""
        if tensor.device.type != "meta":
            return int(tensor.data_ptr())
        key = tensor.untyped_storage()._cdata
        if key not in self._addresses:
            self._addresses[key] = next(self._next_address)
        return self._addresses[key] + int(tensor.storage_offset()) * tensor.element_size()

    def _assign(self, tensor: torch.Tensor, index: Any, value: Any) -> None:
        """A number assigned to a slice of a CUDA tensor becomes a host scalar (`python_variable_indexing.cpp`)."""
        if isinstance(value, (bool, int, float)) and self._on_gpu(tensor):
            value = torch.tensor(value, dtype=tensor.dtype)
        tensor[index] = value

    def _type(self, tensor: torch.Tensor, dtype: Any = None, *_: Any, **__: Any) -> Any:
        """`Tensor.type`, with the legacy names of types (`torch.cuda.HalfTensor`)."""
        if dtype is None:
            return f"torch.{'cuda.' if self._on_gpu(tensor) else ''}{_legacy_name(tensor.dtype)}"
        if isinstance(dtype, torch.dtype):
            return tensor.to(dtype)
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        wanted = getattr(torch, name.rpartition(".")[2]).dtype
        return self._to(tensor, CUDA if ".cuda." in name else "cpu", wanted)

    def _from_data(self, data: Any, **kwargs: Any) -> torch.Tensor:
        device = kwargs.pop("device", None)
        if isinstance(data, torch.Tensor):
            dtype = kwargs.get("dtype")
            if device is not None:
                return self._to(data, device, dtype)
            return data if dtype is None else data.to(dtype)
        # A list of 0-d tensors is read element by element.
        tensor = torch.tensor(_plain(data, self._recorder), **kwargs)
        return tensor if device is None else self._to(tensor, device)

    def _to(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """`Tensor.to` in its three forms: (dtype, ...), (device, dtype, ...), (other, ...)."""
        device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        if args and isinstance(args[0], torch.Tensor):
            device, dtype, args = (CUDA if self._on_gpu(args[0]) else "cpu"), args[0].dtype, args[1:]
        elif args and isinstance(args[0], torch.dtype):
            dtype, args = args[0], args[1:]
        elif args:
            device = args[0] if args[0] is not None else device
            dtype, args = (args[1] if len(args) > 1 else dtype), args[2:]
        kwargs = {"dtype": dtype, **dict(zip(("non_blocking", "copy"), args, strict=False)), **kwargs}
        kwargs = {name: value for name, value in kwargs.items() if value is not None}
        to_gpu = device is not None and _is_cuda(device)
        if to_gpu and not self._on_gpu(tensor):
            return self._recorder.to_device(tensor, dtype, kwargs.get("memory_format"))
        if device is not None and not to_gpu and self._on_gpu(tensor) and torch.device(device).type == "cpu":
            return self._recorder.to_host(tensor, dtype)
        if device is None or to_gpu or torch.device(device).type == "cpu":
            return tensor.to(**kwargs) if kwargs else tensor
        return tensor.to(device, **kwargs)


class _Again(TorchFunctionMode):
    """A mode that is entered once more, from inside itself."""

    def __init__(self, mode: CudaPretence) -> None:
        super().__init__()
        self._mode = mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._mode.__torch_function__(func, types, args, kwargs)


def _host_device(tensor: torch.Tensor) -> torch.device:
    return torch.device("cpu") if tensor.device.type == "meta" else tensor.device


def _legacy_name(dtype: torch.dtype) -> str:
    """ "FloatTensor" for float32, and so on."""
    kinds = {
        name: kind for name, kind in vars(torch).items() if name.endswith("Tensor") and hasattr(kind, "dtype")
    }
    return next(name for name, kind in kinds.items() if kind.dtype is dtype)


def _plain(data: Any, recorder: Recorder) -> Any:
    if isinstance(data, torch.Tensor):
        return recorder.host_value(data).item()
    if isinstance(data, (list, tuple)):
        return [_plain(part, recorder) for part in data]
    return data


@contextlib.contextmanager
def cuda_functions(device: DeviceProfile) -> Iterator[None]:
    """Rule 6: what `torch.cuda` says while a step is captured."""
    properties = types.SimpleNamespace(
        name=device.name,
        major=device.compute_capability[0],
        minor=device.compute_capability[1],
        total_memory=device.capacity_bytes,
        multi_processor_count=device.sm_count,
        max_threads_per_multi_processor=device.max_threads_per_sm,
        warp_size=32,
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *a: None,
        "get_device_name": lambda *a: device.name,
        "get_device_capability": lambda *a: device.compute_capability,
        "get_device_properties": lambda *a: properties,
        "is_bf16_supported": lambda *a, **k: device.compute_capability >= (8, 0),
        "is_current_stream_capturing": lambda: False,
        "synchronize": lambda *a: None,
        "empty_cache": lambda: None,
        "memory_allocated": lambda *a: 0,
        "max_memory_allocated": lambda *a: 0,
        "memory_reserved": lambda *a: 0,
        "max_memory_reserved": lambda *a: 0,
        "mem_get_info": lambda *a: (device.capacity_bytes, device.capacity_bytes),
        "reset_peak_memory_stats": lambda *a: None,
        "manual_seed": lambda *a: None,
        "manual_seed_all": lambda *a: None,
        "device_of": lambda *a: contextlib.nullcontext(),
        "device": lambda *a: contextlib.nullcontext(),
        "stream": lambda *a: contextlib.nullcontext(),
        # Streams and events take every call and do nothing: one stream is modelled.
        **dict.fromkeys(("Stream", "Event", "current_stream", "default_stream"), mock.MagicMock()),
        "get_rng_state": lambda *a: torch.empty(16, dtype=torch.uint8),
        "set_rng_state": lambda *a: None,
    }
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        for name in ("range_push", "range_pop", "mark"):
            stack.enter_context(mock.patch.object(torch.cuda.nvtx, name, lambda *a: None))
        # As in torch 2.11 to 2.13: no bfloat16, whose recurrent layers therefore keep separate weights.
        acceptable = lambda t: t.is_cuda and t.dtype in torch.backends.cudnn.CUDNN_TENSOR_DTYPES  # noqa: E731
        stack.enter_context(mock.patch.object(torch.backends.cudnn, "is_acceptable", acceptable))
        stack.enter_context(mock.patch.object(torch.backends.cudnn, "version", lambda: 91900))
        # Has no tensor among its arguments, so no torch-function mode sees it.
        stack.enter_context(mock.patch.object(torch, "_use_cudnn_rnn_flatten_weight", lambda: True))
        # Tensor lists are grouped by device in C++, and by the answer `clip_grad_norm_` decides for or against foreach.
        grouped = torch._C._group_tensors_by_device_and_dtype
        on_cuda = lambda *a: {  # noqa: E731
            (CUDA if where.type == "meta" else where, dtype): group
            for (where, dtype), group in grouped(*a).items()
        }
        stack.enter_context(mock.patch.object(torch._C, "_group_tensors_by_device_and_dtype", on_cuda))
        modes = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}  # cudnnRNNMode_t
        stack.enter_context(mock.patch.object(torch.backends.cudnn.rnn, "get_cudnn_mode", modes.__getitem__))
        # `MultiheadAttention` refuses its fast path when any torch-function mode is active; ours changes no results.
        stack.enter_context(mock.patch.object(torch.overrides, "has_torch_function", lambda _: False))
        # Autograd would leave the mode before user code runs in the backward pass (rule 5).
        stack.enter_context(mock.patch.object(torch.autograd, "has_torch_function", lambda _: False))
        yield
