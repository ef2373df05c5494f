"""Python code that is captured must believe its tensors are on a GPU, though they are meta tensors.

1. Decisions taken in Python (foreach optimizers, fast paths, autocast's device) are the ones a GPU would see:
   where a tensor lies, and what moves it, is in `placement.py`.
2. A device argument that names CUDA is replaced by meta before PyTorch sees it, so no CUDA build and no GPU
   is needed.
3. Values of small integer tensors are known where `values/known.py` could follow them: `tolist`, `numpy` and
   `item` answer from there.
4. A call of PyTorch's own functions among real host tensors alone is nobody's business: the recorder is left
   for as long as it takes, unless the call gets to see a device or a tensor that is not real.
5. User code that autograd calls (checkpointed modules, functions' backward, hooks on saved tensors) believes
   so too.

Answers of `torch.cuda`'s own functions are in `functions.py`.
Not modelled: CUDA graphs.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.device.deep_copies import deep_copy
from analyzer.capture.pytorch.device.default_device import default_device
from analyzer.capture.pytorch.device.host import (
    COMPUTING,
    MAKING_SPARSE,
    PLAIN_TENSORS,
    READERS,
    SIZED,
    Gradients,
    HostMemory,
    Pinned,
    data_of,
)
from analyzer.capture.pytorch.device.placement import Placement
from analyzer.capture.pytorch.kernels.attention import AttentionChoice
from analyzer.capture.pytorch.kernels.slices import SLICES_WHOLE, sliced_whole
from analyzer.capture.pytorch.patches import replaced
from analyzer.capture.pytorch.recording import autocasting
from analyzer.capture.pytorch.recording.parts import is_sparse, unwraps_itself
from analyzer.capture.pytorch.recording.recorder import META

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

_NESTED = "torch.nested._internal.nested_tensor"
_DLPACK_CUDA = 2  # kDLCUDA, `dlpack.h`
_len_torch_dispatch_stack = torch._C._len_torch_dispatch_stack
_pop_torch_dispatch_stack = torch._C._pop_torch_dispatch_stack
_push_on_torch_dispatch_stack = torch._C._push_on_torch_dispatch_stack


class FakeCuda(TorchFunctionMode):
    """The rules of the module docstring, as a mode around the captured program."""

    def __init__(self, recorder: Recorder, host: HostMemory | None = None) -> None:
        super().__init__()
        self._recorder, self._host = recorder, host
        self._slices_whole = recorder.compatible.device.releases["torch"] in SLICES_WHOLE
        tensor = torch.Tensor

        def getter(name: str) -> Any:
            return getattr(tensor, name).__get__

        self._placement = Placement(recorder)
        self._on_gpu = self._placement.on_gpu
        self._handlers: dict[Any, Callable[..., Any]] = {
            **self._placement.handlers(),
            tensor.data_ptr: self._data_ptr,
            tensor.__deepcopy__: deep_copy(self._on_gpu),
            tensor.__format__: self._format,
            tensor.__repr__: self._text,
            tensor.share_memory_: lambda t: t if self._on_gpu(t) else t.share_memory_(),
            tensor.__dlpack__: lambda t, **k: t if self._on_gpu(t) else t.__dlpack__(**k),
            tensor.__dlpack_device__: lambda t: (
                (_DLPACK_CUDA, self._placement.gpu_of(t).index) if self._on_gpu(t) else t.__dlpack_device__()
            ),
            vars(tensor)["__cuda_array_interface__"].__get__: self._array_interface,
            tensor.tolist: lambda t: recorder.values.host_value(t).tolist(),
            tensor.numpy: self._array,
            tensor.__array__: lambda t, dtype=None: numpy.asarray(self._array(t), dtype),
            tensor.__setitem__: self._assign,
            tensor.__getitem__: self._take,
            tensor.new: self._new,
            tensor.backward: self._backward,
            scaled_dot_product_attention: self._attend,
            **{
                function: self._healthy(function, finite)
                for finite, names in (
                    (True, ("isfinite",)),
                    (False, ("isnan", "isinf", "isposinf", "isneginf")),
                )
                for name in names
                for function in (getattr(torch, name), getattr(tensor, name))
            },
        }
        if recorder.size_questions is not None:
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
        self._attention = AttentionChoice(recorder.compatible)

    def _array(self, tensor: torch.Tensor, *, force: bool = False) -> Any:
        """Return the values as an array. Raises what PyTorch does where it refuses (`tensor_numpy.cpp`)."""
        if not force and self._on_gpu(tensor):
            raise TypeError(
                f"can't convert {self._placement.gpu_of(tensor)} device type tensor to numpy. Use"
                " Tensor.cpu() to copy the tensor to host memory first."
            )
        if not force and torch.is_grad_enabled() and tensor.requires_grad:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
            )
        return self._recorder.values.host_array(tensor).numpy(force=force)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._host is not None and self._host.workers.in_worker:
            self._host.workers.make_real((args, kwargs))
        if self._host is not None and self._host.untouched:
            if func in READERS:
                self._host.read((*args, *kwargs.values()))
            elif func in COMPUTING:
                self._host.computed_with(args)
        if func in MAKING_SPARSE and self._host is not None:
            args = self._host.bare(args)
        handler = self._handlers.get(func)
        if handler is not None and self._recorder.gpus.several:
            with self._recorder.gpus.placing(self._gpu_among(args)):
                return self._handled(handler, types, args, kwargs)
        if handler is not None:
            return self._handled(handler, types, args, kwargs)
        if kwargs and kwargs.pop("pin_memory", False):
            return Pinned.mark(self.__torch_function__(func, types, args, kwargs))
        # PyTorch's own mode for it comes later than this one.
        if (
            (default := default_device()) is not None
            and kwargs.get("device") is None
            and func in _device_constructors()
        ):
            kwargs = {**kwargs, "device": default}
        if args and _real(args) and _own(func) and (not kwargs or _real(kwargs.values(), some=False)):
            return self._on_host(func, args, kwargs)
        gpu: int | None = None
        if kwargs:
            if kwargs.get("generator") is not None and kwargs["generator"].device.type == "cuda":
                kwargs["generator"] = None  # nothing random on the device has a value
            device = kwargs.get("device")
            if device is not None and (gpu := self._recorder.gpus.named(device)) is not None:
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
                return self._run_jagged(kind, func, types, args, kwargs)
        if self._host is not None and torch.is_grad_enabled():
            args, kwargs = self._host.together(func, args, kwargs)
        if self._recorder.gpus.several:
            is_named = kwargs.get("device") is not None
            with self._recorder.gpus.placing(gpu if is_named else self._gpu_among(args)):
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    @staticmethod
    def _handled(handler: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if types and not _UNINITIALIZED.isdisjoint(types):
            # Such a parameter refuses what a handler asks it for in turn.
            with torch._C.DisableTorchFunctionSubclass():
                return handler(*args, **kwargs)
        return handler(*args, **kwargs)

    def _gpu_among(self, args: Any) -> int | None:
        """Return the GPU of the first tensor among a call's arguments, or in its first list of tensors."""
        for value in args[:2]:
            one = value[0] if isinstance(value, (list, tuple)) and value else value
            if isinstance(one, torch.Tensor) and (gpu := self._recorder.storages.gpu_of(one)) is not None:
                return gpu
        return None

    def _run_jagged(self, kind: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Run a jagged tensor's own Python, which asks for devices and may call the function again."""
        before, self._nested = self._nested, func
        try:
            with _Again(self):
                return kind.__torch_function__(func, types, args, kwargs)
        finally:
            self._nested = before

    @staticmethod
    def _on_host(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run a call among real host tensors without the recorder; other modes stay active."""
        if _len_torch_dispatch_stack() != 1:
            return func(*args, **kwargs)
        mode = _pop_torch_dispatch_stack(None)
        try:
            return func(*args, **kwargs)
        finally:
            _push_on_torch_dispatch_stack(mode)

    def _attend(self, query: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Attention inside a transform of `torch.func`: tensors it wraps do not have the key that the choice
        of a kernel is registered for (`kKeysToPropagateToWrapper`, `functorch/TensorWrapper.cpp`)."""
        transformed = torch._C._functorch.peek_interpreter_stack() is not None
        attend = self._attention if transformed and self._on_gpu(query) else scaled_dot_product_attention
        result: torch.Tensor = attend(query, *args, **kwargs)
        return result

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
        assert self._recorder.size_questions is not None
        if dim is None:
            return self._recorder.size_questions.sizes(tensor.size())
        return self._recorder.size_questions.size(tensor.size(dim))

    def _set_gradient(self, tensor: torch.Tensor, gradient: Any) -> None:
        """Set `tensor.grad`, also where only one of the two host tensors is real."""
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
        if tensor.dim() == 0 and type(tensor) is torch.Tensor and not self._placement.is_meta(tensor):
            return format(tensor.item(), spec)
        return object.__format__(tensor, spec)

    def _text(self, tensor: torch.Tensor, **kwargs: Any) -> str:
        """`repr(tensor)`: on the device it lies on, with its values where they are known.

        Not modelled: PyTorch formats a CUDA tensor on the GPU, which takes a few small blocks for a moment.
        """
        if not self._on_gpu(tensor):
            text = str(tensor.__repr__(**kwargs))
            return text if self._placement.is_meta(tensor) else text.replace(", device='meta'", "")
        value = self._recorder.values.known(tensor)
        if value is None:
            gpu = self._placement.gpu_of(tensor)
            return str(tensor.__repr__(**kwargs)).replace("device='meta'", f"device='{gpu}'")
        return f"{value.__repr__(**kwargs).removesuffix(')')}, device='{self._placement.gpu_of(tensor)}')"

    @contextlib.contextmanager
    def in_another_thread(self) -> Iterator[None]:
        """While open, this thread is followed as the one is that entered the modes."""
        with autocasting.in_this_thread(), _Again(self), self._recorder:
            yield

    @contextlib.contextmanager
    def saved_tensor_hooks(self) -> Iterator[None]:
        """While open, run hooks on saved tensors with this mode on, which operators leave."""
        hooks = torch.autograd.graph.saved_tensors_hooks
        original = hooks.__init__

        def init(new: Any, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
            mine = int(type(new).__module__ == "torch.utils.checkpoint")
            self._recorder.places.checkpointed(mine, 0)
            original(new, self._believing(pack, mine), self._believing(unpack, mine))

        with replaced({"torch.autograd.graph.saved_tensors_hooks.__init__": init}):
            yield

    def _believing(self, function: Callable[[Any], Any], counted: int) -> Callable[[Any], Any]:
        """Return a hook with this mode on; counted: 1 where its calls are checkpointing's, else 0."""

        def call(value: Any) -> Any:
            self._recorder.places.checkpointed(0, counted)
            # Inside an operator among host tensors the recorder has been left too.
            recording = contextlib.nullcontext() if _len_torch_dispatch_stack() else self._recorder
            with (
                recording,
                contextlib.nullcontext() if torch._C._len_torch_function_stack() else _Again(self),
            ):
                return function(value)

        return call

    def _backward(
        self,
        tensor: Any,
        gradient: Any = None,
        retain: Any = None,
        create: bool = False,
        inputs: Any = None,
        **named: Any,
    ) -> None:
        """`Tensor.backward`, staying in this mode."""
        retain, create = named.get("retain_graph", retain), named.get("create_graph", create)
        with _Again(self):
            torch.autograd.backward(tensor, gradient, retain, create, inputs=inputs)

    def _healthy(self, function: Any, finite: bool) -> Callable[..., Any]:
        """Wrap a finiteness check: in a whole program, device tensors are taken to be finite."""

        def answer(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            flags = function(tensor, *args, **kwargs)
            if self._host is not None and self._on_gpu(tensor):
                self._recorder.values.learn_flags(flags, finite)
            return flags

        return answer

    def _data_ptr(self, tensor: torch.Tensor) -> int:
        """Return a made-up address for each storage, to find aliases; wrappers have none (`DTensor`)."""
        if tensor.device.type != "meta" or unwraps_itself(type(tensor)):
            return int(tensor.data_ptr())
        return self.address(tensor.untyped_storage()) + int(tensor.storage_offset()) * tensor.element_size()

    def address(self, storage: Any) -> int:
        """Return a made-up address of a storage without memory."""
        if not storage.nbytes():  # all of it was given back (FSDP asks so what is gathered)
            return 0
        if storage._cdata not in self._addresses:
            self._addresses[storage._cdata] = next(self._next_address)
        return self._addresses[storage._cdata]

    @contextlib.contextmanager
    def storages(self) -> Iterator[None]:
        """While open, make storages report the device their tensors do."""
        kind: Any = torch.UntypedStorage
        address, device = kind.data_ptr, kind.device

        def where(storage: Any) -> torch.device:
            real: torch.device = device.__get__(storage)
            if real.type != "meta":
                return real
            place = self._recorder.storages.place_of(storage)
            if place is None:
                return real
            return self._recorder.storages.device_of_storage(storage) if place else torch.device("cpu")

        def to_device(storage: Any, device: Any = None, non_blocking: bool = False) -> Any:
            """Return a copy on the GPU; what it holds is not followed."""
            gpus = self._recorder.gpus
            gpu = gpus.current if device is None else gpus.named(device)
            if gpu is None or where(storage) == gpus.device(gpu):
                return storage
            tensor = torch.empty(storage.nbytes(), dtype=torch.uint8, device=gpus.device(gpu))
            if not non_blocking:
                self._recorder.storages.wait(self._recorder.streams.now())
            return tensor.untyped_storage()

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
        """Assign to a slice; a number becomes a host scalar (`python_variable_indexing.cpp`)."""
        if tensor.is_meta and self._host is not None:
            self._host.touched(tensor, 0 if isinstance(value, (bool, int, float)) else index)
        arguments = (tensor, index, value)
        if _real(arguments):
            self._on_host(_SETITEM, arguments, {})
            return
        if isinstance(value, (bool, int, float)) and not tensor.is_cpu:
            value = torch.tensor(value, dtype=tensor.dtype, device="cpu")
        if self._slices_whole:
            index = sliced_whole(tensor, index if isinstance(index, tuple) else (index,))
        tensor[index] = value

    def _take(self, tensor: torch.Tensor, index: Any) -> Any:
        """Return `tensor[index]`."""
        if tensor.is_meta and self._host is not None:
            self._host.touched(tensor, index)
        arguments = (tensor, index)
        if _real(arguments):
            return self._on_host(_GETITEM, arguments, {})
        if self._slices_whole and isinstance(index, tuple):
            index = sliced_whole(tensor, index)
        return tensor[index]

    def _new(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Call `Tensor.new`, which sparse meta tensors lack (`SparseAdam`)."""
        if is_sparse(tensor) and self._on_gpu(tensor):
            return torch.sparse_coo_tensor(*args, **kwargs, check_invariants=False)
        return tensor.new(*args, **kwargs)


def _zeros(tensor: Any) -> Any:
    """Zeros in place of a host tensor without memory, inside a wrapper too."""
    if type(tensor) is torch.Tensor:
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
    names, rest = tensor.__tensor_flatten__()
    parts = {name: getattr(tensor, name) for name in names}
    parts = {name: _zeros(part) if isinstance(part, torch.Tensor) else part for name, part in parts.items()}
    return type(tensor).__tensor_unflatten__(parts, rest, tensor.shape, tensor.stride())


# Types that are no tensors, and lead to none.
_OF_PYTHON = {type(None), type(...), bool, int, float, complex, slice}
_OF_TORCH = {torch.dtype, torch.layout, torch.memory_format, torch.Size}
_OF_NUMPY = {numpy.bool_, numpy.int32, numpy.int64, numpy.float32, numpy.float64}
_PLAIN = frozenset(_OF_PYTHON | _OF_TORCH | _OF_NUMPY)
_UNINITIALIZED = {UninitializedParameter, UninitializedBuffer}
_GETITEM, _SETITEM = torch.Tensor.__getitem__, torch.Tensor.__setitem__
_CALLS = frozenset({BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType})
_MODULES = frozenset({"torch.nn.functional", "torch.functional", "torch._tensor"})


def _own(func: Any) -> bool:
    """Return whether a function is one of PyTorch's that look at nothing but their arguments."""
    if type(func) in _CALLS:
        return True
    # Those in Python may make tensors of their own, which go to the default device.
    return default_device() is None and getattr(func, "__module__", None) in _MODULES


def _real(values: Iterable[Any], some: bool = True, inner: bool = False) -> bool:
    """Return whether all are real host tensors or plain values. some: at least one tensor."""
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
            kwargs = {**kwargs, "device": self._mode._placement.gpu_of(args[0])}
        return self._mode.__torch_function__(func, types, args, kwargs)
