"""Python code that is captured must believe its tensors are on a GPU, though they are meta tensors.

1. A meta tensor answers `cuda:0` (a rank's own number for other ranks) when Python asks for its device,
   unless its storage is known to be in host memory (a model or batch not moved yet). Decisions taken in
   Python (foreach optimizers, fast paths, autocast's device) are then the ones a GPU would see.
2. A device argument that names CUDA is replaced by meta before PyTorch sees it, so no CUDA build and no GPU
   is needed.
3. `tensor.to("cuda")` of a host tensor is a copy with the same strides (`aten::_to_copy`), as the transfer
   is.
4. Values of small integer tensors are known where `known_values.py` could follow them: `tolist`, `numpy` and
   `item` answer from there.
5. A call of PyTorch's own functions among real host tensors alone is nobody's business: the recorder is left
   for as long as it takes, unless the call gets to see a device or a tensor that is not real.
6. User code that autograd calls (checkpointed modules, functions' backward, hooks on saved tensors) believes
   so too.

What `torch.cuda`'s own functions answer is in `functions.py`.
Not modelled: several GPUs in one process, CUDA graphs.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils import _device as _default_device
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.device.host import PLAIN_TENSORS, SIZED, Gradients, HostMemory, Pinned, data_of
from analyzer.capture.pytorch.kernels.slices import SLICES_WHOLE, sliced_whole
from analyzer.capture.pytorch.patches import replaced
from analyzer.capture.pytorch.recording.copies import to_device, to_host
from analyzer.capture.pytorch.recording.parts import is_sparse, unwraps_itself
from analyzer.errors import CaptureError

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

META = torch.device("meta")
_NESTED = "torch.nested._internal.nested_tensor"
_DLPACK_CUDA = 2  # kDLCUDA, `dlpack.h`
_len_torch_dispatch_stack = torch._C._len_torch_dispatch_stack
_pop_torch_dispatch_stack = torch._C._pop_torch_dispatch_stack
_push_on_torch_dispatch_stack = torch._C._push_on_torch_dispatch_stack


def is_cuda(device: Any, own: torch.device) -> bool:
    """Whether a device argument names a GPU; PyTorch also takes a bare index. Raises CaptureError for another
    than `own`."""
    if isinstance(device, torch.device):
        named, index = device.type == "cuda", own.index if device.index is None else device.index
    elif isinstance(device, str):
        kind, _, number = device.partition(":")
        named, index = kind == "cuda", int(number) if number.isdigit() else own.index
    else:
        named, index = isinstance(device, int) and not isinstance(device, bool), device
    if named and index != own.index:
        raise CaptureError(
            f"the program uses cuda:{index}, and there is one GPU here: {own}",
            "let it use one GPU, as CUDA_VISIBLE_DEVICES=0 would have it",
        )
    return named


# What PyTorch takes for a type besides its own (`THPDtype`, `torch/csrc/utils/python_arg_parser.cpp`).
_PYTHON_TYPES: dict[Any, torch.dtype] = {
    float: torch.float64,
    int: torch.int64,
    bool: torch.bool,
    complex: torch.complex128,
}


def _index(device: Any) -> Any:
    """A bare number as the device it stands for."""
    return torch.device("cuda", device) if type(device) is int else device


def _device(*args: Any, **kwargs: Any) -> torch.device:
    """`torch.device`, of which a build without CUDA does not know what a bare number means."""
    if len(args) == 1 and not kwargs and isinstance(args[0], int):
        return torch.device("cuda", args[0])
    return torch.device(*args, **kwargs)


class FakeCuda(TorchFunctionMode):
    """The rules of the module docstring, as a mode around the captured program."""

    def __init__(self, recorder: Recorder, host: HostMemory | None = None) -> None:
        super().__init__()
        self._recorder, self._host = recorder, host
        self._slices_whole = recorder.alike.device.releases["torch"] in SLICES_WHOLE
        tensor = torch.Tensor

        def getter(name: str) -> Any:
            return getattr(tensor, name).__get__

        self._handlers: dict[Any, Callable[..., Any]] = {
            getter("device"): self._device_of,
            getter("is_cuda"): self._on_gpu,
            getter("is_meta"): self._is_meta,
            getter("is_cpu"): lambda t: not self._on_gpu(t) and not self._is_meta(t),
            tensor.get_device: lambda t: recorder.gpu.index if self._on_gpu(t) else -1,
            tensor.data_ptr: self._data_ptr,
            tensor.to: self._to,
            torch._C._nn._parse_to: self._parse_to,
            tensor.__format__: self._format,
            tensor.__repr__: self._text,
            tensor.share_memory_: lambda t: t if self._on_gpu(t) else t.share_memory_(),
            tensor.__dlpack__: lambda t, **k: t if self._on_gpu(t) else t.__dlpack__(**k),
            tensor.__dlpack_device__: lambda t: (
                (_DLPACK_CUDA, recorder.gpu.index) if self._on_gpu(t) else t.__dlpack_device__()
            ),
            vars(tensor)["__cuda_array_interface__"].__get__: self._array_interface,
            tensor.cuda: self._cuda,
            tensor.cpu: lambda t, *a, **k: self._to(t, "cpu"),
            tensor.type: self._type,
            tensor.tolist: lambda t: recorder.values.host_value(t).tolist(),
            tensor.numpy: lambda t, **k: recorder.values.host_array(t).numpy(**k),
            tensor.__array__: lambda t, *a, **k: recorder.values.host_array(t).__array__(*a, **k),
            tensor.__setitem__: self._assign,
            tensor.__getitem__: self._take,
            tensor.new: self._new,
            tensor.backward: self._backward,
            **{
                function: self._healthy(function, finite)
                for finite, names in (
                    (True, ("isfinite",)),
                    (False, ("isnan", "isinf", "isposinf", "isneginf")),
                )
                for name in names
                for function in (getattr(torch, name), getattr(tensor, name))
            },
            torch.device: _device,
            torch.tensor: self._from_data,
            torch.as_tensor: self._from_data,
        }
        if recorder.asked is not None:
            self._handlers[getter("shape")] = self._handlers[tensor.size] = self._size
        gradients = Gradients()
        self._handlers[vars(torch._C.TensorBase)["data"].__set__] = gradients.set_data
        self._handlers[getter("data")] = data_of
        self._handlers[getter("grad")] = gradients.of
        self._handlers[vars(torch._C.TensorBase)["grad"].__set__] = self._set_gradient
        self._gradients = gradients
        self._addresses: dict[int, int] = {}
        self._next_address = itertools.count(1 << 40, 1 << 32)
        self._nested: Any = None  # the function a nested tensor is busy with

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        handler = self._handlers.get(func)
        if handler is not None:
            if types and not _UNINITIALIZED.isdisjoint(types):
                # Such a parameter refuses what a handler asks it for in turn.
                with torch._C.DisableTorchFunctionSubclass():
                    return handler(*args, **kwargs)
            return handler(*args, **kwargs)
        if kwargs and kwargs.pop("pin_memory", False):
            return Pinned.mark(self.__torch_function__(func, types, args, kwargs))
        if _default_device.CURRENT_DEVICE is not None and kwargs.get("device") is None:
            kwargs = self._on_default_device(func, kwargs)
        if args and _real(args) and _own(func) and (not kwargs or _real(kwargs.values(), some=False)):
            return self._on_host(func, args, kwargs)
        if kwargs:
            if kwargs.get("generator") is not None and kwargs["generator"].device.type == "cuda":
                kwargs["generator"] = None  # nothing random on the device has a value
            device = kwargs.get("device")
            if device is not None and is_cuda(device, self._recorder.gpu):
                kwargs["device"] = META
            elif device is not None and self._host is not None and torch.device(device).type == "meta":
                with self._recorder.storages.making_nowhere():
                    return func(*args, **kwargs)
        if self._host is not None and func in SIZED:
            large = self._host.make(func, args, kwargs)
            if large is not None:
                return large
        for kind in types:
            if kind.__module__ == _NESTED and func != self._nested:
                return self._of_nested(kind, func, types, args, kwargs)
        if self._host is not None and torch.is_grad_enabled():
            args, kwargs = self._host.together(func, args, kwargs)
        return func(*args, **kwargs)

    def _of_nested(self, kind: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """What a jagged tensor does, in Python that asks for devices too; it may call the function itself
        again."""
        before, self._nested = self._nested, func
        try:
            with _Again(self):
                return kind.__torch_function__(func, types, args, kwargs)
        finally:
            self._nested = before

    @staticmethod
    def _on_host(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call among real host tensors. Who else listens, besides the recorder, goes on listening."""
        if _len_torch_dispatch_stack() != 1:
            return func(*args, **kwargs)
        mode = _pop_torch_dispatch_stack(None)
        try:
            return func(*args, **kwargs)
        finally:
            _push_on_torch_dispatch_stack(mode)

    @staticmethod
    def _on_default_device(func: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        """A factory's arguments, with the device PyTorch would add: this mode comes before the one that adds
        it."""
        if func not in _default_device._device_constructors():
            return kwargs
        return {**kwargs, "device": _default_device.CURRENT_DEVICE}

    def _parse_to(self, *args: Any, **kwargs: Any) -> Any:
        """What `Module.to` makes of its arguments: a device stays what was said, also by keyword, as a bare
        number or by a tensor that lies there."""
        like = kwargs.pop("tensor", args[0] if args else None)
        if isinstance(like, torch.Tensor):
            args = (self._device_of(like), like.dtype, *args[1:])
        named = {name: _index(value) if name == "device" else value for name, value in kwargs.items()}
        return torch._C._nn._parse_to(*map(_index, args[:1]), *args[1:], **named)

    def _array_interface(self, tensor: torch.Tensor) -> dict[str, Any]:
        """`__cuda_array_interface__`, version 2, as `Tensor` writes it."""
        if not self._on_gpu(tensor):
            return dict(tensor.__cuda_array_interface__)
        size = tensor.element_size()
        return {
            "typestr": numpy.dtype(str(tensor.dtype)[6:]).str,
            "shape": tuple(tensor.shape),
            "strides": None if tensor.is_contiguous() else tuple(step * size for step in tensor.stride()),
            "data": (self._data_ptr(tensor) if tensor.numel() else 0, False),
            "version": 2,
        }

    def _size(self, tensor: torch.Tensor, dim: Any = None) -> Any:
        """`Tensor.size`, of one dimension or of all."""
        assert self._recorder.asked is not None
        if dim is None:
            return self._recorder.asked.sizes(tensor.size())
        return self._recorder.asked.size(tensor.size(dim))

    def _device_of(self, tensor: torch.Tensor) -> torch.device:
        if tensor.device.type != "meta" or self._is_meta(tensor):
            return tensor.device
        return self._recorder.gpu if self._on_gpu(tensor) else torch.device("cpu")

    def _is_meta(self, tensor: torch.Tensor) -> bool:
        """Whether the program itself made it a meta tensor."""
        return tensor.device.type == "meta" and self._recorder.storages.nowhere(tensor)

    def _set_gradient(self, tensor: torch.Tensor, gradient: Any) -> None:
        """`tensor.grad = gradient`, also where one of the two, in host memory, is real and the other, of
        unknown value, not."""
        self._gradients.forget(tensor)
        if gradient is not None and tensor.device.type != gradient.device.type and not self._on_gpu(gradient):
            if tensor.device.type != "meta":
                gradient = _zeros(gradient)
            elif not self._on_gpu(tensor):
                with _disable_current_modes():
                    gradient = torch.empty_like(gradient, device=META)
                self._recorder.storages.host(gradient)
        tensor.grad = gradient

    def _format(self, tensor: torch.Tensor, spec: str) -> str:
        """`format(tensor, ".4f")`: a tensor of one number is that number."""
        if tensor.dim() == 0 and type(tensor) is torch.Tensor and not self._is_meta(tensor):
            return format(tensor.item(), spec)
        return object.__format__(tensor, spec)

    def _text(self, tensor: torch.Tensor, **kwargs: Any) -> str:
        """`repr(tensor)`: on the device it lies on, with its values where they are known.

        Not modelled: PyTorch formats a CUDA tensor on the GPU, which takes a few small blocks for a moment.
        """
        if not self._on_gpu(tensor):
            text = str(tensor.__repr__(**kwargs))
            return text if self._is_meta(tensor) else text.replace(", device='meta'", "")
        value = self._recorder.values.known(tensor)
        if value is None:
            return str(tensor.__repr__(**kwargs)).replace("device='meta'", f"device='{self._recorder.gpu}'")
        return f"{value.__repr__(**kwargs).removesuffix(')')}, device='{self._recorder.gpu}')"

    def _on_gpu(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "meta" and not self._recorder.storages.in_host_memory(tensor)

    @contextlib.contextmanager
    def in_another_thread(self) -> Iterator[None]:
        """While open, this thread is followed as the one is that entered the modes."""
        with _Again(self), self._recorder:
            yield

    @contextlib.contextmanager
    def saved_tensor_hooks(self) -> Iterator[None]:
        """While open, hooks on saved tensors run with this mode on, which PyTorch leaves while an operator
        runs."""
        hooks = torch.autograd.graph.saved_tensors_hooks
        original = hooks.__init__

        def init(new: Any, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
            original(new, self._believing(pack), self._believing(unpack))

        with replaced({"torch.autograd.graph.saved_tensors_hooks.__init__": init}):
            yield

    def _believing(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(value: Any) -> Any:
            # Inside an operator among host tensors the recorder has been left too.
            recording = contextlib.nullcontext() if _len_torch_dispatch_stack() else self._recorder
            with (
                recording,
                contextlib.nullcontext() if torch._C._len_torch_function_stack() else _Again(self),
            ):
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

    def _healthy(self, function: Any, finite: bool) -> Callable[..., Any]:
        """Where a whole program asks whether its numbers are finite, they are."""

        def answer(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            flags = function(tensor, *args, **kwargs)
            if self._host is not None and self._on_gpu(tensor):
                self._recorder.values.learn_flags(flags, finite)
            return flags

        return answer

    def _data_ptr(self, tensor: torch.Tensor) -> int:
        """A made-up address, different for each storage: code compares addresses to find aliases. A wrapper
        has none (`DTensor`, whose recurrent layers are not flattened for that)."""
        if tensor.device.type != "meta" or unwraps_itself(type(tensor)):
            return int(tensor.data_ptr())
        return self.address(tensor.untyped_storage()) + int(tensor.storage_offset()) * tensor.element_size()

    def address(self, storage: Any) -> int:
        """A made-up address of a storage without memory."""
        if not storage.nbytes():  # all of it was given back (FSDP asks so what is gathered)
            return 0
        if storage._cdata not in self._addresses:
            self._addresses[storage._cdata] = next(self._next_address)
        return self._addresses[storage._cdata]

    @contextlib.contextmanager
    def storages(self) -> Iterator[None]:
        """While open, storages say of themselves what tensors do: where they are."""
        kind: Any = torch.UntypedStorage
        address, device = kind.data_ptr, kind.device

        def where(storage: Any) -> torch.device:
            real: torch.device = device.__get__(storage)
            if real.type != "meta":
                return real
            known = self._recorder.storages.place_of(storage)
            return real if known is None else self._recorder.gpu if known else torch.device("cpu")

        def to_device(storage: Any, device: Any = None, non_blocking: bool = False) -> Any:
            """A copy on the GPU; what it holds is not followed."""
            if is_cuda(self._recorder.gpu if device is None else device, self._recorder.gpu):
                if where(storage).type == "cuda":
                    return storage
                made = torch.empty(storage.nbytes(), dtype=torch.uint8, device=self._recorder.gpu)
                if not non_blocking:
                    self._recorder.storages.wait(self._recorder.streams.now())
                return made.untyped_storage()
            return storage

        with replaced(
            {
                "torch.UntypedStorage.data_ptr": lambda storage: (
                    address(storage) if device.__get__(storage).type != "meta" else self.address(storage)
                ),
                "torch.UntypedStorage.device": property(where),
                "torch.UntypedStorage.cuda": to_device,
                "torch.UntypedStorage.is_cuda": property(lambda storage: where(storage).type == "cuda"),
            }
        ):
            yield

    def _assign(self, tensor: torch.Tensor, index: Any, value: Any) -> None:
        """A number assigned to a slice of a CUDA tensor becomes a host scalar
        (`python_variable_indexing.cpp`)."""
        if tensor.is_meta and self._host is not None:
            self._host.touched(tensor, index)
        arguments = (tensor, index, value)
        if _real(arguments):
            self._on_host(_SETITEM, arguments, {})
            return
        if isinstance(value, (bool, int, float)) and self._on_gpu(tensor):
            value = torch.tensor(value, dtype=tensor.dtype, device="cpu")
        if self._slices_whole:
            index = sliced_whole(tensor, index if isinstance(index, tuple) else (index,))
        tensor[index] = value

    def _take(self, tensor: torch.Tensor, index: Any) -> Any:
        """`tensor[index]`."""
        if tensor.is_meta and self._host is not None:
            self._host.touched(tensor, index)
        arguments = (tensor, index)
        if _real(arguments):
            return self._on_host(_GETITEM, arguments, {})
        if self._slices_whole and isinstance(index, tuple):
            index = sliced_whole(tensor, index)
        return tensor[index]

    def _new(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """`Tensor.new`, the constructor of a tensor's kind, which is not known of sparse meta tensors
        (`SparseAdam`)."""
        if is_sparse(tensor) and self._on_gpu(tensor):
            return torch.sparse_coo_tensor(*args, **kwargs, check_invariants=False)
        return tensor.new(*args, **kwargs)

    def _type(self, tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
        """`Tensor.type`, with the legacy names of types (`torch.cuda.HalfTensor`)."""
        if dtype is None:
            return f"torch.{'cuda.' if self._on_gpu(tensor) else ''}{_legacy_name(tensor.dtype)}"
        if isinstance(dtype, torch.dtype):
            return tensor.to(dtype)
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        wanted = getattr(torch, name.rpartition(".")[2]).dtype
        return self._to(tensor, self._recorder.gpu if ".cuda." in name else "cpu", wanted, non_blocking)

    def _from_data(self, data: Any, **kwargs: Any) -> torch.Tensor:
        device = kwargs.pop("device", None)
        if device is None and _default_device.CURRENT_DEVICE is not None:
            device = _default_device.CURRENT_DEVICE
        if kwargs.pop("pin_memory", False):
            return Pinned.mark(self._from_data(data, **kwargs))
        if isinstance(data, torch.Tensor):
            dtype = kwargs.get("dtype")
            if device is not None:
                return self._to(data, device, dtype)
            return data if dtype is None else data.to(dtype)
        # A list of 0-d tensors is read element by element.
        tensor = torch.tensor(_plain(data, self._recorder), device="cpu", **kwargs)
        return tensor if device is None else self._to(tensor, device)

    def _cuda(
        self, tensor: torch.Tensor, device: Any = None, non_blocking: bool = False, **named: Any
    ) -> torch.Tensor:
        """`Tensor.cuda`, whose arguments after the device stand where those of `Tensor.to` do not."""
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
                (self._recorder.gpu if self._on_gpu(args[0]) else "cpu"),
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
        to_gpu = device is not None and is_cuda(device, self._recorder.gpu)
        if device is not None and not to_gpu and torch.device(device).type == "meta":
            with self._recorder.storages.making_nowhere():
                return torch.empty_like(tensor, dtype=dtype, device=META)
        if device is not None and self._is_meta(tensor):
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        if to_gpu and not self._on_gpu(tensor):
            waits = not kwargs.get("non_blocking")
            return to_device(self._recorder, tensor, dtype, kwargs.get("memory_format"), waits)
        if device is not None and not to_gpu and self._on_gpu(tensor) and torch.device(device).type == "cpu":
            return to_host(self._recorder, tensor, dtype)
        if device is None and tensor.device.type == "meta" and not self._on_gpu(tensor):
            # Without memory but on the host: PyTorch would name the meta device for the copy, which stands
            # for the GPU here.
            layout = kwargs.pop("memory_format", torch.preserve_format)
            tensor = tensor.to(**kwargs) if kwargs else tensor
            same = layout is torch.preserve_format or tensor.is_contiguous(memory_format=layout)
            return tensor if same else tensor.clone(memory_format=layout)
        if device is None or to_gpu or torch.device(device).type == "cpu":
            return tensor.to(**kwargs) if kwargs else tensor
        return tensor.to(device, **kwargs)


def _zeros(tensor: Any) -> Any:
    """Zeros in place of a host tensor without memory, inside a wrapper too."""
    if type(tensor) is torch.Tensor:
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
    names, rest = tensor.__tensor_flatten__()
    parts = {name: getattr(tensor, name) for name in names}
    parts = {name: _zeros(part) if isinstance(part, torch.Tensor) else part for name, part in parts.items()}
    return type(tensor).__tensor_unflatten__(parts, rest, tensor.shape, tensor.stride())


# What is nobody's tensor, and leads to none.
_PLAIN = frozenset(
    {
        type(None), type(...), bool, int, float, complex, slice, torch.dtype, torch.layout,
        torch.memory_format, torch.Size,
        numpy.bool_, numpy.int32, numpy.int64, numpy.float32, numpy.float64,
    }
)  # fmt: skip
_UNINITIALIZED = {UninitializedParameter, UninitializedBuffer}
_GETITEM, _SETITEM = torch.Tensor.__getitem__, torch.Tensor.__setitem__
_CALLS = frozenset({BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType})
_MODULES = frozenset({"torch.nn.functional", "torch.functional", "torch._tensor"})


def _own(func: Any) -> bool:
    """Whether a function is one of PyTorch's that look at nothing but their arguments."""
    if type(func) in _CALLS:
        return True
    # Those in Python may make tensors of their own, which go to the default device.
    return _default_device.CURRENT_DEVICE is None and getattr(func, "__module__", None) in _MODULES


def _real(values: Iterable[Any], some: bool = True, inner: bool = False) -> bool:
    """Whether these are real host tensors and plain values alone. some: with a tensor among them. inner:
    parts of a sequence."""
    for value in values:
        kind = type(value)
        if kind in PLAIN_TENSORS:
            if not value.is_cpu:
                return False
            some = False
        elif kind is tuple or kind is list:
            if inner or not _real(value, False, True):
                return False
            some = some and not any(type(part) in PLAIN_TENSORS for part in value)
        elif kind not in _PLAIN:
            return False
    return not some


class _Again(TorchFunctionMode):
    """A mode that is entered once more, from inside itself.

    In a backward pass autograd names the device of a wrapper, which is where its parts really lie
    (`functions.py`): what is made like those on the GPU lies there too.
    """

    def __init__(self, mode: FakeCuda) -> None:
        super().__init__()
        self._mode = mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (
            kwargs
            and kwargs.get("device") == META
            and args
            and isinstance(args[0], torch.Tensor)
            and torch._C._current_autograd_node() is not None
            and self._mode._on_gpu(args[0])
        ):
            kwargs = {**kwargs, "device": self._mode._recorder.gpu}
        return self._mode.__torch_function__(func, types, args, kwargs)


def _legacy_name(dtype: torch.dtype) -> str:
    """ "FloatTensor" for float32, and so on."""
    kinds = {
        name: kind for name, kind in vars(torch).items() if name.endswith("Tensor") and hasattr(kind, "dtype")
    }
    return next(name for name, kind in kinds.items() if kind.dtype is dtype)


def _plain(data: Any, recorder: Recorder) -> Any:
    if isinstance(data, torch.Tensor):
        return recorder.values.host_value(data).item()
    if isinstance(data, (list, tuple)):
        return [_plain(part, recorder) for part in data]
    return data
